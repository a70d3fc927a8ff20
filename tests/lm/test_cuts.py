"""Rows in passes: each once, no cheaper way to cut them, and what parts them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.lm.training.batches import cut, pass_price


def price_of(passes: list[list[int]], lengths: list[int], price: int) -> int:
    return sum(len(rows) * max(lengths[row] for row in rows) + price for rows in passes)


def ways(rows: list[int]) -> list[list[list[int]]]:
    """All ways to cut rows, in their order, into passes."""
    if not rows:
        return [[]]
    return [[rows[:end], *rest] for end in range(1, len(rows) + 1) for rest in ways(rows[end:])]


@given(st.lists(st.integers(1, 60), max_size=8), st.integers(0, 80))
def test_each_row_is_in_one_pass_and_no_other_cut_costs_less(lengths: list[int], price: int) -> None:
    passes = cut(lengths, price)
    assert sorted(row for rows in passes for row in rows) == list(range(len(lengths)))
    assert all(lengths[before[-1]] < lengths[after[0]] for before, after in pairwise(passes))
    inside = sorted(range(len(lengths)), key=lambda row: (lengths[row], row))
    assert price_of(passes, lengths, price) == min(price_of(way, lengths, price) for way in ways(inside))


@pytest.mark.parametrize(
    ("price", "passes"),
    [(0, [[1], [3], [2, 4], [0]]), (7, [[1, 3], [2, 4], [0]]), (30, [[1, 3, 2, 4], [0]]), (4096, [[1, 3, 2, 4, 0]])],
)
def test_the_dearer_a_pass_the_fewer_there_are(price: int, passes: list[list[int]]) -> None:
    assert cut([90, 12, 20, 14, 20], price) == passes


def test_an_accelerator_pays_more_for_a_pass() -> None:
    assert pass_price("cpu") < pass_price("cuda") == pass_price("mps")
