"""Methods in pairs: every two once, found again by hand; bars join what no test tells apart."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from math import comb
from pathlib import Path
from typing import Any

import made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.analysis import get
from cirf.analysis.analysis import Lacking
from cirf.analysis.pairs import _lanes, together
from cirf.analysis.source import Source
from cirf.rows import read_rows

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
                assert row["reading"] == ("above" if row["p_holm"] < 0.05 else "inside the noise")
            ordered = sorted(rows, key=lambda row: row["p"])
            assert ordered[0]["p_holm"] == pytest.approx(min(1.0, 6 * ordered[0]["p"]))
            assert all(one["p_holm"] <= two["p_holm"] for one, two in pairwise(ordered))


def test_what_is_told_apart_is_not_joined(tmp_path: Path) -> None:
    found = make(made.run(tmp_path / "run", {name: {"sums": by["sums"]} for name, by in SHARES.items()}))
    assert len(found.tables) == 1  # one task: nothing to say by task
    picture = found.pictures["pairs-in"]
    names = list(dict.fromkeys(row[key] for row in found.tables[0].rows for key in ("first", "second")))
    assert set(names[:2]) == {"cirf_full", "sft_cot"}
    assert f"Not told apart: {names[0]} to {names[1]}; {names[2]} to {names[3]}." in picture
    assert picture.count('class="mark point"') == 4


def test_methods_of_other_questions_are_left_out_and_said(tmp_path: Path) -> None:
    run = made.run(tmp_path / "run", SHARES)
    path = run.folder / "evaluation" / "codi" / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in read_rows(path)[1:]), encoding="utf-8")
    found = make(run)
    assert all("codi" not in (row["first"], row["second"]) for table in found.tables for row in table.rows)
    assert found.notes[0] == "in domain: left out, as having answered other questions than most: codi."


def test_runs_are_told_apart_and_one_method_is_no_pair(tmp_path: Path) -> None:
    one = made.run(tmp_path / "one", SHARES)
    two = made.run(tmp_path / "two", SHARES, part="seed", seed=2)
    assert set(make(one, two, one).pictures) == {"one-in", "two-in"}
    with pytest.raises(Lacking, match="at least two methods"):
        make(made.run(tmp_path / "alone", {"cirf_full": {"sums": 0.5}}))


@given(
    st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))))
)
def test_bars_are_the_longest_runs_without_a_difference(drawn: tuple[int, set[tuple[int, int]]]) -> None:
    n, told = drawn
    apart = {frozenset(pair) for pair in told if len(set(pair)) == 2}
    names = [f"m{place}" for place in range(n)]
    found = together(names, lambda one, two: frozenset((int(one[1:]), int(two[1:]))) in apart)

    def alike(start: int, end: int) -> bool:
        return not any(frozenset(pair) in apart for pair in combinations(range(start, end + 1), 2))

    every = [(start, end) for start in range(n) for end in range(start + 1, n) if alike(start, end)]
    longest = [one for one in every if not any(other != one and other[0] <= one[0] and one[1] <= other[1] for other in every)]
    assert found == longest
    lanes = _lanes(found)
    for (one, lane), (two, other) in combinations(zip(found, lanes, strict=True), 2):
        assert lane != other or one[1] < two[0]
