"""Methods in pairs: every two once, found again by hand."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from math import comb
from pathlib import Path
from typing import Any

import made
import pytest

from cirf.analysis.analysis import MissingInputError, get
from cirf.analysis.pairs import compare_all
from cirf.analysis.source import Source
from cirf.store.files import write_rows
from cirf.store.jsonl import read_rows

SHARES = {
    "cirf_full": {"sums": 0.9, "coins": 0.8, "riddles": 0.3},
    "sft_cot": {"sums": 0.9, "coins": 0.9, "riddles": 0.4},
    "pause": {"sums": 0.2, "coins": 0.5, "riddles": 0.4},
    "codi": {"sums": 0.2, "coins": 0.5, "riddles": 0.2},
}


def make(*runs: Any) -> Any:
    return get("pairs").make(Source(runs))


def solved(run: Any, method: str, tasks: list[str]) -> dict[tuple[str, str], bool]:
    rows = {task: read_rows(run.folder / "evaluation" / method / f"{task}.jsonl") for task in tasks}
    return {(task, row["id"]): row["correct"] for task, found in rows.items() for row in found}


def test_every_two_methods_are_compared_on_the_questions_of_both(tmp_path: Path) -> None:
    run = made.run(tmp_path / "run", SHARES, out=["riddles"])
    pairs, by_task = make(run).tables
    for table, key, groups in (
        (pairs, "domain", {"in": ["sums", "coins"], "out": ["riddles"]}),
        (by_task, "task", {"sums": ["sums"], "coins": ["coins"]}),
    ):
        assert {row[key] for row in table.rows} == set(groups)
        for group, tasks in groups.items():
            rows = [row for row in table.rows if row[key] == group]
            assert {frozenset((row["first"], row["second"])) for row in rows} == set(map(frozenset, combinations(SHARES, 2)))
            assert len(rows) == 6
            for row in rows:
                first, second = (solved(run, row[place], tasks) for place in ("first", "second"))
                wins = sum(first[item] and not second[item] for item in first)
                losses = sum(second[item] and not first[item] for item in first)
                assert (row["wins"], row["losses"], row["questions"]) == (wins, losses, len(first))
                assert row["difference"] == pytest.approx((sum(first.values()) - sum(second.values())) / len(first))
                assert row["difference"] >= 0 and row["difference_low"] <= row["difference"] <= row["difference_high"]
                fewer = sum(comb(wins + losses, k) for k in range(min(wins, losses) + 1))
                assert row["p"] == pytest.approx(min(1.0, 2 * fewer / 2 ** (wins + losses)))
                assert row["reading"] == ("above" if row["p_holm"] < 0.05 else "not significant")
            ordered = sorted(rows, key=lambda row: row["p"])
            assert ordered[0]["p_holm"] == pytest.approx(min(1.0, 6 * ordered[0]["p"]))
            assert all(one["p_holm"] <= two["p_holm"] for one, two in pairwise(ordered))


def test_methods_of_other_questions_are_left_out_and_said(tmp_path: Path) -> None:
    run = made.run(tmp_path / "run", SHARES)
    path = run.folder / "evaluation" / "codi" / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in read_rows(path)[1:]), encoding="utf-8")
    found = make(run)
    assert all("codi" not in (row["first"], row["second"]) for table in found.tables for row in table.rows)
    assert found.notes[0] == "in domain: left out, since they answered other questions than most: codi."


def test_what_has_no_rows_is_no_question_of_most(tmp_path: Path) -> None:
    run = made.run(tmp_path / "run", {**SHARES, "soft_cot": SHARES["codi"]}, out=["riddles"])
    for method in run.methods:
        (run.folder / "evaluation" / method / "coins.jsonl").write_text("", encoding="utf-8")
    for method in ("pause", "codi", "soft_cot"):
        (run.folder / "evaluation" / method / "sums.jsonl").unlink()
    found = make(run)
    (row,) = (row for row in found.tables[0].rows if row["domain"] == "in")
    assert (row["first"], row["second"], row["questions"]) == ("cirf_full", "sft_cot", 40)
    assert len(found.tables) == 1  # one task with rows in each domain
    assert "in domain: left out, since they answered other questions than most: pause, codi, soft_cot." in found.notes
    bare = made.run(tmp_path / "bare", SHARES)
    for path in bare.folder.glob("evaluation/*/*.jsonl"):
        path.unlink()
    for other in (bare, made.run(tmp_path / "none", {"cirf_full": {"sums": 0.5}, "codi": {"coins": 0.5}})):
        with pytest.raises(MissingInputError, match="at least two methods"):
            make(other)


def test_several_runs_of_a_question_are_one_answer(tmp_path: Path) -> None:
    run = made.run(tmp_path / "run", {"cirf_full": {"sums": 0.5}, "codi": {"sums": 0.5}}, questions=3)
    solved = {"cirf_full": [(1, 0, 0), (0, 1, 0), (0, 0, 1)], "codi": [(1, 1, 1), (0, 0, 0), (0, 0, 0)]}
    for method, answers in solved.items():
        path = run.folder / "evaluation" / method / "sums.jsonl"
        rows = zip(read_rows(path), answers, strict=True)
        write_rows(path, [{**row, "run": turn, "correct": bool(right)} for row, runs in rows for turn, right in enumerate(runs)])
    found = make(run)
    (row,) = found.tables[0].rows
    assert (row["first"], row["questions"], row["wins"], row["losses"], row["p"]) == ("cirf_full", 3, 2, 1, 1.0)
    assert row["difference"] == 0 and "-0.0 (" not in found.tables[0].to_latex()  # thirds add up to a little less
    assert any("asked several times" in note for note in found.notes)
    assert not any("asked several times" in note for note in make(made.run(tmp_path / "once", SHARES)).notes)


def test_equal_methods_keep_their_order() -> None:
    found = {"one": {"a": 0.3, "b": 0.0}, "two": {"a": 0.1, "b": 0.2}}  # 0.1 + 0.2 > 0.3
    assert list(compare_all(found)) == [("one", "two")]


def test_a_run_counts_once_and_one_method_is_no_pair(tmp_path: Path) -> None:
    one = made.run(tmp_path / "one", SHARES)
    two = made.run(tmp_path / "two", SHARES, part="seed", seed=2)
    sources = [row["source"] for row in make(one, two, one).tables[0].rows]
    assert sources == ["this run"] * 6 + ["two"] * 6
    with pytest.raises(MissingInputError, match="at least two methods"):
        make(made.run(tmp_path / "alone", {"cirf_full": {"sums": 0.5}}))
