"""Latency: one question at a time, from the prompt's text to the last token, apart from the accuracy run.

All methods are measured together and take turns question by question (`schedule`). Everything returned depends on the clock, so
it goes only into a file named ``timings.json``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.evaluation.harness import hide
from cirf.evaluation.timing.turns import Engine, Piece, Pieces, Row, take_turns
from cirf.progress import Progress
from cirf.recipe.schema import Evaluate
from cirf.records import Problem
from cirf.stats.bootstrap import mean_interval
from cirf.stats.tests import mean

if TYPE_CHECKING:
    from cirf.methods.base import Method
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
    """Time methods at batch 1.

    ``section.latency_questions`` problems a task (or all, if fewer) are drawn and put in order by ``seed``, the same for every
    method; each is answered by one method after the other. The last ``section.latency_warmup`` of them are answered first,
    after every loading of models, and not counted. With ``work`` a timed answer is kept in ``work/scratch`` at once, and a killed
    measurement resumes with the missing ones, unless it was begun on another engine or machine.

    Returns the engine's facts and ``{"batch_size": 1, "warmup", "loads", "discarded", "methods": {name: {"overall": {...},
    "tasks": {task: {...}}, "weights_bytes", "growth_bytes", "peak_bytes"}}, "rows"}``. ``overall`` and ``tasks`` are as
    `summarise` has them, with ``runs_s`` where answers are sampled in several ``section.latency_runs``, each a separate draw;
    ``loads``: how the models were held in each attempt of the measurement, ``discarded`` how many
    answers of another engine or machine were discarded; ``peak_bytes`` are the weights and the most that an answer took
    on top, null if the device does not report it.

    Raises:
        CirfError: the engine reports no time for an answer.
    """
    problems, pieces, warmups = line_up(test, section, seed)
    names: tuple[str, ...] = ("task", "id")
    if section.temperature > 0 and section.latency_runs > 1:
        names = (*names, "run")
        pieces = [(*piece, run) for piece in pieces for run in range(section.latency_runs)]
        warmups = [(*piece, 0) for piece in warmups]

    def answer(name: str, piece: Piece) -> Row:
        task = tasks[piece[0]]
        prompt = engine.render(name, methods[name].prompt(hide(problems[piece[0], piece[1]]), task))
        timed = engine.one(name, prompt, methods[name].budget(task, section), *piece[2:])
        times = {key: getattr(timed, key) for key in ("tokens", "seconds", "first_token_seconds")}
        return times | engine.memory(name)

    log = None if work is None else work / "scratch" / "latency.jsonl"
    rows, loads, discarded = take_turns(engine, Pieces(names, pieces, warmups), answer, seed, log, progress, "latency")
    return {
        **engine.facts(),
        "batch_size": 1,
        "warmup": section.latency_warmup,
        "loads": loads,
        "discarded": discarded,
        "methods": {name: _method([row for row in rows if row["method"] == name]) for name in methods},
        "rows": [{key: value for key, value in row.items() if not key.endswith("_bytes")} for row in rows],
    }


def line_up(
    test: Mapping[str, Sequence[Problem]], section: Evaluate, seed: int
) -> tuple[dict[Piece, Problem], list[Piece], list[Piece]]:
    """The problems to time by task and id, these in the order of the measurement, and those that warm it up."""
    drawn = {name: draw(name, problems, section.latency_questions, seed) for name, problems in test.items()}
    problems: dict[Piece, Problem] = {(name, problem.id): problem for name, items in drawn.items() for problem in items}
    pieces = list(problems)
    random.Random(f"latency {seed}").shuffle(pieces)
    return problems, pieces, [pieces[-1 - turn % len(pieces)] for turn in range(section.latency_warmup)] if pieces else []


def draw(name: str, problems: Sequence[Problem], count: int, seed: int) -> list[Problem]:
    """``count`` problems in an order that depends on the seed, the task's name and the ids alone."""
    ordered = sorted(problems, key=lambda problem: problem.id)
    random.Random(f"latency {seed} {name}").shuffle(ordered)
    return ordered[:count]


def _method(rows: Sequence[Row]) -> dict[str, Any]:
    tasks = sorted({row["task"] for row in rows})
    weights = [row["weights_bytes"] for row in rows if row["weights_bytes"] is not None]
    growth = [row["growth_bytes"] for row in rows if row["growth_bytes"] is not None]
    return {
        "overall": summarise(rows),
        "tasks": {name: summarise([row for row in rows if row["task"] == name]) for name in tasks},
        "weights_bytes": max(weights, default=None),
        "growth_bytes": max(growth, default=None),
        "peak_bytes": max(weights) + max(growth) if weights and growth else None,
    }


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The times of some answers; of nothing, ``{"n": 0}``.

    ``n`` counts questions; ``runs_s`` is the mean of every run, where rows are of several. ``mean_s`` with its 95 % interval
    (`bootstrap.mean_interval`, items drawn within their task; null for one item), ``p50_s`` and ``p95_s``
    (numpy's, linear), mean ``tokens``. ``first_token_s`` is the mean time to the first token (tokenising, prefill, one
    step), ``decode_s`` of the rest, ``decode_tokens_per_s`` the tokens after the first by all seconds of the rest: null where
    the engine does not report first tokens, the last also where there was no rest.
    """
    import numpy as np

    if not rows:
        return {"n": 0}
    seconds = [row["seconds"] for row in rows]
    by_task: dict[str, dict[str, list[float]]] = {}
    runs: dict[int, list[float]] = {}
    for row in rows:
        by_task.setdefault(row["task"], {}).setdefault(row["id"], []).append(row["seconds"])
        if "run" in row:
            runs.setdefault(row["run"], []).append(row["seconds"])
    interval = mean_interval([[mean(times) for times in items.values()] for items in by_task.values()])
    summary = [row for row in rows if row["first_token_seconds"] is not None]
    rest = [row["seconds"] - row["first_token_seconds"] for row in summary]
    after = sum(row["tokens"] - 1 for row in summary)
    return {
        "n": sum(map(len, by_task.values())),
        "mean_s": mean(seconds),
        **({"runs_s": [mean(runs[run]) for run in sorted(runs)]} if runs else {}),
        "mean_s_interval": None if interval is None else list(interval),
        "p50_s": float(np.percentile(seconds, 50)),
        "p95_s": float(np.percentile(seconds, 95)),
        "tokens": mean([row["tokens"] for row in rows]),
        "first_token_s": mean([row["first_token_seconds"] for row in summary]) if summary else None,
        "decode_s": mean(rest) if summary else None,
        "decode_tokens_per_s": after / sum(rest) if after and sum(rest) > 0 else None,
    }
