"""Throughput: how many questions a second a method answers when several are decoded at once.

Fixed batches, as in the accuracy run: a batch lasts as long as its longest answer. Methods take turns batch by batch
(`schedule`). All that this returns was touched by a clock, so it goes into a file named ``timings.json`` and nowhere else.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.evaluation.harness import hide
from cirf.evaluation.latency import draw
from cirf.evaluation.turns import Engine, Piece, Row, take_turns
from cirf.progress import Progress
from cirf.recipe import Evaluate
from cirf.records import Problem

if TYPE_CHECKING:
    from cirf.methods.method import Method
    from cirf.tasks.task import Task


def measure(
    methods: Mapping[str, Method],
    tasks: Mapping[str, Task],
    test: Mapping[str, Sequence[Problem]],
    engine: Engine,
    section: Evaluate,
    seed: int,
    progress: Progress,
    work: Path | None = None,
) -> dict[str, Any]:
    """Time methods at the batch sizes of ``section.throughput_batches``.

    ``section.throughput_items`` problems a task (or all, if fewer) are drawn by ``seed``, the same for every method and batch
    size, and batched with questions of like length of the same task; a task's last batch may be smaller. Batches of all
    sizes and tasks come in an order drawn by ``seed``. After every loading of models each method answers one batch of each
    size that is not counted. With ``work`` a killed measurement goes on with what is missing, as in `latency.measure`.

    Returns the engine's facts and ``{"questions", "loads", "discarded", "methods": {name: {"8": {...}, "32": {...}}}, "rows"}``,
    as `summarise` has them, a row a batch.

    Raises:
        CirfError: the engine reports no time for a batch.
    """
    batches = {
        (size, name, place): batch
        for size in dict.fromkeys(section.throughput_batches)
        for name, problems in test.items()
        for place, batch in enumerate(_batches(draw(name, problems, section.throughput_items, seed), size))
    }
    pieces = list(batches)
    random.Random(f"throughput {seed}").shuffle(pieces)

    def answer(name: str, piece: Piece) -> Row:
        method, task, batch = methods[name], tasks[piece[1]], batches[piece[0], piece[1], piece[2]]
        prompts = [engine.render(name, method.prompt(hide(problem), task)) for problem in batch]
        tokens, seconds = engine.many(name, prompts, method.cap(task, section))
        return {"problems": len(batch), "tokens": tokens, "seconds": seconds}

    warmups = list({piece[0]: piece for piece in reversed(pieces)}.values())
    log = None if work is None else work / "scratch" / "throughput.jsonl"
    names = ("batch_size", "task", "batch")
    rows, loads, discarded = take_turns(engine, names, pieces, answer, seed, warmups, log, progress, "throughput")
    sizes = [str(size) for size in sorted(dict.fromkeys(section.throughput_batches))] if pieces else []
    by_size = {(name, size): list[Row]() for name in methods for size in sizes}
    for row in rows:
        by_size[row["method"], str(row["batch_size"])].append(row)
    return {
        **engine.facts(),
        "questions": sum(row["problems"] for row in by_size[next(iter(methods)), sizes[0]]) if sizes else 0,
        "loads": loads,
        "discarded": discarded,
        "methods": {name: {size: summarise(by_size[name, size]) for size in sizes} for name in methods},
        "rows": rows,
    }


def _batches(problems: Sequence[Problem], size: int) -> list[list[Problem]]:
    """Batches of questions of like length."""
    ordered = sorted(problems, key=lambda problem: (len(problem.question), problem.id))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``problems`` answered in ``seconds``, and of both ``problems_per_s`` and generated ``tokens_per_s``."""
    problems, tokens = sum(row["problems"] for row in rows), sum(row["tokens"] for row in rows)
    seconds = sum(row["seconds"] for row in rows)
    return {"problems": problems, "seconds": seconds, "problems_per_s": problems / seconds, "tokens_per_s": tokens / seconds}
