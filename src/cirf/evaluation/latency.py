"""Latency: one question at a time, from the prompt's text to the last token, apart from the accuracy run.

Methods take turns at the same piece of work, so that drift of the machine affects all equally. Three methods, two of one
checkpoint, on four pieces, with all models in memory, and in two rounds if they do not fit::

    a: cot direct full | b: direct full cot | c: full cot direct | d: direct cot full
    [cot direct] a b | [full] a b | [full] c d | [cot direct] c d

Every timed turn is a row in a log as soon as it is over, so that a measurement can be resumed::

    {"facts": {"engine": "transformers 5.23.0", ...}}                 the first line: the setup of these times
    {"load": {"together": true, "models": 3, ...}}                    an attempt begins
    {"method": "cot", "task": "svamp", "id": "svamp/test/3", "tokens": 131, "seconds": 2.41, ...}

All of it depends on the clock, so it goes only into a file named ``timings.json``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from cirf.errors import CirfError
from cirf.evaluation.harness import hide
from cirf.progress import Progress
from cirf.recipe.schema import Evaluate
from cirf.records import Problem
from cirf.statistics import mean, mean_interval
from cirf.store.files import RowLog

if TYPE_CHECKING:
    from cirf.methods.base import Method
    from cirf.stages.timing import LoadedModels
    from cirf.tasks.task import Task

Row = dict[str, Any]
Piece = tuple[Any, ...]
"""The piece of work of a turn, by its values in the rows, such as task and id."""

ROUNDS = 4
"""How often every model is loaded if not all fit into memory."""


@dataclass(frozen=True)
class Block:
    """Pieces of work done with some methods' models in memory; ``turns`` are in order, the methods of a piece together."""

    methods: tuple[str, ...]
    turns: tuple[tuple[Piece, str], ...]


