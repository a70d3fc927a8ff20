"""The command: what it does with an analysis that fails, with what lay there before, with a record that is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made
import pytest

from cirf.commands import analyzing
from cirf.errors import CirfError
from cirf.evaluation.statistics import wilson


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Runs whose backbone, and so its tokenizer, is nowhere; the command finds them in any folder."""
    codes = {"sums": [[0, 1], [2]] * 6, "coins": [[3, 3]] * 6}
    found = []
    for size in (4, 8):
        run = made.run(tmp_path / f"run{size}", {"cirf_full": {"sums": 0.5}}, codes=codes, codebook__size=size)
        for told in run.methods["cirf_full"]["tasks"].values():
            told |= {"interval": wilson(told["accuracy"] * told["n"], told["n"]), "truncated": 0.0, "unparsed": 0.0}
        run.data["recipe"]["backbone"]["model"] = str(tmp_path / "nowhere")
        run.data["data"].update(test={}, reports={"problems": {}})
        run.data["codebook"] = {"codes": [], "used": 0, "size": size}
        found.append(run)
    monkeypatch.setattr(analyzing, "open_runs", lambda folder: found)
    return found


def analyze(folder: Path, *asked: str) -> dict[str, Any]:
    analyzing.analyze(folder, asked, False, True)
    told: dict[str, Any] = json.loads((folder / "analysis" / "analysis.json").read_text())
    return told


def test_an_analysis_that_fails_leaves_the_others(runs, tmp_path, capsys):
    told = analyze(tmp_path)
    assert "nowhere" in told["left_out"]["statistics"]
    assert {"pareto", "codebook_size", "transitions", "stability"} <= set(told["analyses"])
    with pytest.raises(CirfError, match=r"statistics: .*nowhere"):
        analyze(tmp_path, "pareto", "statistics")


def test_what_can_no_longer_be_made_goes_and_what_is_no_analysis_stays(runs, tmp_path, capsys):
    for name in ("statistics", "mine"):
        (tmp_path / "analysis" / name).mkdir(parents=True)
        (tmp_path / "analysis" / name / "old.csv").write_text("old")
    (tmp_path / "analysis" / "labels-asked.jsonl").write_text("")
    analyze(tmp_path, "pareto")
    assert (tmp_path / "analysis" / "statistics" / "old.csv").is_file()
    told = analyze(tmp_path)
    there = {path.name for path in (tmp_path / "analysis").iterdir() if path.is_dir()}
    assert there == {*told["analyses"], "mine"} and (tmp_path / "analysis" / "labels-asked.jsonl").is_file()


def test_a_run_that_two_parts_name_is_one_run(runs, tmp_path, capsys):
    runs.append(runs[0])
    assert analyze(tmp_path, "pareto")["runs"] == ["run4", "run8"]
    assert "2 runs" in (tmp_path / "analysis" / "index.html").read_text()


@pytest.mark.parametrize("record", ["[]", "{}", '{"points": [{"run": "a"}]}', '{"points": 3}', "{", "null", '{"points": [[]]}'])
def test_a_record_that_is_none_is_said(record, tmp_path):
    (tmp_path / "sweep.json").write_text(record)
    with pytest.raises(CirfError, match=r"sweep\.json: not the record of a sweep"):
        analyzing.open_runs(tmp_path)
