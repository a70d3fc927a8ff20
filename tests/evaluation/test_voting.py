"""Majorities, and what numbers of votes are worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe.schema import Evaluate, Problems, Recipe, TaskEntry
from cirf.records import Problem
from cirf.stages.votes import (
    Sampler,
    VotedQuestion,
    VoteSource,
    Wanted,
    answered_alone,
    curve,
    decide,
    draw_votes,
    majority,
)
from cirf.statistics import compare, holm, wilson
from cirf.store.files import RowLog
from cirf.store.jsonl import read_rows
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


def items(alone: tuple[bool, ...] | None = None) -> list[VotedQuestion]:
    votes = [[vote(text, problem) for text in said] for said, problem in zip(VOTES, PROBLEMS, strict=True)]
    others = [vote("x", PROBLEMS[0], correct=right, tokens=100, unparsed=False) for right in alone] if alone else [None] * 4
    return [VotedQuestion("svamp", TASK, *row) for row in zip(PROBLEMS, votes, others, strict=True)]


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
    found = {point["votes"]: point for point in curve(items(), (4, 1, 2, 2))}
    assert list(found) == [1, 2, 4]
    assert found[1]["accuracy"] == pytest.approx((1 + 3 / 4 + 1 / 4 + 0) / 4)
    assert found[2]["accuracy"] == pytest.approx((1 + (0 + 1) / 2 + (0 + 1) / 2 + 0) / 4)
    assert found[4]["accuracy"] == pytest.approx((1 + 1 + 0 + 0) / 4)  # of s2's single votes the first, 8
    assert found[4]["interval"] == list(wilson(2, 4)) and found[4]["n"] == 4
    assert found[4]["tokens"] == 20 and found[1]["tokens"] == 5
    assert found[1]["unparsed"] == pytest.approx((0 + 0 + 2 / 4 + 1 / 4) / 4) and found[4]["unparsed"] == 0
    assert found[4]["agreement"] == pytest.approx((1 + 3 / 4 + 1 / 4 + 1 / 4) / 4)
    assert "against" not in found[4]


def test_a_number_that_does_not_divide_the_votes_takes_whole_groups_alone() -> None:
    (three,) = curve(items(), (3,))
    assert three["accuracy"] == pytest.approx((1 + 1 + 0 + 0) / 4) and three["tokens"] == 15


def test_more_votes_than_were_drawn_are_refused() -> None:
    with pytest.raises(CirfError, match="8 votes are requested, 4 were drawn"):
        curve(items(), (1, 8))


def test_questions_whose_votes_are_all_unread_or_all_cut_off_are_reported() -> None:
    cut = [vote(None, PROBLEMS[0], truncated=True) for _ in range(4)]
    (point,) = curve([VotedQuestion("svamp", TASK, PROBLEMS[0], cut, vote("1", PROBLEMS[0]))], (4,))
    assert (point["accuracy"], point["unparsed"], point["truncated"], point["agreement"]) == (0, 1, 1, 0)


def test_each_number_of_votes_is_compared_with_the_one_answer() -> None:
    alone = (True, False, False, True)
    points = curve(items(alone), (1, 4))
    other = {f"svamp/s{i}": float(right) for i, right in enumerate(alone)}
    four = compare({"svamp/s0": 1.0, "svamp/s1": 1.0, "svamp/s2": 0.0, "svamp/s3": 0.0}, other)
    one = compare({"svamp/s0": 1.0, "svamp/s1": 0.75, "svamp/s2": 0.25, "svamp/s3": 0.0}, other)
    assert [point["against"]["p"] for point in points] == [one.p, four.p]
    assert [point["against"]["p_holm"] for point in points] == holm([one.p, four.p])
    assert points[1]["against"]["difference"] == 0 and points[1]["against"]["family"] == 2
    assert answered_alone([item.alone or {} for item in items(alone)]) == {
        "accuracy": 0.5, "n": 4, "interval": list(wilson(2, 4)), "unparsed": 0, "truncated": 0, "tokens": 100,
    }  # fmt: skip


# Votes are drawn once: a kill, fewer, more, another way of reading them draw none that are there

RECIPE = Recipe(name="test", problems=Problems(tasks=(TaskEntry(task="svamp"),)))
TEST = {"svamp": [Problem(f"s{i}", "svamp", f"What is {i} + 1?", str(i + 1), rationale="SECRET") for i in range(4)]}
HOW = {"model": "one"}


@dataclass(frozen=True)
class Output:
    text: str
    tokens: int = 5
    truncated: bool = False


def drawn(
    folder: Path,
    count: int,
    dies_at: int | None = None,
    how: dict[str, str] = HOW,
    test: dict[str, list[Problem]] = TEST,
    at_once: int = 1,
) -> list[tuple[int, int]]:
    """Draw votes; return the number of the first answer and the count of answers of each call; answer number 3 is 3."""
    calls: list[tuple[int, int]] = []

    def draw(wanted: Sequence[Wanted], cap: int) -> list[list[Output]]:
        assert len(wanted) <= at_once and cap == 32
        assert all("SECRET" not in one.prompt and one.prompt.startswith("<") for one in wanted)
        if len(calls) == dies_at:
            raise KeyboardInterrupt
        calls.extend((one.first, one.count) for one in wanted)
        return [[Output(str(place)) for place in range(one.first, one.first + one.count)] for one in wanted]

    asked = VoteSource(get("direct", RECIPE), {"svamp": get_task("svamp")}, Evaluate())
    sampler = Sampler(draw, lambda text: f"<{text}>", how, at_once)
    assert draw_votes(asked, sampler, test, count, RowLog(folder / "log.jsonl"), folder, SILENT) == 4
    return calls


def votes(folder: Path) -> list[list[str]]:
    return [[vote["output"] for vote in row["votes"]] for row in read_rows(folder / "svamp.jsonl")]


def test_votes_are_read_and_judged(tmp_path: Path) -> None:
    assert drawn(tmp_path, 2) == [(0, 2)] * 4
    row = read_rows(tmp_path / "svamp.jsonl")[0]
    assert row["id"] == "s0" and row["gold"] == "1" and "What is 0 + 1?" in row["prompt"]
    assert row["votes"][1] == {"output": "1", "parsed": "1", "correct": True, "tokens": 5, "truncated": False}
    assert not row["votes"][0]["correct"]


def test_a_trace_that_was_cut_off_gives_no_vote() -> None:
    asked = VoteSource(get("cirf_full", RECIPE), {"svamp": get_task("svamp")}, Evaluate())
    summary = ["<cirf_001>1", "<cirf_001>3</cirf>1"]
    outputs = [Output(text, truncated=cut) for text in summary for cut in (False, True)]
    found = asked.read("svamp", TEST["svamp"][0], outputs)
    assert [row["parsed"] for row in found] == ["1", None, "1", "1"]
    assert [row["correct"] for row in found] == [True, False, True, True]


def test_fewer_are_the_first_and_of_more_only_the_missing_ones_are_drawn(tmp_path: Path) -> None:
    drawn(tmp_path, 4)
    assert drawn(tmp_path, 2) == [] and votes(tmp_path) == [["0", "1"]] * 4
    assert drawn(tmp_path, 4) == [] and votes(tmp_path) == [["0", "1", "2", "3"]] * 4
    assert drawn(tmp_path, 7) == [(4, 3)] * 4 and votes(tmp_path) == [[*"0123456"]] * 4
    assert drawn(tmp_path, 7) == []


def test_another_model_or_question_draws_anew(tmp_path: Path) -> None:
    drawn(tmp_path, 2)
    assert drawn(tmp_path, 2, how={"model": "another"}) == [(0, 2)] * 4
    assert drawn(tmp_path, 2) == []
    other = {"svamp": [*TEST["svamp"][:3], Problem("s3", "svamp", "What is 3 + 2?", "5")]}
    assert drawn(tmp_path, 2, test=other) == [(0, 2)]


def test_a_killed_draw_goes_on_and_ends_alike(tmp_path: Path) -> None:
    drawn(tmp_path / "whole", 4)
    with pytest.raises(KeyboardInterrupt):
        drawn(tmp_path / "killed", 4, dies_at=2)
    assert len(drawn(tmp_path / "killed", 4)) == 2
    for name in ("svamp.jsonl", "log.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_several_questions_drawn_at_once_give_the_same_votes_and_files(tmp_path: Path) -> None:
    twice = {"svamp": [*TEST["svamp"], Problem("again", "svamp", "What is 0 + 1?", "1")][-4:]}
    for folder, at_once in ((tmp_path / "one", 1), (tmp_path / "three", 3)):
        drawn(folder, 2, at_once=at_once)
        with pytest.raises(KeyboardInterrupt):
            drawn(folder, 5, dies_at=3, at_once=at_once)
        assert drawn(folder, 5, at_once=at_once) == [(2, 3)]
        assert drawn(folder, 2, test=twice, at_once=at_once) == []
        assert len(drawn(folder, 7, test={"svamp": [*twice["svamp"][1:], TEST["svamp"][0]]}, at_once=at_once)) == 3
    for name in ("svamp.jsonl", "log.jsonl"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "three" / name).read_bytes()


def test_a_damaged_draw_is_named_by_its_line(tmp_path: Path) -> None:
    drawn(tmp_path, 2)
    text = (tmp_path / "log.jsonl").read_text()
    for old, new in (('"first"', '"fjrst"'), ('"outputs": [', '"outputs": [1, ')):
        (tmp_path / "log.jsonl").write_text(text.replace(old, new, 1))
        with pytest.raises(CirfError, match=r"log\.jsonl, line 1: damaged"):
            drawn(tmp_path, 2)


def test_there_must_be_a_question(tmp_path: Path) -> None:
    with pytest.raises(CirfError, match="no test problem"):
        drawn(tmp_path, 2, test={"svamp": []})
