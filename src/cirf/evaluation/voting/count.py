"""Self-consistency: of many sampled answers the one that most of them give, and what it is worth (Wang et al., 2022).

A worked example: the votes 9, 2.0, 2, 2 say 2, with three quarters that agree; 8, (not read), 3, (not read) say 8, the first
of two that one vote each is for, with one quarter.

With ``m`` votes drawn, the accuracy of ``n`` votes is the mean over the ``m // n`` groups of ``n`` that follow each other (what
remains after the last group is not counted). An answer that could not be read is a vote for nothing: it wins no
majority, but it counts in the share that agrees. One that was cut off counts as what is read in it, as in any evaluation.

Votes of one question as they arrive, and when the remaining ones can no longer change the result.

A worked example, eight votes: of five that are in four say 2 and one says 9. The three others could make four 9s, and of equally
many the first given wins: not settled. A fifth vote for 2 settles it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cirf.errors import CirfError
from cirf.evaluation.harness import Row, hide
from cirf.records import Problem
from cirf.stats.tests import compare, corrected, mean, wilson

if TYPE_CHECKING:
    from cirf.tasks.task import Task


def same_answer(task: Task, problem: Problem) -> Callable[[str, str], bool]:
    """Tells whether two answers are one: where the task takes one for the other."""
    return lambda one, other: one == other or task.equal(one, dataclasses.replace(hide(problem), answer=other))


def decide(task: Task, problem: Problem, votes: Sequence[Row]) -> Majority:
    """The majority of some votes on a problem."""
    return majority([vote["parsed"] for vote in votes], same_answer(task, problem))


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """A question with its votes, and the row of the one answer that they are compared with, if there is one."""

    name: str
    task: Task
    problem: Problem
    votes: Sequence[Row]
    alone: Row | None = None


def curve(items: Sequence[Item], counts: Sequence[int], agreement: float | None) -> list[dict[str, Any]]:
    """What each number of votes answers, one row a number.

    ``accuracy`` with its 95 % ``interval`` (Wilson's, over the ``n`` questions); the means of the share of votes that agree
    (``agreement``) and of the ``tokens`` of all votes of an answer; ``unparsed`` is the share of answers where no vote could
    be read, ``truncated`` the share of votes that the cap cut off. Where the items have an answer to compare with,
    ``against`` is the paired comparison with it, corrected for all numbers of votes (Holm). ``fallback`` holds the same
    of what the two answer together: its answer wherever fewer than ``agreement`` of the votes agree, the ``share`` of
    questions where that is so. ``agreement`` ``None``: no fallback.

    Raises:
        CirfError: more votes are requested than were drawn.
        ValueError: no items.
    """
    drawn = min(len(item.votes) for item in items)
    if max(counts) > drawn:
        raise CirfError(f"evaluate.voting.votes: {max(counts)} votes are requested, {drawn} were drawn; run again")
    points, solved = [], {}
    for count in sorted(set(counts)):
        summary = [_Told(item, count, agreement) for item in items]
        point: dict[str, Any] = {"votes": count, **share_of([mean(one.solved) for one in summary])}
        point |= {
            key: mean([mean(getattr(one, key)) for one in summary]) for key in ("agreement", "tokens", "unparsed", "truncated")
        }
        if agreement is not None:
            both = {
                "share": mean([mean(one.falls) for one in summary]),
                "tokens": mean([mean(one.joint_tokens) for one in summary]),
            }
            point["fallback"] = {**share_of([mean(one.joint) for one in summary]), **both}
        points.append(point)
        solved[count] = {f"{one.item.name}/{one.item.problem.id}": mean(one.solved) for one in summary}
    alone = {f"{item.name}/{item.problem.id}": float(item.alone["correct"]) for item in items if item.alone is not None}
    if alone:
        compared = corrected({str(count): compare(values, alone) for count, values in solved.items()})
        for point in points:
            point["against"] = compared[str(point["votes"])].to_dict()
    return points


class _Told:
    """What the groups of ``count`` votes on one question say: a list each, one value a group."""

    def __init__(self, item: Item, count: int, agreement: float | None) -> None:
        self.item = item
        groups = [item.votes[start : start + count] for start in range(0, len(item.votes) - count + 1, count)]
        summary = [decide(item.task, item.problem, group) for group in groups]
        self.solved = [t.place is not None and bool(g[t.place]["correct"]) for t, g in zip(summary, groups, strict=True)]
        self.agreement = [t.share for t in summary]
        self.unparsed = [t.place is None for t in summary]
        self.truncated = [mean([vote["truncated"] for vote in group]) for group in groups]
        self.tokens = [sum(vote["tokens"] for vote in group) for group in groups]
        self.falls = [agreement is not None and t.falls(agreement) for t in summary]
        other: Mapping[str, Any] = item.alone or {"correct": False, "tokens": 0}
        self.joint = [other["correct"] if f else s for f, s in zip(self.falls, self.solved, strict=True)]
        self.joint_tokens = [s + (other["tokens"] if f else 0) for f, s in zip(self.falls, self.tokens, strict=True)]


def answered_alone(rows: Sequence[Row]) -> dict[str, Any]:
    """The numbers of the one answer that votes are compared with, as in `curve`."""
    found = share_of([row["correct"] for row in rows])
    return found | {key: mean([row[key] for row in rows]) for key in ("unparsed", "truncated", "tokens")}


def share_of(values: Sequence[float]) -> dict[str, Any]:
    """The mean of values between 0 and 1 as an accuracy, with its 95 % interval (Wilson's, over questions)."""
    share, n = mean(values), len(values)
    return {"accuracy": share, "n": n, "interval": list(wilson(min(share * n, n), n))}


class Majority(NamedTuple):
    """The place of the first vote for the answer that most votes give (``None``: none could be read), and its share."""

    place: int | None
    share: float

    def falls(self, agreement: float) -> bool:
        """Whether fewer than ``agreement`` of the votes agree, so that the fallback answers; always where nothing was read."""
        return self.place is None or self.share < agreement


class Election:
    """``count`` votes, given in any order by their places. The winner is the answer that most give, of equally many the
    one given first by place.

    ``agreement``: the threshold of a fallback; then it must also be settled whether this share of all votes agrees.
    ``None``: there is no fallback.
    """

    def __init__(self, count: int, same: Callable[[str, str], bool], agreement: float | None = None) -> None:
        """No vote is given yet. ``same``: whether two answers are one; if they are one with a third, they have to be."""
        self._count, self._same, self._agreement = count, same, agreement
        self._given: set[int] = set()
        self._groups: list[tuple[str, list[int]]] = []  # an answer, and the places of the votes for it

    def __contains__(self, place: object) -> bool:
        """Whether the vote of that place is given."""
        return place in self._given

    def give(self, place: int, answer: str | None) -> None:
        """A vote; ``None`` could not be read and is one for nothing."""
        home = next((places for first, places in self._groups if answer is not None and self._same(answer, first)), None)
        self._given.add(place)
        if answer is None:
            return
        if home is None:
            self._groups.append((answer, [place]))
        else:
            home.append(place)

    @property
    def settled(self) -> bool:
        """Whether the winner is the same whatever the votes not given say, and so is whether the fallback answers."""
        left = self._count - len(self._given)
        first, second, *_ = [*sorted((len(places) for _, places in self._groups), reverse=True), 0, 0]
        if left and self._agreement is not None and first / self._count < self._agreement <= (first + left) / self._count:
            return False
        return not left or first > second + left

    @property
    def groups(self) -> list[list[int]]:
        """The places of votes for one answer, the most votes first, of equally many the first given."""
        return sorted((sorted(places) for _, places in self._groups), key=lambda places: (-len(places), places[0]))

    def majority(self) -> Majority:
        """The majority of the votes given, and of all if it is `settled`; the agreeing share is a lower bound of all."""
        if not self._groups:
            return Majority(None, 0.0)
        places = self.groups[0]
        return Majority(places[0], len(places) / self._count)


def majority(answers: Sequence[str | None], same: Callable[[str, str], bool]) -> Majority:
    """Of all these votes, in their order; ``ValueError``: no votes."""
    if not answers:
        raise ValueError("a majority of no votes")
    election = Election(len(answers), same)
    for place, answer in enumerate(answers):
        election.give(place, answer)
    return election.majority()
