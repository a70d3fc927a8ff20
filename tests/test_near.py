"""Accuracy on what is not near a training question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import near

from cirf.files import write_rows
from cirf.records import Problem

LONG = "Tom has three red boxes of apples and two blue boxes of pears in his"  # fourteen words


def problems(path: Path, **questions: str) -> None:
    write_rows(path, [Problem(id=name, task="sums", question=text, answer="1") for name, text in questions.items()])


def test_only_questions_with_a_rationale_count_as_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems(tmp_path / "problems" / "train.jsonl", used=f"{LONG} shed.", left=f"{LONG.replace('Tom', 'Ann')} barn.")
    problems(tmp_path / "problems" / "validation.jsonl", held="What is 3 + 4?")
    write_rows(tmp_path / "segments" / "segments.jsonl", [{"problem": name} for name in ("used", "held")])
    asked = {"a": f"{LONG} hall.", "b": "How many pears are there?", "c": "Ann has three red boxes of apples"}
    problems(tmp_path / "problems" / "test" / "sums.jsonl", **asked)
    verdicts = tmp_path / "archive"
    rows = [{"id": item, "correct": right} for item, right in (("a", True), ("b", True), ("c", False))]
    write_rows(verdicts / "evaluation" / "ours" / "sums.jsonl", rows)
    assert near.clear(tmp_path, "sums") == {"b", "c"}
    near.main([str(tmp_path), "--methods", "ours", "--tasks", "sums", "--verdicts", str(verdicts)])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["ours"]
    assert (told["n"], told["accuracy"], told["mean"]) == (2, 0.5, 0.5)
