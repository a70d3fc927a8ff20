"""Votes are drawn once: a kill, fewer, more, another way of reading them draw none that are there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from cirf.errors import CirfError
from cirf.evaluation.votes import Asked, draw_votes
from cirf.files import RowLog
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe import Evaluate, Problems, Recipe, TaskEntry
from cirf.records import Problem
from cirf.rows import read_rows
from cirf.tasks import get as get_task

RECIPE = Recipe(name="test", problems=Problems(tasks=(TaskEntry(task="svamp"),)))
TEST = {"svamp": [Problem(f"s{i}", "svamp", f"What is {i} + 1?", str(i + 1), rationale="SECRET") for i in range(4)]}
HOW = {"model": "one"}


@dataclass(frozen=True)
class Output:
    text: str
    tokens: int = 5
    truncated: bool = False


def drawn(
    folder: Path, count: int, dies_at: int | None = None, how: dict[str, str] = HOW, test: dict[str, list[Problem]] = TEST
) -> list[tuple[int, int]]:
    """Draw, and tell the first answer's number and how many of every call; answer number 3 is 3."""
    calls: list[tuple[int, int]] = []

    def draw(prompt: str, cap: int, first: int, number: int) -> list[Output]:
        assert "SECRET" not in prompt and prompt.startswith("<") and cap == 32
        if len(calls) == dies_at:
            raise KeyboardInterrupt
        calls.append((first, number))
        return [Output(str(place)) for place in range(first, first + number)]

    asked = Asked(get("direct", RECIPE), {"svamp": get_task("svamp")}, draw, lambda text: f"<{text}>", Evaluate())
    assert draw_votes(asked, test, count, how, RowLog(folder / "log.jsonl"), folder, SILENT) == 4
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
    asked = Asked(get("cirf_full", RECIPE), {"svamp": get_task("svamp")}, lambda *_: [], str, Evaluate())
    told = ["<cirf_001>1", "<cirf_001>3</cirf>1"]
    outputs = [Output(text, truncated=cut) for text in told for cut in (False, True)]
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
