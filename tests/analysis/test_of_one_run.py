"""Analyses of one run, given several; and what the order of rows must not change."""

from __future__ import annotations

import random
from typing import Any

import made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.analysis import get
from cirf.analysis.source import Source
from cirf.analysis.transitions import _entropy_row, count_pairs, entropies, shuffled_entropies

CODES = {"sums": [[0, 1, 2], [2, 3]] * 10, "coins": [[3, 1]] * 10}
BOOK = [{"code": 0, "count": 20, "written": 3, "label": "adds", "tasks": {"sums": 20}, "examples": ["1 + 1 = 2"]}]


@pytest.fixture
def several(tmp_path: Any) -> list[Any]:
    """A run that has nothing yet, one that has all, one more."""
    empty = made.run(tmp_path / "empty", {})
    full = [
        made.run(
            tmp_path / f"full{size}", {"cirf_full": {"sums": 0.5}, "direct": {"sums": 0.3}}, codes=CODES, codebook__size=size
        )
        for size in (4, 8)
    ]
    for run in (empty, *full):
        run.data["data"].update(test={}, reports={"problems": {}})
        run.data["recipe"]["backbone"]["model"] = ""  # no tokenizer: lengths are left out
    for run in full:
        run.data["codebook"] = {"codes": BOOK, "used": 1, "size": 4}
    return [empty, *full]


@pytest.mark.parametrize("name", ["difficulty", "semantics", "transitions", "statistics"])
def test_the_first_run_that_has_what_is_needed_is_taken_and_named(name, several):
    found = get(name).make(Source(several))
    assert all(table.rows for table in found.tables)
    assert found.notes[0] == "This is of full4 alone, the first of 3 runs that has what it needs."
    alone = get(name).make(Source(several[1:2]))
    assert alone.notes == found.notes[1:] and alone.tables == found.tables


def test_the_recipe_told_of_is_named(several):
    assert "empty alone" in get("hyperparameters").make(Source(several)).notes[0]


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5), min_size=1, max_size=8), st.randoms())
def test_the_order_of_traces_does_not_change_the_shuffles(sequences, dice):
    other = list(sequences)
    dice.shuffle(other)
    assert shuffled_entropies(sequences, 5) == shuffled_entropies(other, 5)


def test_shuffles_equal_those_made_by_hand():
    dice = random.Random(1)
    sequences = [[dice.randrange(6) for _ in range(dice.choice([2, 3, 4]))] for _ in range(60)]
    by_hand = [entropies(count_pairs([dice.sample(one, len(one)) for one in sequences]))[1] for _ in range(400)]
    row = _entropy_row("training", sequences)
    assert row["shuffled"] == pytest.approx(sum(by_hand) / len(by_hand), abs=0.006)
    spread = (sum((one - sum(by_hand) / 400) ** 2 for one in by_hand) / 399) ** 0.5
    assert row["shuffled_sd"] == pytest.approx(spread, rel=0.3)
    assert shuffled_entropies([[2], [1], [2]], 3) == pytest.approx([entropies(count_pairs([[2], [1], [2]]))[1]] * 3)
