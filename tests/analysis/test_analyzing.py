"""The command: what it does with an analysis that fails, with what lay there before, with a record that is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made
import pytest

from cirf.analysis.analysis import get
from cirf.analysis.source import Source
from cirf.commands import analyze as analyzing
from cirf.errors import CirfError
from cirf.statistics import wilson


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Runs whose backbone, and so its tokenizer, is nowhere; the command finds them in any folder."""
    codes = {"sums": [[0, 1], [2]] * 6, "coins": [[3, 3]] * 6}
    found = []
    for size in (4, 8):
        run = made.run(tmp_path / f"run{size}", {"cirf_full": {"sums": 0.5}}, codes=codes, codebook__size=size)
        for summary in run.methods["cirf_full"]["tasks"].values():
            summary |= {"interval": wilson(summary["accuracy"] * summary["n"], summary["n"]), "truncated": 0.0, "unparsed": 0.0}
        run.data["recipe"]["backbone"]["model"] = str(tmp_path / "nowhere")
        run.data["data"].update(test={}, reports={"problems": {}})
        run.data["codebook"] = {"codes": [], "used": 0, "size": size}
        found.append(run)
    monkeypatch.setattr(analyzing, "open_runs", lambda folder: found)
    return found


def analyze(folder: Path, *asked: str) -> dict[str, Any]:
    analyzing.analyze(folder, asked, False, True)
    summary: dict[str, Any] = json.loads((folder / "analysis" / "analysis.json").read_text())
    return summary


def test_an_analysis_that_fails_leaves_the_others(runs, tmp_path, capsys):
    summary = analyze(tmp_path)
    assert "nowhere" in summary["left_out"]["statistics"]
    assert {"pareto", "codebook_size"} <= set(summary["analyses"])
    with pytest.raises(CirfError, match=r"statistics: .*nowhere"):
        analyze(tmp_path, "pareto", "statistics")


def test_what_can_no_longer_be_made_goes_and_what_is_no_analysis_stays(runs, tmp_path, capsys):
    for name in ("statistics", "mine"):
        (tmp_path / "analysis" / name).mkdir(parents=True)
        (tmp_path / "analysis" / name / "old.csv").write_text("old")
    (tmp_path / "analysis" / "labels-asked.jsonl").write_text("")
    analyze(tmp_path, "pareto")
    assert (tmp_path / "analysis" / "statistics" / "old.csv").is_file()
    summary = analyze(tmp_path)
    there = {path.name for path in (tmp_path / "analysis").iterdir() if path.is_dir()}
    assert there == {*summary["analyses"], "mine"} and (tmp_path / "analysis" / "labels-asked.jsonl").is_file()


def test_a_run_that_two_parts_name_is_one_run(runs, tmp_path, capsys):
    runs.append(runs[0])
    assert analyze(tmp_path, "pareto")["runs"] == ["run4", "run8"]
    assert "2 runs" in (tmp_path / "analysis" / "index.html").read_text()


@pytest.mark.parametrize("record", ["[]", "{}", '{"points": [{"run": "a"}]}', '{"points": 3}', "{", "null", '{"points": [[]]}'])
def test_a_record_that_is_none_is_said(record, tmp_path):
    (tmp_path / "sweep.json").write_text(record)
    with pytest.raises(CirfError, match=r"sweep\.json: not the record of a sweep"):
        analyzing.open_runs(tmp_path)


# Analyses of one run, given several

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


@pytest.mark.parametrize("name", ["difficulty", "semantics", "statistics"])
def test_the_first_run_that_has_what_is_needed_is_taken_and_named(name, several):
    found = get(name).make(Source(several))
    assert all(table.rows for table in found.tables)
    assert found.notes[0] == "This is of full4 alone, the first of 3 runs that has what it needs."
    alone = get(name).make(Source(several[1:2]))
    assert alone.notes == found.notes[1:] and alone.tables == found.tables


def test_a_long_step_is_cut_also_where_it_has_no_spaces(several):
    several[1].data["codebook"]["codes"] = [BOOK[0] | {"examples": ["小" * 200, "x = 1"]}]
    (row,) = get("semantics").make(Source(several)).tables[0].rows
    assert row["segments"] == ["小" * 118 + " …", "x = 1"]


def test_the_recipe_in_the_message_is_named(several):
    assert "empty alone" in get("hyperparameters").make(Source(several)).notes[0]
