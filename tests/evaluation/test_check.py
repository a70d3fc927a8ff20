"""Whether a trained model works at all, told by its answers to held-out questions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.evaluation.check import Check, check, faults, loop, majority_share


def _row(output: str, right: bool = False, truncated: bool = False, **more: Any) -> dict[str, Any]:
    return {"output": output, "correct": right, "truncated": truncated, **more}


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("<cirf_003>4<cirf_028><cirf_028><cirf_028><cirf_028><cirf_028>", "<cirf_028>"),
        ("<cirf_001>" + "12<cirf_002>" * 6, "<cirf_002>12"),
        ("so " * 9, "so "),
        ("<cirf_001>24<cirf_006>72</cirf>72", ""),
        ("1" * 4, ""),  # a long number is no loop
        ("          ", ""),
        ("", ""),
    ],
)
def test_a_loop_is_named_by_what_it_repeats(output: str, said: str) -> None:
    assert loop(output) == said


@given(st.text("ab<> ", max_size=12), st.text("ab<>1", min_size=1, max_size=8), st.integers(5, 9))
def test_whatever_is_said_over_and_over_is_a_loop(before: str, said: str, times: int) -> None:
    assert loop(before + said * times)


def test_shares_and_loops_are_counted() -> None:
    rows = [
        _row("<cirf_001>2</cirf>2", True, well_formed=True),
        _row("<cirf_001>" * 8, truncated=True, well_formed=False),
        _row("<cirf_001>" * 9, truncated=True, well_formed=False),
        _row("<cirf_001>7", well_formed=False),
    ]
    found = check(rows, 0.5)
    assert found == Check(4, 0.25, 0.5, 0.5, 0.25, {"<cirf_001>": 2})
    (bad,) = faults("cirf_full", found)
    assert "only 25% of its answers to 4 held-out questions are well-formed" in bad and "50% are truncated" in bad
    assert "2 repeat '<cirf_001>'" in bad and "finetune.epochs" in bad and "finetune.rows_lr_ratio" in bad


def test_a_model_that_works_has_no_fault() -> None:
    assert faults("m", check([_row("x", True, well_formed=True), _row("x", True, well_formed=True)], 0.5)) == []
    half = [_row("x"), _row("y", True)] * 15
    (told,) = faults("direct_sft", check(half, 0.5))
    assert "no better than the most frequent answer: 50% of 30" in told and "rows" in told, "a bare answer has no form to miss"
    assert faults("direct_sft", check(half[:8], 0.5)) == [], "eight questions tell nothing"


def test_the_most_frequent_training_answer_is_the_majority() -> None:
    assert majority_share(["a", "b", "b"], ["b", "a", "b", "c"]) == 0.5
    assert majority_share([], ["a"]) == majority_share(["a"], []) == 0.0
