"""Result compression (paper 3.4): which results a trace can do without.

A trace of three steps with the results ``12``, ``16``, ``28`` and the answer ``28``. A model that writes full traces says
how likely the answer stays without each of them; the one that matters least goes, again and again::

    12 16 28      loss 0.01
    12 __ 28      loss 0.01      the cheapest removal: 16, a rise of 0.00
    __ __ 28      loss 0.05      then 12, a rise of 0.04
    __ __ __      loss 2.31      then 28, a rise of 2.26: more than any threshold of interest

The order of the removals does not depend on the threshold, which says only where to stop. So one pass records order and
losses, and serves every threshold up to the one at which it stopped itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from cirf.errors import CirfError
from cirf.records import Record

if TYPE_CHECKING:
    from cirf.compression.scorer import TraceScorer

Selector = Literal["greedy", "joint"]  # what the search minimises: see `objective`
TIE = 1e-4
"""Losses (nats) that differ by less count as equal: of equal removals the earliest step's is taken, and equal is no rise."""


class Losses(NamedTuple):
    """A scoring model's losses of a trace: negative log-likelihoods in nats, the functional tokens being given. ``answer``: mean
    over the answer's tokens. ``written``: sum over the tokens of the trace's results and of the answer; ``nan`` from a scorer
    that does not compute it."""

    answer: float
    written: float


class SearchItem(NamedTuple):
    """A trace to compress: what it is called, and the number of tokens of each step's result (0: it has none)."""

    problem: str
    sample: int
    tokens: tuple[int, ...]


class Query(NamedTuple):
    """A trace to score: the item's place in the list, and the steps whose results are in the trace, ascending."""

    item: int
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Removal(Record):
    """One step of a search: the result of ``step`` with ``tokens`` tokens was removed, which cost ``rise`` and left ``loss``."""

    step: int
    tokens: int
    rise: float
    loss: float


@dataclass(frozen=True, slots=True)
class Path(Record):
    """The removals of one trace in their order; ``tokens`` and ``loss`` are those with all results. The last removal may be one
    that costs more than the limit the search was given: the search stopped there."""

    problem: str
    sample: int
    tokens: int
    loss: float
    removals: tuple[Removal, ...]

    def below(self, threshold: float) -> frozenset[int]:
        """The steps whose results go by the paper's rule: all before the first removal that costs more than ``threshold``."""
        gone: list[int] = []
        for removal in self.removals:
            if removal.rise > threshold + TIE:
                break
            gone.append(removal.step)
        return frozenset(gone)

    def worth(self, price: float) -> frozenset[int]:
        """The steps whose results go where a token costs ``price`` nats: as many removals as make loss and price least."""
        left, best, count = self.tokens, self.loss + price * self.tokens, 0
        for index, removal in enumerate(self.removals, 1):
            left -= removal.tokens
            total = removal.loss + price * left
            if total <= best + TIE:  # of equal ones the shorter trace
                best, count = min(best, total), index
        return frozenset(removal.step for removal in self.removals[:count])

    def tokens_without(self, removed: frozenset[int]) -> int:
        return self.tokens - sum(removal.tokens for removal in self.removals if removal.step in removed)


def price_for(paths: Sequence[Path], tokens: float) -> float:
    """The lowest price at which `Path.worth` leaves at most ``tokens`` tokens of results a trace on average."""

    def left(price: float) -> float:
        return sum(path.tokens_without(path.worth(price)) for path in paths) / max(1, len(paths))

    low, high = 0.0, 1.0
    if left(low) <= tokens:
        return low
    while left(high) > tokens:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if left(middle) <= tokens else (middle, high)
    return high


def objective(selector: Selector, losses: Losses) -> float:
    """The number that the search keeps low. ``greedy``: the answer's mean loss, as the paper has it. ``joint``: the loss of all
    that the model has to write by itself. The answer's loss with the right results standing there says nothing about whether the
    model would get them right: a last result equal to the answer makes every result before it look useless."""
    return losses.answer if selector == "greedy" else losses.written


def rise(selector: Selector, before: Losses, after: Losses, tokens: int) -> float:
    """What a removal costs: ``greedy``: nats of the answer's loss; ``joint``: nats of the whole for each of its ``tokens``."""
    change = objective(selector, after) - objective(selector, before)
    return change if selector == "greedy" else change / tokens


def cheapest(rises: Sequence[float]) -> int:
    """Place of the smallest; of those within ``TIE`` of it the first."""
    low = min(rises)
    if not all(map(math.isfinite, rises)):
        raise CirfError("compression: the scoring model gives no finite loss; look at the training of cirf_full")
    return next(index for index, value in enumerate(rises) if value <= low + TIE)


def search(items: Sequence[SearchItem], scorer: TraceScorer, selector: Selector, limit: float) -> list[Path]:
    """The greedy removals of every item, until one costs more than ``limit`` or no result is left. All items are searched
    together, so that a scorer always gets many traces at once."""
    start = [Query(place, tuple(step for step, count in enumerate(item.tokens) if count)) for place, item in enumerate(items)]
    current = dict(zip(start, scorer.score(start), strict=True)) if start else {}
    scorer.settle(start)
    first = {query.item: losses for query, losses in current.items()}
    removals: list[list[Removal]] = [[] for _ in items]
    while current := {query: losses for query, losses in current.items() if query.kept}:
        candidates = {query: [_without(query, step) for step in query.kept] for query in current}
        queries = [candidate for found in candidates.values() for candidate in found]
        scored = dict(zip(queries, scorer.score(queries), strict=True))
        going: dict[Query, Losses] = {}
        for query, losses in current.items():
            tokens = items[query.item].tokens
            removals_of = zip(query.kept, candidates[query], strict=True)
            rises = [rise(selector, losses, scored[candidate], tokens[step]) for step, candidate in removals_of]
            place = cheapest(rises)
            chosen = candidates[query][place]
            cost, loss = round(rises[place], 6), round(objective(selector, scored[chosen]), 6)
            step = query.kept[place]
            removals[query.item].append(Removal(step, tokens[step], cost, loss))
            if cost <= limit + TIE:
                going[chosen] = scored[chosen]
        scorer.settle(list(going))
        current = going
    return [
        Path(item.problem, item.sample, sum(item.tokens), round(objective(selector, first[place]), 6), tuple(removals[place]))
        for place, item in enumerate(items)
    ]


def _without(query: Query, step: int) -> Query:
    return Query(query.item, tuple(other for other in query.kept if other != step))


def compress(results: Sequence[str], removed: frozenset[int]) -> tuple[str, ...]:
    """The results of a trace without those of the ``removed`` steps, which become empty."""
    return tuple("" if step in removed else result for step, result in enumerate(results))
