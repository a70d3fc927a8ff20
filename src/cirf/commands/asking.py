"""``ask`` and ``codes``: a trained model at work, and what its tokens mean."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.analysis.functions import MODEL, find_model, functions_of
from cirf.commands.running import open_run
from cirf.errors import CirfError
from cirf.recipe_io import load

if TYPE_CHECKING:
    from cirf.serving.model import Served


def ask(
    path: Path,
    question: str,
    choices: Sequence[str],
    as_json: bool,
    steering: Mapping[str, Any],
    stream: bool | None = None,
    explain: bool = False,
    trust: bool = False,
    int8: bool | None = None,
) -> None:
    """Answer one question and print the trace, each token with its label, the answer and the time.

    It is asked by its recipe's number format, device and caps; a model from elsewhere by the defaults. ``steering`` are
    settings of `cirf.methods.cirf.TraceSettings`. ``stream``: lines are printed as they are written (``None``: on a terminal);
    they are the same lines. ``explain``: then of each functional token what it stands for, how sure the model was, and what else
    it might have written. ``trust``: code that comes with the model may run. ``int8``: see `load_served`.
    ``CirfError`` where steering or explaining is asked for of a model without functional tokens.
    """
    from cirf.lm import backbone, decode
    from cirf.serving.lines import Lines
    from cirf.serving.model import load_served
    from cirf.tasks.task import with_options

    served = load_served(path, trust, int8)
    if explain and served.names is None:
        raise CirfError("--explain: it explains functional tokens, which this model has none of")
    model, tokenizer, limits = served.model, served.tokenizer, served.limits
    prompt = backbone.prompt_text(tokenizer, backbone.sanitise(with_options(question, choices), tokenizer))
    how = (served.cap, limits.temperature, limits.top_p, served.seed)
    steer = served.steer(*_steering(served.functions, steering))
    lines = Lines(served)

    def show(text: str) -> None:
        print(lines.more(text, over=False), end="", flush=True)

    told = show if not as_json and (sys.stdout.isatty() if stream is None else stream) else None
    output = decode.generate_one(
        model, tokenizer, prompt, *how, on_text=told, prefixes=served.thinking, steer=steer, guesses=served.drafts
    )
    explained = _explained(served, prompt, output.ids) if explain else []
    if as_json:
        read = served.read(output.text, output.truncated)
        timed = {"tokens": output.tokens, "seconds": round(output.seconds, 3), "truncated": output.truncated}
        found = {"answer": read.answer, "steps": read.steps, "output": output.text} | timed
        print(json.dumps(found | ({"explain": explained} if explain else {}), indent=2, ensure_ascii=False))
        return
    print(lines.more(output.text, over=True, cut=output.truncated), end="")
    print(f"{output.tokens} tokens, {output.seconds:.2f} s{', cut off at the cap' if output.truncated else ''}")
    for one in explained:
        _print_explanation(one)


def _explained(served: Served, prompt: str, written: Sequence[int]) -> list[dict[str, Any]]:
    """What the model thought of the functional tokens among the ids ``written``."""
    from cirf.lm.alternatives import choices
    from cirf.lm.prompt import encode
    from cirf.serving.explaining import explanation

    assert served.names is not None
    found = choices(served.model, served.tokenizer, encode(served.tokenizer, prompt), written, served.names)
    return [explanation(choice, served.functions) for choice in found]


def _print_explanation(told: Mapping[str, Any]) -> None:
    """A functional token with its probability, the likeliest others, and segments that it stands for."""
    print(f"\n{told['token']} {told['label']}: {told['probability']:.1%}")
    others = [
        f"{row['token']} {row['label']}".rstrip() if "label" in row else json.dumps(row["token"], ensure_ascii=False)
        for row in told["alternatives"]
    ]
    chances = [row["probability"] for row in told["alternatives"]]
    print(f"  or {', '.join(f'{name} {chance:.1%}' for name, chance in zip(others, chances, strict=True))}")
    for segment in told["segments"]:
        print(f"  - {segment}")


def _steering(functions: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Any, bool]:
    """How an answer is held to the form of traces, ``None`` where nothing is asked for, and whether there is a calculator."""
    from cirf.methods.cirf import TraceSettings, formed

    asked = TraceSettings(**settings)
    if formed(asked) and not functions:
        raise CirfError("--budget, --no-results and --grammar steer functional tokens, which this model has none of")
    return (asked.steering() if formed(asked) else None), asked.calculator


def codes(folder: Path, text: str | None, question: str | None, choices: Sequence[str], as_json: bool) -> None:
    """List the functional tokens of a run, or write a rationale in them."""
    if text is not None:
        _encode(folder, text, question, choices, as_json)
        return
    for option, given in (("--question", question is not None), ("--choice", bool(choices))):
        if given:
            raise CirfError(f"{option}: it goes with a rationale to encode; give the rationale too")
    functions = _known_functions(folder)
    if not functions:
        raise CirfError(f"{find_model(folder)}: this model has no functional tokens")
    rows = [{"code": int(code)} | value for code, value in functions["codes"].items()]
    rows.sort(key=lambda row: -row["count"])
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for row in rows:
        print(f"<cirf_{row['code']:03d}> {row['count']:>7,}  {row['label']:28} {row['examples'][0][:90]}")


def _known_functions(folder: Path) -> dict[str, Any]:
    """What the tokens stand for, by the model, or before there is one by the run's traces; empty if by neither."""
    for place in (folder, folder / MODEL):
        if (place / "config.json").is_file():
            return functions_of(place)
    if not (folder / "traces" / "traces.jsonl").is_file():
        return {}
    from cirf.methods import get
    from cirf.stages.context import Context
    from cirf.stages.models import functions_of as by_traces
    from cirf.store import RunFolder

    recipe = open_run(folder)
    context = Context(recipe, RunFolder(folder))
    return by_traces(context, context.examples(get("cirf_full", recipe))[0])


