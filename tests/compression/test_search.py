"""The search for removals, on losses that a table gives."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from benchmarks.pruning import plain
from hypothesis import given
from hypothesis import strategies as st

from cirf.compression.search import TIE, Losses, Path, Query, Removal, SearchItem, cheapest, compress, price_for, search
from cirf.errors import CirfError


class Table:
    """Losses drawn once for every set of kept steps of every item."""

    def __init__(self, items: Sequence[SearchItem], seed: int, grid: float = 0.01) -> None:
        chance = random.Random(seed)
        self.losses: dict[Query, Losses] = {}
        for place, item in enumerate(items):
            steps = [step for step, count in enumerate(item.tokens) if count]
            for size in range(len(steps) + 1):
                for kept in itertools.combinations(steps, size):
                    drawn = [round(chance.random() * 0.5 / grid) * grid for _ in range(2)]  # equal losses are common
                    self.losses[Query(place, kept)] = Losses(*drawn)
        self.asked: list[Query] = []
        self.settled: list[Query] = []

    def score(self, queries: Sequence[Query]) -> list[Losses]:
        self.asked += queries
        return [self.losses[query] for query in queries]

    def settle(self, chosen: Sequence[Query]) -> None:
        self.settled = list(chosen)


ITEMS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple), max_size=4).map(
    lambda rows: [SearchItem(f"p{place}", 0, tokens) for place, tokens in enumerate(rows)]
)


@given(ITEMS, st.integers(0, 10**6), st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.5]), min_size=1, max_size=3))
def test_one_pass_serves_every_threshold_as_the_plain_algorithm_would(
    items: list[SearchItem], seed: int, thresholds: list[float]
) -> None:
    table = Table(items, seed)
    paths = search(items, table, "greedy", max(thresholds))
    for place, (item, path) in enumerate(zip(items, paths, strict=True)):
        full = tuple(step for step, count in enumerate(item.tokens) if count)
        for threshold in thresholds:
            kept = plain(lambda steps, place=place: table.losses[Query(place, steps)].answer, full, threshold)  # type: ignore[misc]
            assert set(full) - path.below(threshold) == set(kept)


@given(ITEMS, st.integers(0, 10**6))
def test_a_search_to_the_end_removes_every_result_once_and_asks_for_nothing_twice(items: list[SearchItem], seed: int) -> None:
    table = Table(items, seed)
    paths = search(items, table, "joint", float("inf"))
    for item, path in zip(items, paths, strict=True):
        steps = [step for step, count in enumerate(item.tokens) if count]
        assert sorted(removal.step for removal in path.removals) == steps
        assert path.tokens == sum(item.tokens) == sum(removal.tokens for removal in path.removals)
        assert path.tokens_without(frozenset(steps)) == 0
    assert len(table.asked) == len(set(table.asked))


@given(ITEMS, st.integers(0, 10**6), st.floats(0, 1))
def test_what_goes_at_a_price_is_the_best_cut_of_the_path(items: list[SearchItem], seed: int, price: float) -> None:
    for path in search(items, Table(items, seed), "joint", float("inf")):
        removed = path.worth(price)
        totals = [path.loss + price * path.tokens]
        left = path.tokens
        for removal in path.removals:
            left -= removal.tokens
            totals.append(removal.loss + price * left)
        assert totals[len(removed)] <= min(totals) + TIE
        assert removed == {removal.step for removal in path.removals[: len(removed)]}


@given(ITEMS, st.integers(0, 10**6), st.floats(0, 6))
def test_the_price_for_a_length_is_the_lowest_that_reaches_it(items: list[SearchItem], seed: int, tokens: float) -> None:
    paths = search(items, Table(items, seed), "joint", float("inf"))

    def left(price: float) -> float:
        return sum(path.tokens_without(path.worth(price)) for path in paths) / max(1, len(paths))

    price = price_for(paths, tokens)
    assert left(price) <= tokens
    if price > 0:
        assert left(price * 0.99) > tokens or left(price * 0.99) == left(price)


def test_of_equal_removals_the_earliest_step_goes() -> None:
    assert cheapest([0.3, 0.1 + TIE / 2, 0.1]) == 1
    assert cheapest([0.3, 0.1 + TIE * 3, 0.1]) == 2


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_scoring_model_without_finite_losses_ends_the_search(broken: float) -> None:
    for rises in ([broken], [0.1, broken], [broken, 0.1]):
        with pytest.raises(CirfError, match="no finite loss"):
            cheapest(rises)


def test_a_search_stops_behind_the_first_removal_over_the_limit_and_reports_it() -> None:
    item = SearchItem("p", 0, (1, 1))
    table = Table([item], 0)
    table.losses = {
        Query(0, (0, 1)): Losses(0.1, 0.0),
        Query(0, (1,)): Losses(0.15, 0.0),
        Query(0, (0,)): Losses(0.9, 0.0),
        Query(0, ()): Losses(2.0, 0.0),
    }
    (path,) = search([item], table, "greedy", 0.1)
    assert path == Path("p", 0, 2, 0.1, (Removal(0, 1, 0.05, 0.15), Removal(1, 1, 1.85, 2.0)))
    assert path.below(0.04) == frozenset() and path.below(0.1) == {0} and path.below(2.0) == {0, 1}
    assert table.settled == []


@pytest.mark.parametrize("gamma", [0.0, 0.1])
def test_a_removal_that_lowers_the_loss_always_goes(gamma: float) -> None:
    path = Path("p", 0, 3, 1.0, (Removal(2, 3, -0.5, 0.5),))
    assert path.below(gamma) == {2}


def test_a_path_comes_back_from_its_row() -> None:
    path = Path("p", 1, 4, 1.25, (Removal(0, 2, 0.25, 1.5), Removal(2, 2, 0.5, 2.0)))
    import json

    assert Path.from_dict(json.loads(path.to_json())) == path


def test_results_that_go_become_empty() -> None:
    assert compress(("a", "", "b"), frozenset({2})) == ("a", "", "")
