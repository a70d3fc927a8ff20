"""Accuracy on what is not near a training question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import near

from cirf.errors import CirfError
from cirf.files import write_rows
from cirf.records import Problem
from cirf.store import record

USED = "Tom has three red boxes of apples and two blue boxes of pears in his"
LEFT = "Every morning the baker sells forty loaves before noon and twenty more in the"
HELD = "A train with nine cars leaves at dawn and carries eleven people in each of"


def problems(path: Path, **questions: str) -> None:
    write_rows(path, [Problem(id=name, task="sums", question=text, answer="1") for name, text in questions.items()])


def stage(folder: Path, content: str) -> None:
    (folder / "segments").mkdir(parents=True, exist_ok=True)
    (folder / "segments" / "stage.json").write_text(record({"key": "k", "summary": {}, "files": {"segments.jsonl": content}}))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three questions to learn from, one of them without a rationale and one held out, and tests near to each and to none."""
    problems(tmp_path / "problems" / "train.jsonl", used=f"{USED} shed.", left=f"{LEFT} evening.")
    problems(tmp_path / "problems" / "validation.jsonl", held=f"{HELD} them.")
    write_rows(tmp_path / "segments" / "segments.jsonl", [{"problem": name} for name in ("used", "held")])
    stage(tmp_path, "a")
    asked = {"a": f"{USED} hall.", "b": f"{LEFT} night.", "c": f"{HELD} these.", "d": "How many pears are there?"}
    problems(tmp_path / "problems" / "test" / "sums.jsonl", **asked)
    return tmp_path


def test_only_questions_with_a_rationale_count_as_learned(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = run / "archive"
    stage(verdicts, "a")
    rows = [{"id": item, "correct": right} for item, right in (("a", True), ("b", True), ("c", True), ("d", False))]
    write_rows(verdicts / "evaluation" / "ours" / "sums.jsonl", rows)
    assert near.clear(run, "sums", near.learned_from(run)) == {"b", "d"}
    near.main([str(run), "--methods", "ours", "--tasks", "sums", "--verdicts", str(verdicts)])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["ours"]
    assert (told["n"], told["accuracy"], told["mean"]) == (2, 0.5, 0.5)


def test_a_benchmark_counts_as_much_as_another_in_the_mean_of_them(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for task, right in (("sums", {"a": 1, "b": 0, "c": 1, "d": 0}), ("more", {"e": 1, "f": 1, "g": 0})):
        rows = [{"id": item, "correct": bool(value)} for item, value in right.items()]
        write_rows(run / "evaluation" / "ours" / f"{task}.jsonl", rows)
    problems(run / "problems" / "test" / "more.jsonl", e="Who sells loaves?", g=f"{USED} cellar.", f=f"{HELD} all.")
    near.main([str(run), "--methods", "ours", "--tasks", "sums", "more"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["ours"]
    assert (told["n"], round(told["accuracy"], 4), told["mean"]) == (3, 0.3333, 0.5)  # none of two, one of one


def test_verdicts_on_other_questions_are_refused(run: Path) -> None:
    write_rows(run / "evaluation" / "ours" / "sums.jsonl", [{"id": item, "correct": True} for item in "abc"])
    with pytest.raises(CirfError, match="sums: ours was asked other questions"):
        near.main([str(run), "--methods", "ours", "--tasks", "sums"])


def test_verdicts_of_what_learned_from_other_questions_are_refused(run: Path) -> None:
    verdicts = run / "archive"
    write_rows(verdicts / "evaluation" / "ours" / "sums.jsonl", [{"id": item, "correct": True} for item in "abcd"])
    asked = [str(run), "--methods", "ours", "--tasks", "sums", "--verdicts", str(verdicts)]
    with pytest.raises(CirfError, match="archive/segments: the stage is not finished"):
        near.main(asked)
    stage(verdicts, "b")
    with pytest.raises(CirfError, match="learned from other rationales"):
        near.main(asked)
    stage(verdicts, "a")
    near.main(asked)


def test_a_task_that_is_all_near_is_refused(run: Path) -> None:
    problems(run / "problems" / "test" / "sums.jsonl", a=f"{USED} hall.")
    with pytest.raises(CirfError, match="every test question is near"):
        near.clear(run, "sums", near.learned_from(run))
