"""Seconds of answers by majority: every number of votes, and the one answer they are compared with, on the same questions.

They take turns as methods do (`schedule`): on each question each number of votes draws once, in an order that turns round, so
that a machine that slows down hits all alike. From the prompt's text to the majority, one question at a time: to the vote after
which those that are still being written could change nothing (`cirf.evaluation.voting.count`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cirf.evaluation.harness import Output, Questions, Row, hide, read
from cirf.evaluation.timing.latency import line_up, summarise
from cirf.evaluation.timing.turns import Engine, Piece, Pieces, take_turns
from cirf.evaluation.voting.count import Election, Majority, same_answer
from cirf.progress import Progress
from cirf.recipe.schema import Evaluate
from cirf.stats.tests import mean

if TYPE_CHECKING:
    from cirf.methods.base import Method

ALONE = "0"
"""The turn of the one answer that votes are compared with; those of votes are called by their number."""


class VotingEngine(Engine, Protocol):
    """An engine that draws several answers at once."""

    def sample(
        self, method: str, prompt: str, cap: int, count: int, enough: Callable[[Mapping[int, Output]], bool]
    ) -> tuple[Mapping[int, Output], int]:
        """Of ``count`` sampled answers, decoded in one batch, those finished when ``enough`` are; and all tokens written."""
        ...


class Contest(NamedTuple):
    """Whose answers are timed: those of ``voter`` by each of ``counts`` votes, and one of ``other``."""

    voter: Method
    other: Method | None
    counts: Sequence[int]


def measure(
    contest: Contest,
    questions: Questions,
    engine: VotingEngine,
    section: Evaluate,
    seed: int,
    progress: Progress,
    work: Path | None = None,
    now: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Time answers by votes, and those that they are compared with.

    ``engine`` calls its turns by the number of votes, that of ``other`` `ALONE`. Questions are as in `latency.measure`.

    Returns the engine's facts and ``{"warmup", "loads", "discarded", "n", "agreement", "votes": [{"votes": 8, ...}, ...],
    "rows"}``. A point is as `latency.summarise` has it, ``votes`` 0 being ``other``; a row has ``share``, the votes that
    agreed, 0 where none could be read (`with_fallback`); ``agreement`` is the one up to which they were drawn, None without a
    fallback.

    Raises:
        CirfError: an answer took no time.
    """
    (voter, other, counts), voting = contest, section.voting
    problems, pieces, warmups = line_up(questions.test, section, seed)

    def answer(turn: str, piece: Piece) -> Row:
        task, problem = questions.tasks[piece[0]], problems[piece[0], piece[1]]
        if turn == ALONE and other is not None:
            timed = engine.one(turn, engine.render(turn, other.prompt(hide(problem), task)), other.budget(task, section))
            return {key: getattr(timed, key) for key in ("tokens", "seconds", "first_token_seconds")}
        started = now()
        prompt = engine.render(turn, voter.prompt(hide(problem), task))
        election = Election(int(turn), same_answer(task, problem), voting.agreement if voting.fallback else None)

        def enough(finished: Mapping[int, Output]) -> bool:
            for place, output in finished.items():
                if place not in election:
                    election.give(place, task.parse(read(voter, output)[1], hide(problem)))
            return election.settled

        _, tokens = engine.sample(turn, prompt, voter.budget(task, section), int(turn), enough)
        majority = election.majority()
        seconds = now() - started
        return {"tokens": tokens, "seconds": seconds, "first_token_seconds": None, "share": majority.share}

    log, turns = (work / "scratch" / "voting.jsonl" if work else None), Pieces(("task", "id"), pieces, warmups)
    taken = take_turns(engine, turns, answer, seed, log, progress, "latency of votes")
    rows = [{"votes": int(row["method"]), **{key: row[key] for key in row if key != "method"}} for row in taken.rows]
    order = sorted(set(counts)) + ([] if other is None else [0])
    points = [{"votes": count, **summarise([row for row in rows if row["votes"] == count])} for count in order]
    return {
        **engine.facts(),
        "warmup": section.latency_warmup,
        "loads": taken.loads,
        "discarded": taken.discarded,
        "n": len(pieces),
        "agreement": voting.agreement if voting.fallback else None,
        "votes": points,
        "rows": rows,
    }


def with_fallback(rows: Sequence[Mapping[str, Any]], agreement: float) -> dict[int, float]:
    """Mean seconds by number of votes where the other method answers too wherever fewer than ``agreement`` of them agree.

    ``rows`` are those of `measure` at that agreement; empty where the other method was not timed.
    """
    alone = {(row["task"], row["id"]): row["seconds"] for row in rows if row["votes"] == 0}
    seconds: dict[int, list[float]] = {}
    for row in rows if alone else ():
        if row["votes"]:
            falls = Majority(0 if row["share"] else None, row["share"]).falls(agreement)
            seconds.setdefault(row["votes"], []).append(row["seconds"] + (alone[row["task"], row["id"]] if falls else 0.0))
    return {count: mean(values) for count, values in sorted(seconds.items())}
