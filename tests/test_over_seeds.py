"""Methods over the runs of several seeds: a question counts once, by the mean of its trainings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import over_seeds, share_of

from cirf.errors import CirfError
from cirf.files import write_rows


def evaluated(folder: Path, answers: dict[str, dict[str, int]], task: str = "sums") -> Path:
    for method, by_item in answers.items():
        rows: list[dict[str, Any]] = [{"id": item, "correct": bool(right)} for item, right in by_item.items()]
        write_rows(folder / "evaluation" / method / f"{task}.jsonl", rows)
    return folder


def test_a_question_of_all_runs_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = evaluated(tmp_path / "one", {"ours": {"a": 1, "b": 1, "c": 0}, "theirs": {"a": 0, "b": 1, "c": 1}})
    two = evaluated(tmp_path / "two", {"ours": {"a": 1, "b": 0, "d": 1}, "theirs": {"a": 0, "b": 0, "d": 0}})
    assert share_of.over([one, two], "ours", "sums") == {"a": 1.0, "b": 0.5}
    over_seeds.main([str(one), str(two), "--methods", "ours", "theirs", "--tasks", "sums"])
    *lines, document = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["sums", "by run"]  # and not the same once more as that of all
    assert lines[-1] == "by run: +0.0, +66.7; +33.3 (-390.2 to +456.9) by their spread alone"  # 12.706 of 1/3 (Student)
    told = json.loads(document)["all"]
    assert (told["n"], told["difference"], told["wins"], told["losses"]) == (2, 0.5, 1, 0)
    told = json.loads(document)["by_run"]
    assert told["differences"] == pytest.approx([0.0, 2 / 3]) and told["mean"] == pytest.approx(1 / 3)
    assert (told["low"], told["high"]) == pytest.approx((1 / 3 - 12.7062 / 3, 1 / 3 + 12.7062 / 3), abs=1e-4)
    over_seeds.main([str(one), str(two), "--methods", "ours", "theirs", "--tasks", "sums", "--against-run", str(two)])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["all"]
    assert (told["n"], told["difference"]) == (2, 0.75)
    runs = [str(one), str(two)]
    over_seeds.main([*runs, "--methods", "ours", "theirs", "--tasks", "sums", "--against-run", *runs])
    assert "by run" not in capsys.readouterr().out  # runs named side by side need not belong together
    over_seeds.main([str(one), "--methods", "ours", "theirs", "--tasks", "sums", "--against-run", str(one), str(two)])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["all"]
    assert (told["n"], told["difference"]) == (2, 0.75)  # 1 and 1, less 0 and a half


def test_all_tasks_are_pooled_by_question_in_each_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = tmp_path / "one", tmp_path / "two"
    for folder, right in zip(folders, (1, 0), strict=True):
        evaluated(folder, {"ours": {"a": right, "b": right, "c": right}, "theirs": {"a": 0, "b": 0, "c": 0}})
        evaluated(folder, {"ours": {"a": 0}, "theirs": {"a": 1}}, task="more")  # the same name, another question
    over_seeds.main([*map(str, folders), "--methods", "ours", "theirs", "--tasks", "sums", "more"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(told[name]["n"], told[name]["difference"]) for name in ("sums", "more", "all")] == [(3, 0.5), (1, -1), (4, 0.125)]
    assert told["by_run"]["differences"] == [0.5, -0.25]


def test_a_method_beside_itself_is_told_by_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = evaluated(tmp_path / "one", {"ours": {"a": 1}}), evaluated(tmp_path / "two", {"ours": {"a": 0}})
    over_seeds.main([str(one), "--methods", "ours", "ours", "--tasks", "sums", "--against-run", str(two)])
    assert "between ours and that of two, +100.0 points" in capsys.readouterr().out


def test_a_share_over_several_runs_is_that_of_a_question_s_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = evaluated(tmp_path / "one", {"ours": {"a": 1, "b": 1, "c": 0}, "theirs": {"a": 1, "b": 1, "c": 1}})
    two = evaluated(tmp_path / "two", {"ours": {"a": 1, "b": 0, "d": 1}, "theirs": {"a": 1, "b": 0}})

    def told(*runs: Path, of: tuple[Path, ...] = (one,)) -> tuple[float, int]:
        given = ["--methods", "ours", "--of", "theirs", "--tasks", "sums", "--draws", "100", "--of-run", *map(str, of)]
        share_of.main([*map(str, runs), *given])
        found = json.loads(capsys.readouterr().out.splitlines()[-1])["ours"]
        assert found["low"] <= found["share"] <= found["high"]
        return round(found["share"], 6), found["n"]

    assert (told(one), told(two), told(one, two)) == ((0.666667, 3), (0.5, 2), (0.75, 2))
    assert told(one, of=(one, two)) == (1.333333, 2)  # two of two, to one and a half


def test_no_question_in_common_is_refused(tmp_path: Path) -> None:
    one = evaluated(tmp_path / "one", {"ours": {"a": 1}, "theirs": {"b": 1}})
    with pytest.raises(CirfError, match="no question in common"):
        over_seeds.main([str(one), "--methods", "ours", "theirs", "--tasks", "sums"])
