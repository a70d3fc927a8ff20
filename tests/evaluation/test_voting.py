"""Majorities, what they cost, and that a killed draw goes on."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.evaluation.statistics import wilson
from cirf.evaluation.voting import Asked, collect_votes, curve, majority, time_votes
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe import Evaluate, Problems, Recipe, TaskEntry, Voting
from cirf.records import Problem
from cirf.tasks import get as get_task

RECIPE = Recipe(name="test", problems=Problems(tasks=(TaskEntry(task="svamp"),)))
TASKS = {"svamp": get_task("svamp")}
TEST = {"svamp": [Problem(f"s{i}", "svamp", f"What is {i} + 1?", str(i + 1)) for i in range(4)]}
SCRIPTS = {  # of every question, what the votes say in order; s0 is right at once, s3 never
    "0": ["1", "1", "1", "1"],
    "1": ["9", "2.0", "2", "2"],
    "2": ["none", "8", "3", "none"],
    "3": ["7", "6", "5", "none"],
}


@dataclass(frozen=True)
class Written:
    text: str
    tokens: int = 5
    truncated: bool = False


def asked(votes: tuple[int, ...] = (1, 2, 4), dies_at: int | None = None, **more: Any) -> tuple[Asked, list[str]]:
    calls: list[str] = []

    def draw(prompt: str, cap: int, count: int) -> list[Written]:
        if len(calls) == dies_at:
            raise KeyboardInterrupt
        calls.append(prompt)
        return [Written(text) for text in SCRIPTS[prompt.split("What is ")[1][0]][:count]]

    section = Evaluate(voting=Voting(votes=votes, **more), latency_warmup=1)
    return Asked(get("direct", RECIPE), TASKS, draw, lambda text: f"<{text}>", section), calls


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


def test_answers_that_are_equal_vote_together_however_they_are_written() -> None:
    asks, _ = asked()
    votes = [{"parsed": parsed} for parsed in ("8", "7.0", None, "7")]
    assert asks.decide("svamp", TEST["svamp"][0], votes) == (1, 0.5)


def test_the_curve_is_made_of_every_vote_drawn(tmp_path: Path) -> None:
    asks, calls = asked()
    tables = collect_votes(asks, TEST, {}, tmp_path, SILENT)
    assert len(calls) == 4  # the largest number alone is drawn
    found = {point["votes"]: point for point in curve(asks, TEST, tables)}
    assert found[1]["accuracy"] == pytest.approx((1 + 3 / 4 + 1 / 4 + 0) / 4)
    assert found[2]["accuracy"] == pytest.approx((1 + (0 + 1) / 2 + (0 + 1) / 2 + 0) / 4)
    assert found[4]["accuracy"] == pytest.approx((1 + 1 + 0 + 0) / 4)  # of s2's single votes the first, 8
    assert found[4]["interval"] == list(wilson(2, 4)) and found[4]["n"] == 4
    assert found[4]["tokens"] == 20 and found[1]["tokens"] == 5
    assert found[1]["unparsed"] == pytest.approx((0 + 0 + 2 / 4 + 1 / 4) / 4) and found[4]["unparsed"] == 0
    assert found[4]["agreement"] == pytest.approx((1 + 3 / 4 + 1 / 4 + 1 / 4) / 4)


def test_where_votes_disagree_the_fallback_answers(tmp_path: Path) -> None:
    asks, _ = asked(votes=(4,), fallback="cot", agreement=0.5)
    others = {("svamp", f"s{i}"): {"parsed": "x", "correct": i != 2, "tokens": 100, "truncated": False} for i in range(4)}
    (point,) = curve(asks, TEST, collect_votes(asks, TEST, others, tmp_path, SILENT))
    assert point["fallback"]["share"] == 0.5  # s2 and s3
    assert point["fallback"]["accuracy"] == 3 / 4 and point["accuracy"] == 2 / 4
    assert point["fallback"]["tokens"] == 20 + 100 / 2


def test_a_killed_draw_goes_on_and_ends_alike(tmp_path: Path) -> None:
    whole, _ = asked()
    collect_votes(whole, TEST, {}, tmp_path / "whole", SILENT)
    dying, _ = asked(dies_at=2)
    with pytest.raises(KeyboardInterrupt):
        collect_votes(dying, TEST, {}, tmp_path / "killed", SILENT)
    going_on, calls = asked()
    collect_votes(going_on, TEST, {}, tmp_path / "killed", SILENT)
    assert len(calls) == 2
    assert (tmp_path / "killed" / "svamp.jsonl").read_bytes() == (tmp_path / "whole" / "svamp.jsonl").read_bytes()


def test_the_right_answer_stays_out_of_reach_of_a_vote() -> None:
    asks, calls = asked()
    for gold in ("1", "SECRET"):
        asks.votes("svamp", Problem("s0", "svamp", "What is 0 + 1?", gold, rationale="SECRET"), 2)
    assert calls[0] == calls[1] and "SECRET" not in calls[0]


def test_every_number_of_votes_is_timed_on_the_same_questions_in_turn(tmp_path: Path) -> None:
    clock = itertools.count()
    asks, calls = asked(votes=(1, 4), fallback="cot", agreement=0.5)
    rows = time_votes(asks, TEST, lambda *_: 10.0, lambda: float(next(clock)), tmp_path, SILENT)
    assert [row["id"] for row in rows] == ["s0", "s1", "s2", "s3"]
    assert len(calls) == 2 + 4 * 2  # the warm-up's and each question's
    assert [[point["votes"] for point in row["times"]] for row in rows] == [[1, 4, 0]] * 4
    falls = rows[3]["times"][1]
    assert falls["falls"] and falls["with_fallback"] == falls["seconds"] + 10
    assert rows[0]["times"][1]["with_fallback"] == rows[0]["times"][1]["seconds"]
    assert len([json.loads(line) for line in (tmp_path / "scratch" / "latency.jsonl").read_text().splitlines()]) == 4
    again, calls = asked(votes=(1, 4), fallback="cot")
    assert time_votes(again, TEST, lambda *_: 10.0, lambda: 0.0, tmp_path, SILENT) == rows and not calls
