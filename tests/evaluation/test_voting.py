"""Majorities, and what numbers of votes are worth."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.evaluation.statistics import compare, holm, wilson
from cirf.evaluation.voting import Item, answered_alone, curve, decide, majority
from cirf.records import Problem
from cirf.tasks import get as get_task

TASK = get_task("svamp")
PROBLEMS = [Problem(f"s{i}", "svamp", f"What is {i} + 1?", str(i + 1)) for i in range(4)]
VOTES = (  # of every question, what the votes say in order; s0 is right at once, s3 never
    ("1", "1", "1", "1"),
    ("9", "2.0", "2", "2"),
    (None, "8", "3", None),
    ("7", "6", "5", None),
)


def vote(parsed: str | None, problem: Problem, **more: Any) -> dict[str, Any]:
    right = parsed is not None and TASK.equal(parsed, problem)
    return {"output": "", "parsed": parsed, "correct": right, "tokens": 5, "truncated": False} | more


def items(alone: tuple[bool, ...] | None = None) -> list[Item]:
    votes = [[vote(text, problem) for text in said] for said, problem in zip(VOTES, PROBLEMS, strict=True)]
    others = [vote("x", PROBLEMS[0], correct=right, tokens=100, unparsed=False) for right in alone] if alone else [None] * 4
    return [Item("svamp", TASK, *row) for row in zip(PROBLEMS, votes, others, strict=True)]


@given(st.lists(st.one_of(st.none(), st.sampled_from("abc")), min_size=1, max_size=9))
def test_the_majority_is_the_most_frequent_answer_that_can_be_read(answers: list[str | None]) -> None:
    place, share = majority(answers, lambda one, other: one == other)
    counts = Counter(answer for answer in answers if answer is not None)
    if place is None:
        assert not counts and share == 0
        return
    best = answers[place]
    assert counts[best] == max(counts.values()) and place == answers.index(best)
    assert share == counts[best] / len(answers)
    firsts = [answers.index(answer) for answer, count in counts.items() if count == counts[best]]
    assert place == min(firsts)  # of equal ones the first


def test_a_majority_of_nothing_is_an_error_and_of_one_is_that_one() -> None:
    with pytest.raises(ValueError, match="no votes"):
        majority([], lambda one, other: one == other)
    assert majority(["a"], lambda one, other: one == other) == (0, 1.0)
    assert majority([None], lambda one, other: one == other) == (None, 0.0)


def test_answers_that_are_equal_vote_together_however_they_are_written() -> None:
    votes = [vote(parsed, PROBLEMS[0]) for parsed in ("8", "7.0", None, "7")]
    assert decide(TASK, PROBLEMS[0], votes) == (1, 0.5)


def test_the_curve_is_made_of_every_vote_drawn() -> None:
    found = {point["votes"]: point for point in curve(items(), (4, 1, 2, 2), None)}
    assert list(found) == [1, 2, 4]
    assert found[1]["accuracy"] == pytest.approx((1 + 3 / 4 + 1 / 4 + 0) / 4)
    assert found[2]["accuracy"] == pytest.approx((1 + (0 + 1) / 2 + (0 + 1) / 2 + 0) / 4)
    assert found[4]["accuracy"] == pytest.approx((1 + 1 + 0 + 0) / 4)  # of s2's single votes the first, 8
    assert found[4]["interval"] == list(wilson(2, 4)) and found[4]["n"] == 4
    assert found[4]["tokens"] == 20 and found[1]["tokens"] == 5
    assert found[1]["unparsed"] == pytest.approx((0 + 0 + 2 / 4 + 1 / 4) / 4) and found[4]["unparsed"] == 0
    assert found[4]["agreement"] == pytest.approx((1 + 3 / 4 + 1 / 4 + 1 / 4) / 4)
    assert "fallback" not in found[4] and "against" not in found[4]


def test_a_number_that_does_not_divide_the_votes_takes_whole_groups_alone() -> None:
    (three,) = curve(items(), (3,), None)
    assert three["accuracy"] == pytest.approx((1 + 1 + 0 + 0) / 4) and three["tokens"] == 15


def test_more_votes_than_were_drawn_are_refused() -> None:
    with pytest.raises(CirfError, match="8 votes are asked for, 4 were drawn"):
        curve(items(), (1, 8), None)


def test_questions_whose_votes_are_all_unread_or_all_cut_off_are_told() -> None:
    cut = [vote(None, PROBLEMS[0], truncated=True) for _ in range(4)]
    (point,) = curve([Item("svamp", TASK, PROBLEMS[0], cut, vote("1", PROBLEMS[0]))], (4,), 0.0)
    assert (point["accuracy"], point["unparsed"], point["truncated"], point["agreement"]) == (0, 1, 1, 0)
    assert point["fallback"]["share"] == 1 and point["fallback"]["accuracy"] == 1  # where nothing is read nothing agrees


def test_where_votes_disagree_the_fallback_answers() -> None:
    (point,) = curve(items((True, True, False, True)), (4,), 0.5)
    assert point["fallback"]["share"] == 0.5  # s2 and s3
    assert point["fallback"]["accuracy"] == 3 / 4 and point["accuracy"] == 2 / 4
    assert point["fallback"]["tokens"] == 20 + 100 / 2


def test_each_number_of_votes_is_compared_with_the_one_answer() -> None:
    alone = (True, False, False, True)
    points = curve(items(alone), (1, 4), None)
    other = {f"svamp/s{i}": float(right) for i, right in enumerate(alone)}
    four = compare({"svamp/s0": 1.0, "svamp/s1": 1.0, "svamp/s2": 0.0, "svamp/s3": 0.0}, other)
    one = compare({"svamp/s0": 1.0, "svamp/s1": 0.75, "svamp/s2": 0.25, "svamp/s3": 0.0}, other)
    assert [point["against"]["p"] for point in points] == [one.p, four.p]
    assert [point["against"]["p_holm"] for point in points] == holm([one.p, four.p])
    assert points[1]["against"]["difference"] == 0 and points[1]["against"]["family"] == 2
    assert answered_alone([item.alone or {} for item in items(alone)]) == {
        "accuracy": 0.5, "n": 4, "interval": list(wilson(2, 4)), "unparsed": 0, "truncated": 0, "tokens": 100,
    }  # fmt: skip
