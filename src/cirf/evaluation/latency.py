"""Latency: one question at a time, from the prompt's text to the last token, apart from the accuracy run.

All that this returns was touched by a clock, so it goes into files named ``timings.json`` and nowhere else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cirf.errors import CirfError
from cirf.evaluation.harness import hide
from cirf.evaluation.statistics import mean, percentile
from cirf.progress import Progress
from cirf.recipe import Evaluate
from cirf.records import Problem
from cirf.store import RowLog

if TYPE_CHECKING:
    from cirf.methods.method import Method
    from cirf.tasks.task import Task


class TimedOutput(Protocol):
    """One answer: generated tokens with the end token, seconds end to end, and until the first token (if known)."""

    @property
    def tokens(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def first_token_seconds(self) -> float | None: ...


def measure(
    method: Method,
    tasks: Mapping[str, Task],
    test: Mapping[str, Sequence[Problem]],
    generate_one: Callable[[str, int], TimedOutput],
    render_prompt: Callable[[str], str],
    section: Evaluate,
    seed: int,
    progress: Progress,
    *,
    engine: str,
    device: str,
    work: Path | None = None,
) -> dict[str, Any]:
    """Time a method at batch 1.

    ``section.latency_items`` problems a task (or all, if fewer) are drawn by ``seed``, the same for every method;
    ``section.latency_warmup`` problems of the first task run before and count nowhere. ``engine`` and ``device`` name
    what generated. With ``work`` each timed row is kept in ``work/scratch`` at once, and a killed measurement goes on
    behind the last one. Returns ``{"engine", "device", "batch_size", "warmup", "overall": {...}, "tasks": {name: {...}},
    "rows": [...]}`` with ``n, mean_s, p50_s, p95_s, tokens, first_token_s`` (seconds; percentiles as in
    `statistics.percentile`; ``first_token_s`` null where unknown). Without items to time ``overall`` is ``{"n": 0}``.
    """
    drawn = {name: draw(name, problems, section.latency_items, seed) for name, problems in test.items() if problems}
    drawn = {name: items for name, items in drawn.items() if items}

    def ask(name: str, problem: Problem) -> TimedOutput:
        prompt = render_prompt(method.prompt(hide(problem), tasks[name]))
        return generate_one(prompt, method.cap(tasks[name], section))

    log = None if work is None else RowLog(work / "scratch" / "latency.jsonl")
    rows = [] if log is None else log.rows()
    known = {(row["task"], row["id"]) for row in rows}
    missing = {name: [problem for problem in items if (name, problem.id) not in known] for name, items in drawn.items()}
    total = sum(len(items) for items in drawn.values())
    with progress.task(f"{method.name}: latency", total, "problems", len(rows)) as advance:
        for name, items in list(drawn.items())[:1] if any(missing.values()) else ():
            for turn in range(section.latency_warmup):
                ask(name, items[-1 - turn % len(items)])
        for name, items in missing.items():
            for problem in items:
                timed = ask(name, problem)
                if timed.seconds <= 0:
                    raise CirfError(f"{method.name}, {name}, {problem.id}: the engine reports {timed.seconds} s for an answer")
                times = {key: getattr(timed, key) for key in ("tokens", "seconds", "first_token_seconds")}
                rows.append({"task": name, "id": problem.id, **times})
                if log is not None:
                    log.append(rows[-1])
                advance(1)
    return {
        "engine": engine,
        "device": device,
        "batch_size": 1,
        "warmup": section.latency_warmup,
        "overall": summarise(rows),
        "tasks": {name: summarise([row for row in rows if row["task"] == name]) for name in drawn},
        "rows": rows,
    }


def draw(name: str, problems: Sequence[Problem], count: int, seed: int) -> list[Problem]:
    """``count`` problems in an order that depends on the seed, the task's name and the ids alone."""
    ordered = sorted(problems, key=lambda problem: problem.id)
    random.Random(f"latency {seed} {name}").shuffle(ordered)
    return ordered[:count]


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean, p50 and p95 of the seconds, mean tokens and mean seconds to the first token; of nothing, ``{"n": 0}``."""
    if not rows:
        return {"n": 0}
    seconds = [row["seconds"] for row in rows]
    first = [row["first_token_seconds"] for row in rows if row["first_token_seconds"] is not None]
    return {
        "n": len(rows),
        "mean_s": mean(seconds),
        "p50_s": percentile(seconds, 50),
        "p95_s": percentile(seconds, 95),
        "tokens": mean([row["tokens"] for row in rows]),
        "first_token_s": mean(first) if first else None,
    }
