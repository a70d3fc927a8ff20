"""From a model to accuracy, in batches.

Shared prefixes of a method's prompts are part of the key of the answers, and computed once per model. A method declares them by
`Method.openings`; other methods' prompts are read as usual.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.distributed import Share, is_main
from cirf.methods import get
from cirf.progress import SILENT, Progress
from cirf.recipe.schema import Evaluate
from cirf.records import Problem
from cirf.stages.context import Context
from cirf.stages.models import load_for, release, source_of, tokenizer_for
from cirf.store.files import RowLog, hash_json
from cirf.store.jsonl import read_rows

if TYPE_CHECKING:
    from cirf.evaluation.engines import ServedOutput, VllmEngine
    from cirf.evaluation.harness import Generate, Scores
    from cirf.lm.decoding.prefix_cache import Prefiller
    from cirf.methods.base import Method
    from cirf.tasks.task import Task


def openings_of(method: Method, tasks: Mapping[str, Task]) -> dict[str, tuple[str, ...]]:
    """The openings of a method's prompts to each task that has any; empty for a method whose prompts have none."""
    found = {name: method.openings(task) for name, task in tasks.items()}
    return {name: openings for name, openings in found.items() if openings}


def key(methods: Iterable[Method], tasks: Mapping[str, Task]) -> dict[str, Any]:
    """The entry for the openings of some methods in the key of a stage; empty if none has any."""
    found = {method.name: openings_of(method, tasks) for method in methods}
    hashes = {name: hash_json(openings) for name, openings in found.items() if openings}
    return {"openings": hashes} if hashes else {}


def beginnings(method: Method, tasks: Mapping[str, Task], model: Any, tokenizer: Any, source: Path | str) -> Prefiller | None:
    """Computes the beginning of a method's prompts to the model of ``source``, if not token by token: its thoughts, or a cache of
    its openings."""
    thinking = method.beginnings(model, tokenizer, source)
    if thinking is not None:
        return thinking
    found = openings_of(method, tasks)
    if not found:
        return None
    from cirf.lm.decoding.prefix_cache import PromptOpenings
    from cirf.lm.prompt import prompt_text

    texts = dict.fromkeys(text for openings in found.values() for text in openings)
    return PromptOpenings(model, tokenizer, [prompt_text(tokenizer, text) for text in texts])


def evaluate(context: Context, name: str, section: Evaluate, work: Path) -> dict[str, Any]:
    """Answer every test question in padded batches as ``section`` says, and judge the answers (paper A.2, inference settings).
    Processes share the batches."""
    test, method = context.test(), get(name, context.recipe)
    scores, engine = _answer(context, name, section, test, work, Share.of_launch())
    failed = scores.overall.failed
    served = name in section.endpoints and is_main()
    rows = [row for task in test if served and test[task] for row in read_rows(work / f"{task}.jsonl")]
    notes = [
        *method.caveats(),
        *([] if engine.startswith("transformers") else [f"answered by {engine}"]),
        *([f"WARNING: {failed:,} questions were not answered and count as wrong"] if failed else []),
        *without_content(method, rows, "answers"),
    ]
    return {"rows": scores.overall.n, "notes": notes, "engine": engine}


def without_content(method: Method, rows: Sequence[Mapping[str, Any]], what: str) -> list[str]:
    """A warning where rows, or votes, from a server are reasoning without an answer, though no cap cut them off: of a model that
    does not think, a reasoning parser takes the whole output for reasoning."""
    from cirf.evaluation.harness import only_thoughts

    count = sum(only_thoughts(method, row) for row in rows)
    if not count:
        return []
    advice = "serve a model that does not think without --reasoning-parser"
    return [f"WARNING: {count:,} of {len(rows):,} {what} are reasoning without content and count as unparsed; {advice}"]


def answer(
    context: Context,
    name: str,
    section: Evaluate,
    problems: Mapping[str, Sequence[Problem]],
    work: Path,
    share: Share,
    engine: str = "transformers",
) -> Scores:
    """Answer the ``problems`` of each task with a method's model; rows and scores are written to ``work``.

    It is the run's own model, decoded by ``engine``, whatever ``section`` says of engines and endpoints.
    """
    here = section.model_copy(update={"engine": engine, "endpoints": {}})
    return _answer(context, name, here, problems, work, share)[0]


