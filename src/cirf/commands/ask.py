"""``ask`` and ``codes``: inference with a trained model, and the meaning of its tokens.

For a model of functional tokens each has a line with its label and result as soon as the result is complete, then the answer as
it comes; for one that writes prose the text, and the answer on a line of its own::

      <cirf_016>   divides                      48
      <cirf_023>   adds                         72
    72
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.assets import resolve
from cirf.codebook.codebook import Codebook
from cirf.codebook.embedding import embed_once, wordings
from cirf.codebook.functions import MODEL, find_model, functions_of, steps_of
from cirf.commands.token_limits import TokenLimits
from cirf.errors import CirfError
from cirf.lm import backbone
from cirf.lm.backbone import load_tokenizer, pick_device
from cirf.lm.decoding import generate as decode
from cirf.lm.decoding.trace_grammar import check_codes, expression, limited
from cirf.lm.vocabulary import is_closed, names_in, opened_by_prompt
from cirf.methods import get
from cirf.methods.cirf.cirf import TraceSettings, formed
from cirf.methods.prose.cot import ANSWER_MARK
from cirf.progress import SILENT, printable
from cirf.recipe.load import load, open_run
from cirf.serving.model import ServedModel, load_served
from cirf.serving.reading import HALF, StreamReader, explanations, without_beginning
from cirf.stages.context import Context
from cirf.stages.models import functions_of as by_traces
from cirf.store.files import parse_json
from cirf.store.run_folder import RunFolder
from cirf.tasks.task import with_options

_ILL_FORMED = "the trace is not well-formed; the model is not trained enough (see the run's report.html)"


def ask(
    path: Path,
    question: str,
    choices: Sequence[str],
    as_json: bool,
    steering: Mapping[str, Any],
    stream: bool | None = None,
    explain: bool = False,
    trust: bool = False,
) -> None:
    """Answer one question and print the trace, each token with its label, the answer and the time; a trace that is not
    well-formed is warned of.

    It uses its recipe's number format, device and caps; without a recipe the defaults. ``steering`` are settings of
    `cirf.methods.cirf.cirf.TraceSettings`, and ``limits`` of functional tokens (`TokenLimits`). ``stream``: lines are printed as
    they are written (``None``: on a terminal); they are the same lines. ``explain``: also print each functional token's function,
    its probability and the alternatives. ``trust``: code that comes with the model may run. ``CirfError`` for steering or
    explaining a model without functional tokens.
    """
    served = load_served(path, trust)
    if explain and served.names is None:
        raise CirfError("--explain: explains functional tokens, but this model has none")
    model, tokenizer, limits = served.model, served.tokenizer, served.limits
    prompt = backbone.prompt_text(tokenizer, backbone.sanitise(with_options(question, choices), tokenizer))
    steer = served.steer(*_steering(served.functions, steering))
    decoding = decode.Decoding(limits.temperature, limits.top_p, served.seed, served.thinking, steer)
    lines = Lines(served)

    def show(text: str) -> None:
        print(printable(lines.more(text, over=False)), end="", flush=True)

    streamed = show if not as_json and (sys.stdout.isatty() if stream is None else stream) else None
    output = decode.generate_one(model, tokenizer, prompt, served.cap, decoding, on_text=streamed)
    explained = explanations(served, prompt, output.ids) if explain else []
    closed = None if served.names is None else is_closed(output.text, served.names)
    if as_json:
        read = served.read(output.text, output.truncated)
        timed = {"tokens": output.tokens, "seconds": round(output.seconds, 3), "truncated": output.truncated}
        found = {"answer": read.answer, "steps": read.steps, "output": output.text} | timed
        found |= {} if closed is None else {"well_formed": closed and not output.truncated}
        print(json.dumps(found | ({"explain": explained} if explain else {}), indent=2, ensure_ascii=False))
        return
    print(printable(lines.more(output.text, over=True, cut=output.truncated)), end="")
    print(f"{output.tokens} tokens, {output.seconds:.2f} s{', truncated at the cap' if output.truncated else ''}")
    if closed is False:
        sys.stdout.flush()
        print(f"warning: {_ILL_FORMED}", file=sys.stderr)
    for one in explained:
        _print_explanation(one)


def _print_explanation(summary: Mapping[str, Any]) -> None:
    print(printable(f"\n{summary['token']} {summary['label']}: {summary['probability']:.1%}"))
    others = [
        f"{row['token']} {row['label']}".rstrip() if "label" in row else json.dumps(row["token"], ensure_ascii=False)
        for row in summary["alternatives"]
    ]
    chances = [row["probability"] for row in summary["alternatives"]]
    print(f"  or {', '.join(f'{name} {chance:.1%}' for name, chance in zip(others, chances, strict=True))}")
    for segment in summary["segments"]:
        print(printable(f"  - {segment}"))


def _steering(functions: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Any, bool]:
    """The steering of an answer, ``None`` if none is requested, and whether there is a calculator."""
    own = {name: value for name, value in settings.items() if name != "limits"}
    settled, limits = TraceSettings(**own), settings.get("limits")
    if (formed(settled) or limits) and not functions:
        option_names = "--budget, --no-results, --grammar, --forbid and --at-most"
        raise CirfError(f"{option_names} steer functional tokens, but this model has none")
    how = settled.steering() if formed(settled) or limits else None
    if how is not None and limits:
        given = limits.steering(functions)
        how = limited(how, dict(given.at_most), given.together)
    return how, settled.calculator


def for_vllm(folder: Path, limits: TokenLimits) -> None:
    """Print as JSON the vLLM request for these limits: a bias where codes are forbidden alone, else an expression."""
    tokenizer = load_tokenizer(find_model(folder))
    names = names_in(tokenizer)
    if names is None:
        raise CirfError(f"{find_model(folder)}: this model has no functional tokens")
    how = limits.steering(_known_functions(folder) if limits.words else {})
    check_codes(how.codes, names)
    if how.together or any(most for _, most in how.at_most):
        form = expression(how, names, opened_by_prompt(tokenizer, names))
        body: dict[str, Any] = {"structured_outputs": {"regex": form}}
    else:
        body = {"logit_bias": {str(tokenizer.convert_tokens_to_ids(names.codes[code])): -100 for code in how.codes}}
    print(json.dumps(body, indent=2))


def codes(folder: Path, text: str | None, choices: Sequence[str], as_json: bool) -> None:
    if text is not None:
        _encode(folder, text, choices, as_json)
        return
    if choices:
        raise CirfError("--choice: needs a rationale to encode; give the rationale too")
    functions = _known_functions(folder)
    if not functions:
        raise CirfError(f"{find_model(folder)}: this model has no functional tokens")
    rows = [{"code": int(code)} | value for code, value in functions["codes"].items()]
    rows.sort(key=lambda row: -row["count"])
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for row in rows:
        print(printable(f"<cirf_{row['code']:03d}> {row['count']:>7,}  {row['label']:28} {row['examples'][0][:90]}"))


def _known_functions(folder: Path) -> dict[str, Any]:
    """The functions of the tokens, from the model, or before there is one from the run's traces; empty without both."""
    for place in (folder, folder / MODEL):
        if (place / "config.json").is_file():
            return functions_of(place)
    if not (folder / "traces" / "traces.jsonl").is_file():
        return {}

    recipe = open_run(folder)
    context = Context(recipe, RunFolder(folder))
    return by_traces(context, context.examples(get("cirf_full", recipe))[0])


