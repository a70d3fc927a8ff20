"""Methods in pairs: every two once, found again by hand; bars join methods without a significant difference."""

from __future__ import annotations

import json
import re
from itertools import combinations, pairwise
from math import comb
from pathlib import Path
from typing import Any

import made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.analysis.analysis import MissingInputError, get
from cirf.analysis.pairs import compare_all, lanes_of, together
from cirf.analysis.source import Source
from cirf.pictures.style import style
from cirf.statistics import wilson
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


def test_what_is_distinguished_is_not_joined(tmp_path: Path) -> None:
    found = make(made.run(tmp_path / "run", {name: {"sums": by["sums"]} for name, by in SHARES.items()}))
    assert len(found.tables) == 1  # one task: nothing to say by task
    picture = found.pictures["pairs-in"]
    names = list(dict.fromkeys(row[key] for row in found.tables[0].rows for key in ("first", "second")))
    assert set(names[:2]) == {"cirf_full", "sft_cot"}
    titles = [style(name, list(SHARES)).title for name in names]
    assert f"Neighbours without significant differences: {titles[0]} to {titles[1]}; {titles[2]} to {titles[3]}." in picture
    assert picture.count('class="mark point"') == 4


def test_the_picture_shows_what_the_tables_say(tmp_path: Path) -> None:
    solved = {
        "poor": 4,
        "one": 34,
        "best": 40,
        "two": 34,
    }  # of the first questions; "best" differs from "one" only by its uncorrected p
    run = made.run(tmp_path / "run", {name: {"sums": 0.5} for name in solved})
    for name, right in solved.items():
        path = run.folder / "evaluation" / name / "sums.jsonl"
        write_rows(path, [{**row, "correct": place < right} for place, row in enumerate(read_rows(path))])
    found = make(run)
    order = ["best", "one", "two", "poor"]
    rows = {(row["first"], row["second"]): row for row in found.tables[0].rows}
    assert list(rows) == list(combinations(order, 2))
    assert rows["best", "one"]["p"] < 0.05 < rows["best", "one"]["p_holm"]
    picture = found.pictures["pairs-in"]
    assert "Neighbours without significant differences: best to two." in picture
    lines = dict(re.findall(r'text-anchor: end[^>]*? y="([\d.]+)"[^>]*>(\w+)<', picture))
    assert list(lines.values()) == order
    heights = [float(y) for y in lines]
    ticks = [
        (float(x), int(summary)) for x, summary in re.findall(r'text-anchor: middle[^>]*? x="([\d.]+)"[^>]*>(\d+)<', picture)
    ]
    (left, low), (right, high) = ticks[0], ticks[-1]
    points = re.findall(
        r'data-method="(\w+)" data-description="[^"]*: ([\d.]+)[^"]*".*?<use [^>]*? x="([\d.]+)" y="([\d.]+)"', picture, re.S
    )
    assert [name for name, *_ in points] == order
    level = heights[0] - float(points[0][3])  # a name's foot is a little below the middle of its line
    path = r'd="M ([\d.]+) ([\d.]+) \s*L ([\d.]+) ([\d.]+) \s*"[^>]*'
    spans = [[float(end) for end in ends] for ends in re.findall(path + "stroke-opacity: 0.55", picture)]
    for (name, summary, x, y), height, span in zip(points, heights, spans, strict=True):
        share = 100 * solved[name] / 40
        assert float(summary) == share and float(y) == pytest.approx(height - level, abs=0.1)
        ends = [low + (at - left) * (high - low) / (right - left) for at in (float(x), span[0], span[2])]
        assert ends == pytest.approx([share, *(100 * end for end in wilson(solved[name], 40))], abs=0.1)
        assert span[1] == span[3] == float(y)
    (bar,) = ([float(end) for end in ends] for ends in re.findall(path + "stroke-width: 3;", picture))
    assert bar[0] == bar[2] > max(span[2] for span in spans)
    assert [bar[1] < height - level < bar[3] for height in heights] == [True, True, True, False]


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


def test_long_names_leave_room_to_draw(tmp_path: Path) -> None:
    long = "a_variant_of_a_name_that_is_longer_than_any_picture_of_its_accuracy_is_wide"
    runs = [
        made.run(tmp_path / f"{long}_{seed}", {"cirf_full": {"sums": 0.9}, long: {"sums": 0.2}}, seed=seed) for seed in (1, 2)
    ]
    for picture in make(*runs).pictures.values():
        texts = re.findall(r">([^<>]*)</(?:text|tspan)>", picture)
        assert "a_variant_of_a_name_that_is_lon…" in texts
        assert "differences are not significant" in " ".join(texts) and max(map(len, texts)) <= 64
        assert f"{long}: " in picture


def test_no_tick_is_below_the_bars(tmp_path: Path) -> None:
    shares = {f"m{place}": {"sums": 1 - place / 60} for place in range(30)}
    (picture,) = make(made.run(tmp_path / "run", shares, questions=200)).pictures.values()
    ticks = [int(text) for text in re.findall(r">(\d+)</text>", picture)]
    assert 100 in ticks and max(ticks) == 100


def test_runs_of_one_name_have_pictures_of_their_own(tmp_path: Path) -> None:
    runs = [
        made.run(tmp_path / name, SHARES, part="part", seed=seed)
        for seed, name in enumerate(("a/run", "b/run", "c/r n", "c/r-n"))
    ]
    assert set(make(*runs).pictures) == {"run-1-in", "run-2-in", "r-n-1-in", "r-n-2-in"}


def test_runs_are_distinguished_and_one_method_is_no_pair(tmp_path: Path) -> None:
    one = made.run(tmp_path / "one", SHARES)
    two = made.run(tmp_path / "two", SHARES, part="seed", seed=2)
    assert set(make(one, two, one).pictures) == {"one-in", "two-in"}
    with pytest.raises(MissingInputError, match="at least two methods"):
        make(made.run(tmp_path / "alone", {"cirf_full": {"sums": 0.5}}))


@given(
    st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))))
)
def test_bars_are_the_longest_runs_without_a_difference(drawn: tuple[int, set[tuple[int, int]]]) -> None:
    n, summary = drawn
    apart = {frozenset(pair) for pair in summary if len(set(pair)) == 2}
    names = [f"m{place}" for place in range(n)]
    found = together(names, lambda one, two: frozenset((int(one[1:]), int(two[1:]))) in apart)

    def alike(start: int, end: int) -> bool:
        return not any(frozenset(pair) in apart for pair in combinations(range(start, end + 1), 2))

    every = [(start, end) for start in range(n) for end in range(start + 1, n) if alike(start, end)]
    longest = [one for one in every if not any(other != one and other[0] <= one[0] and one[1] <= other[1] for other in every)]
    assert found == longest
    lanes = lanes_of(found)
    for (one, lane), (two, other) in combinations(zip(found, lanes, strict=True), 2):
        assert lane != other or one[1] < two[0]