def blocks(groups: Sequence[Sequence[str]], pieces: Sequence[Piece], seed: int, together: bool) -> list[Block]:
    """Every piece with every method, once.

    ``groups`` are the methods that share a checkpoint. With ``together`` there is one block; else the pieces are cut into
    `ROUNDS` of similar size, and each round goes through the groups, beginning with another one each time.
    """
    methods = tuple(name for group in groups for name in group)
    orders = list(zip(pieces, _orders(methods, len(pieces), seed), strict=True))
    if together or len(groups) == 1:
        return [Block(methods, tuple((piece, name) for piece, order in orders for name in order))] if orders else []
    made = []
    rounds = min(ROUNDS, len(orders))
    for turn in range(rounds):
        part = orders[turn * len(orders) // rounds : (turn + 1) * len(orders) // rounds]
        for index in range(len(groups)):
            group = tuple(groups[(turn + index) % len(groups)])
            made.append(Block(group, tuple((piece, name) for piece, order in part for name in order if name in group)))
    return made


def _orders(methods: Sequence[str], count: int, seed: int) -> Iterator[tuple[str, ...]]:
    """An order of the methods a piece: a shuffled one rotated from piece to piece, then another shuffled one.

    So over as many pieces as methods each method is at each place once, and none always follows the same one.
    """
    draw = Random(f"turns {seed}")
    for piece in range(count):
        turned = piece % len(methods)
        if turned == 0:
            base = draw.sample(sorted(methods), len(methods))
        yield (*base[turned:], *base[:turned])


def _take_turns(
    engine: LoadedModels,
    plan: Sequence[Block],
    warmups: Sequence[Piece],
    answer: Callable[[str, Piece], Row],
    kept: _Log,
    progress: Progress,
) -> None:
    """Every method on every piece of the plan; those of ``warmups`` are answered whenever models were loaded, uncounted. Pieces
    whose rows are ``kept`` are not measured again. ``CirfError`` where a turn took no time."""
    total = sum(len(block.turns) for block in plan)
    known = sum((name, piece) in kept.rows for block in plan for piece, name in block.turns)
    if known < total:
        kept.add({"load": engine.loading})
    with progress.task("latency", total, "answers", known) as advance:
        for block in plan:
            left = [(piece, name) for piece, name in block.turns if (name, piece) not in kept.rows]
            if not left:
                continue
            engine.load(block.methods)
            waiting = [name for name in block.methods if any(name == other for _, other in left)]
            for piece in warmups:
                for name in waiting:
                    answer(name, piece)
            for piece, name in left:
                row = answer(name, piece)
                if row["seconds"] <= 0:
                    raise CirfError(f"{name}, {', '.join(map(str, piece))}: the engine reports {row['seconds']} s for an answer")
                kept.add({"method": name, **dict(zip(kept.names, piece, strict=True)), **row})
                advance(1)


class _Log:
    """The rows so far, in memory and where they survive a kill. Rows that another engine or machine left are thrown away:
    a mean over two machines is a time of neither."""

    def __init__(self, path: Path | None, facts: Mapping[str, Any], names: Sequence[str]) -> None:
        self.names = names
        self.rows: dict[tuple[str, Piece], Row] = {}
        self.loads: list[Row] = []
        self.file = None if path is None else RowLog(path)
        if self.file is None or path is None:
            return
        before = self.file.rows()
        if before[:1] != [{"facts": dict(facts)}]:
            path.unlink(missing_ok=True)
            self.file = RowLog(path)
            self.file.append({"facts": dict(facts)})
        self.file.read(self._note)

    def add(self, row: Row) -> None:
        if self.file is not None:
            self.file.append(row)
        self._note(row)

    def _note(self, row: Row) -> None:
        if "facts" in row:
            return
        if "load" in row:
            self.loads.append(row["load"])
        else:
            float(row["seconds"])
            self.rows[row["method"], tuple(row[name] for name in self.names)] = row


def measure(
    methods: Mapping[str, Method],
    tasks: Mapping[str, Task],
    test: Mapping[str, Sequence[Problem]],
    engine: LoadedModels,
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

    Returns the engine's facts and ``{"batch_size": 1, "warmup", "loads", "methods": {name: {"overall": {...}, "tasks": {task:
    {...}}, "weights_bytes", "growth_bytes", "peak_bytes"}}, "rows"}``. ``overall`` and ``tasks`` are as `summarise` has them,
    with ``runs_s`` where answers are sampled in several ``section.latency_runs``, each a separate draw; ``loads``: how the models
    were held in each attempt of the measurement; ``peak_bytes`` are the weights and the most that an answer took on top, null if
    the device does not report it. ``CirfError``: the engine reports no time for an answer.
    """
    problems, pieces, warmups = _line_up(test, section, seed)
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

    kept = _Log(None if work is None else work / "scratch" / "latency.jsonl", engine.facts(), names)
    plan = blocks(engine.groups, pieces, seed, engine.together)
    _take_turns(engine, plan, warmups, answer, kept, progress)
    rows = [kept.rows[name, piece] for block in plan for piece, name in block.turns]
    return {
        **engine.facts(),
        "batch_size": 1,
        "warmup": section.latency_warmup,
        "loads": kept.loads,
        "methods": {name: _method([row for row in rows if row["method"] == name]) for name in methods},
        "rows": [{key: value for key, value in row.items() if not key.endswith("_bytes")} for row in rows],
    }


def _line_up(
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
    (`statistics.mean_interval`, items drawn within their task; null for one item), ``p50_s`` and ``p95_s``
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
    timed = [row for row in rows if row["first_token_seconds"] is not None]
    rest = [row["seconds"] - row["first_token_seconds"] for row in timed]
    after = sum(row["tokens"] - 1 for row in timed)
    return {
        "n": sum(map(len, by_task.values())),
        "mean_s": mean(seconds),
        **({"runs_s": [mean(runs[run]) for run in sorted(runs)]} if runs else {}),
        "mean_s_interval": None if interval is None else list(interval),
        "p50_s": float(np.percentile(seconds, 50)),
        "p95_s": float(np.percentile(seconds, 95)),
        "tokens": mean([row["tokens"] for row in rows]),
        "first_token_s": mean([row["first_token_seconds"] for row in timed]) if timed else None,
        "decode_s": mean(rest) if timed else None,
        "decode_tokens_per_s": after / sum(rest) if after and sum(rest) > 0 else None,
    }