def _labels(folder: Path, book: Path) -> dict[str, Any]:
    """The functions of that codebook's codes; empty if model and traces are of another."""
    found: dict[str, Any] = _known_functions(folder).get("codes", {})
    usage = parse_json((book / "codebook.json").read_text(encoding="utf-8"))["report"]["usage"]
    same = {str(code): count for code, count in enumerate(usage) if count} == {code: row["count"] for code, row in found.items()}
    return found if same else {}


def _encode(folder: Path, text: str, choices: Sequence[str], as_json: bool) -> None:
    from cirf.rationales.segmentation import steps_of

    recipe = open_run(folder)
    where = folder / f"codebook-{recipe.codebook.codes}"
    if not where.is_dir():
        raise CirfError(f"{where}: there is no codebook yet; run `cirf run` first")
    book = Codebook.load(where)
    if (where / "recipe.yaml").is_file():
        recipe = load(str(where / "recipe.yaml"))  # the run's may have changed since
    segments = [plain for plain, _ in steps_of(text, recipe.segments, choices)[1]]
    if not segments:
        raise CirfError(f"the text holds no step (segments.by = {recipe.segments.by}); number its steps, one a line")
    if book.representation == "question_centered":
        raise CirfError(f"{where}: its steps are centred on their question, so a rationale alone has no codes")
    model = resolve(recipe.embeddings.model, SILENT)
    texts = wordings(segments, recipe.embeddings, choices)
    found = book.quantise(embed_once(texts, recipe.embeddings, model, pick_device(recipe.backbone.device)))
    labels = _labels(folder, where)
    rows = [
        {"code": int(code), "label": labels.get(str(int(code)), {}).get("label", ""), "segment": piece}
        for code, piece in zip(found, segments, strict=True)
    ]
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for row in rows:
        print(printable(f"<cirf_{row['code']:03d}>  {row['label']:28} {row['segment']}"))


class Lines:
    """The shown part of a model's answer."""

    def __init__(self, served: ServedModel) -> None:
        self._served, self._reader = served, StreamReader(served.names, served.opened)
        self._shown = ""

    def more(self, text: str, over: bool, cut: bool = False) -> str:
        """The next part to show of ``text``, the whole text so far; the rest when it is ``over``, finished or ``cut`` off by a
        cap."""
        lines = self._trace(text, over, cut) if self._served.names else self._prose(text, over)
        new = lines[len(self._shown) :]
        self._shown = lines
        return new

    def _trace(self, text: str, over: bool, cut: bool) -> str:
        self._reader.more(text, over, cut)
        steps = steps_of(self._reader.reasoning, self._served.functions)
        if not self._reader.closed:
            steps = steps[:-1]  # the result of the last one may grow
        lines = "".join(f"  {step['token'] or '(text)':12} {step['label']:28} {step['result']}\n" for step in steps)
        return lines + self._reader.content + ("\n" if over else "")

    def _prose(self, text: str, over: bool) -> str:
        if over:
            read = self._served.read(text)
            return "".join(f"{part}\n" for part in ([read.reasoning] if read.reasoning else []) + [read.answer])
        # Text after a mark is held back: it is prose, too, if another mark follows.
        text = text.rstrip(HALF)
        prose, mark, _ = text.rpartition(ANSWER_MARK)
        return (prose if mark else without_beginning(text, ANSWER_MARK)).strip()