def _labels(folder: Path, book: Path) -> dict[str, Any]:
    """What the codes of that codebook stand for; empty where model and traces are of another."""
    found: dict[str, Any] = _known_functions(folder).get("codes", {})
    usage = json.loads((book / "codebook.json").read_text(encoding="utf-8"))["report"]["usage"]
    same = {str(code): count for code, count in enumerate(usage) if count} == {code: row["count"] for code, row in found.items()}
    return found if same else {}


def _encode(folder: Path, text: str, question: str | None, choices: Sequence[str], as_json: bool) -> None:
    from cirf.assets import resolve
    from cirf.codebook.codebook import Codebook
    from cirf.codebook.embedding import embed_once
    from cirf.codebook.wording import wording, wordings
    from cirf.lm.backbone import pick_device
    from cirf.progress import SILENT
    from cirf.rationales.segmentation import steps_of

    recipe = open_run(folder)
    where = folder / f"codebook-{recipe.codebook.size}"
    if not where.is_dir():
        raise CirfError(f"{where}: the codebook is not there yet; run `cirf run` first")
    book = Codebook.load(where)
    if (where / "recipe.yaml").is_file():
        recipe = load(str(where / "recipe.yaml"))  # the run's may have changed since
    segments = [plain for plain, _ in steps_of(text, recipe.segments, choices)[1]]
    if not segments:
        raise CirfError(f"the text holds no step (segments.by = {recipe.segments.by}); number its steps, one a line")
    centred = book.representation == "question_centered"
    if centred and question is None:
        raise CirfError(f"{where}: its steps are centred on their question; give it with --question")
    model = resolve(recipe.embeddings.model, SILENT)
    texts = wordings(segments, recipe.embeddings, choices)
    if centred and question is not None:
        texts.append(wording(question, recipe.embeddings))
    vectors = embed_once(texts, recipe.embeddings, model, pick_device(recipe.backbone.device))
    found = book.quantise(vectors[: len(segments)], vectors[-1] if centred else None)
    labels = _labels(folder, where)
    rows = [
        {"code": int(code), "label": labels.get(str(int(code)), {}).get("label", ""), "segment": piece}
        for code, piece in zip(found, segments, strict=True)
    ]
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for row in rows:
        print(f"<cirf_{row['code']:03d}>  {row['label']:28} {row['segment']}")