def _answer(
    context: Context, name: str, section: Evaluate, problems: Mapping[str, Sequence[Problem]], work: Path, share: Share
) -> tuple[Scores, str]:
    """As `answer`, but as ``section`` says; also the engine and its number format."""
    from cirf.evaluation.harness import Answerer, Questions, evaluate

    method = get(name, context.recipe)
    progress = context.progress if share.main else SILENT
    log = share.path(work / "scratch" / "asked.jsonl")
    with _generating(context, method, section, log, progress) as (generate, render, engine):
        if name in section.endpoints:  # all at once: each batch would wait for its slowest answer, and connect again
            section = section.model_copy(update={"batch_size": max(1, *map(len, problems.values()))})
            progress = SILENT  # the client shows its own
        questions = Questions(context.tasks, problems)
        scores = evaluate(Answerer(method, generate, render), questions, section, work, progress, share)
    return scores, engine


def served(
    context: Context, method: Method, section: Evaluate, asked: RowLog, progress: Progress
) -> Callable[..., list[ServedOutput]]:
    """A function that has a method's server answer its prompts; see `cirf.evaluation.engines.asker`."""
    from cirf.evaluation.engines import asker
    from cirf.lm.vocabulary import token_names

    closing = "" if method.reads_marks else None
    if method.functional:
        closing = token_names(0, context.recipe.vocabulary.delimiters).end
    return asker(section, method.name, asked, context.recipe.seed, closing, progress)


def server_of(section: Evaluate, name: str) -> str:
    """The model that answers for a method on a server, and where."""
    return f"{section.endpoints[name].model} at {section.endpoints[name].url}"


def vllm_name(context: Context, running: VllmEngine) -> str:
    """The engine and its number format."""
    return f"{running.version}, {context.recipe.backbone.dtype}"


@contextlib.contextmanager
def vllm_of(context: Context, method: Method, section: Evaluate) -> Iterator[VllmEngine | None]:
    """vLLM with a method's model while the context lasts; ``None`` where ``section`` does not ask for it, or it cannot decode the
    method."""
    if section.engine != "vllm" or method.latents:
        yield None
        return
    from cirf.evaluation.engines import engine, steers
    from cirf.lm.prompt import unloaded

    source, tokenizer = source_of(context, method.name), tokenizer_for(context, method.name)
    processors = method.steer(unloaded(str(source)), tokenizer)()
    if not steers(processors):
        yield None
        return
    release(context)
    with engine(source, tokenizer, context.recipe.backbone, processors) as running:
        yield running


@contextlib.contextmanager
def _generating(
    context: Context, method: Method, section: Evaluate, asked: Path, progress: Progress
) -> Iterator[tuple[Generate, Callable[[str], str], str]]:
    """A function that answers a method's prompts, one that renders a user's turn as a prompt, and the name of the engine."""
    from cirf.lm import backbone
    from cirf.lm.decoding import generate as decode

    name = method.name
    if name in section.endpoints:
        yield served(context, method, section, RowLog(asked), progress), str, server_of(section, name)
        return

    with vllm_of(context, method, section) as running:
        if running is not None:

            def by_vllm(prompts: list[str], cap: int, run: int) -> list[decode.Output]:
                return running.generate(prompts, cap, section.temperature, section.top_p, context.run_seed(run))

            render = partial(backbone.prompt_text, tokenizer_for(context, name))
            yield by_vllm, render, vllm_name(context, running)
            return
    model, tokenizer = load_for(context, name)
    prefixes = beginnings(method, context.tasks, model, tokenizer, source_of(context, name))
    steer = method.steer(model, tokenizer)

    def generate(prompts: list[str], cap: int, run: int) -> list[decode.Output]:
        decoding = decode.Decoding(section.temperature, section.top_p, context.run_seed(run), prefixes, steer)
        return decode.generate(model, tokenizer, prompts, cap, decoding, section.batch_size)

    number = str(model.dtype).removeprefix("torch.")
    yield generate, partial(backbone.prompt_text, tokenizer), f"transformers {version('transformers')}, {number}"
