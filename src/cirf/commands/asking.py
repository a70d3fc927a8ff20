"""``ask`` and ``codes``: a trained model at work, and what its tokens mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cirf.commands.running import open_run
from cirf.errors import CirfError
from cirf.recipe import Backbone, Evaluate


def find_model(path: Path) -> Path:
    """A checkpoint's folder: the path itself, or the CIRF model of a run's folder."""
    for folder in (path, path / "models" / "cirf_full"):
        if (folder / "config.json").is_file():
            return folder
    raise CirfError(f"{path}: neither a model's folder (config.json) nor a run with a finished models/cirf_full")


def functions_of(folder: Path) -> dict[str, Any]:
    """What the model's functional tokens stand for; empty where the model has none."""
    path = folder / "functions.json"
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return loaded


def ask(path: Path, question: str, choices: Sequence[str], as_json: bool) -> None:
    """Answer one question and print the trace, each token with its label, the answer and the time."""
    from cirf.lm import backbone, decode
    from cirf.lm.vocabulary import parse_trace, read_trace, token_names
    from cirf.tasks.task import with_options

    folder = find_model(path)
    functions = functions_of(folder)
    section = Backbone(model=str(folder))
    tokenizer = backbone.load_tokenizer(folder, section)
    model = backbone.load_model(folder, section, training=None)
    prompt = backbone.prompt_text(tokenizer, backbone.sanitise(with_options(question, choices), tokenizer))
    limits = Evaluate()
    output = decode.generate_one(model, tokenizer, prompt, limits.text_cap if not functions else limits.trace_cap + 64, 0.0, 1.0, 0)
    steps: list[dict[str, Any]] = []
    answer = output.text.strip()
    if functions:
        names = token_names(functions["size"], functions["delimiters"])
        trace, answer = read_trace(output.text, names)
        for code, result in parse_trace(trace):
            label = functions["codes"].get(str(code), {}).get("label", "") if code is not None else ""
            steps.append({"token": None if code is None else names.codes[code], "label": label, "result": result})
    if as_json:
        timed = {"tokens": output.tokens, "seconds": round(output.seconds, 3), "truncated": output.truncated}
        print(json.dumps({"answer": answer, "steps": steps, "output": output.text} | timed, indent=2, ensure_ascii=False))
        return
    for step in steps:
        print(f"  {step['token'] or '(text)':12} {step['label']:28} {step['result']}")
    print(answer)
    print(f"{output.tokens} tokens, {output.seconds:.2f} s{', cut off at the cap' if output.truncated else ''}")


def codes(folder: Path, text: str | None, as_json: bool) -> None:
    """List the functional tokens of a run, or write a rationale in them."""
    if text is not None:
        _encode(folder, text, as_json)
        return
    functions = functions_of(find_model(folder))
    if not functions:
        raise CirfError(f"{folder}: this model has no functional tokens")
    rows = [{"code": int(code)} | value for code, value in functions["codes"].items()]
    rows.sort(key=lambda row: -row["count"])
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for row in rows:
        print(f"<cirf_{row['code']:03d}> {row['count']:>7,}  {row['label']:28} {row['examples'][0][:90]}")


def _encode(folder: Path, text: str, as_json: bool) -> None:
    from cirf.assets import resolve
    from cirf.codebook.codebook import Codebook
    from cirf.codebook.embedding import embed_once
    from cirf.lm.backbone import pick_device
    from cirf.progress import SILENT
    from cirf.rationales.segmentation import segment
    from cirf.tasks.steps import strip_annotations

    recipe = open_run(folder)
    where = folder / f"codebook-{recipe.codebook.size}"
    if not where.is_dir():
        raise CirfError(f"{where}: the codebook is not there yet; run `cirf run` first")
    book = Codebook.load(where)
    segments = [strip_annotations(piece) for piece in segment(text, recipe.segments.by).segments]
    if not segments:
        raise CirfError(f"the text holds no step (segments.by = {recipe.segments.by}); number its steps, one a line")
    model = resolve(recipe.embeddings.model, SILENT)
    found = book.quantise(embed_once(segments, recipe.embeddings, model, pick_device(recipe.backbone.device)))
    labels = functions_of(folder / "models" / "cirf_full").get("codes", {})
    rows = [
        {"code": int(code), "label": labels.get(str(int(code)), {}).get("label", ""), "segment": piece}
        for code, piece in zip(found, segments, strict=True)
    ]
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for row in rows:
        print(f"<cirf_{row['code']:03d}>  {row['label']:28} {row['segment']}")
