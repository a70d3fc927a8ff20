"""Analyses of several runs on answers and codes that the test knows, recomputed by hand."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import made
import pytest
from scipy.stats import binomtest

from cirf.analysis.analysis import AnalysisResult, MissingInputError, get
from cirf.analysis.groups import distinct_labels, grouped
from cirf.analysis.source import Source
from cirf.store.jsonl import read_rows

BOTH = {"sums": 0.6, "coins": 0.8}


def make(name: str, *runs: Any, paper: bool = False) -> AnalysisResult:
    return get(name).make(Source(runs, paper))


def rows(found: AnalysisResult, table: str) -> list[Any]:
    return list(next(one for one in found.tables if one.name == table).rows)


def codes(count: int, size: int, seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(size) for _ in range(3)] for _ in range(count)]


def answers(run: Any, task: str, method: str = "cirf_full") -> dict[str, bool]:
    return {row["id"]: row["correct"] for row in read_rows(run.folder / "evaluation" / method / f"{task}.jsonl")}


def test_codebook_size(tmp_path):
    known = {"sums": codes(30, 3), "coins": codes(10, 3)}
    small, large = (
        made.run(tmp_path / f"k{size}", {"cirf_full": BOTH}, codes=known, draw=size, codebook__size=size) for size in (4, 32)
    )
    other = made.run(tmp_path / "other", {"cirf_full": BOTH}, codes=known, seed=2)
    found = make("codebook_size", large, small, other)
    table = rows(found, "codebook_size")
    assert {(row["size"], row["task"]) for row in table} == {
        (size, task) for size in (4, 32) for task in ("sums", "coins", "mean in domain")
    }
    for task in ("sums", "coins"):
        pair = {row["size"]: row for row in table if row["task"] == task}
        shares = {run.key("codebook.size"): sum(answers(run, task).values()) / 40 for run in (small, large)}
        assert {size: row["accuracy"] for size, row in pair.items()} == pytest.approx(shares)
        assert {size: row["delta"] for size, row in pair.items()} == pytest.approx(
            {size: share - min(shares.values()) for size, share in shares.items()}
        )
    assert {row["size"]: row["few"] for row in table} == {4: "", 32: "few"}
    count = Counter(code for rationales in known.values() for one in rationales for code in one)
    use = {row["size"]: row for row in rows(found, "codebook_use")}
    assert use[4]["segments"] == 120 and use[4]["per_code"] == 30
    assert use[4]["trained_least"] == min(count.get(code, 0) for code in range(4)) and use[4]["trained_used"] == len(count)
    assert use[4]["written"] == 80 and use[4]["written_used"] == 3 and use[4]["written_least"] == 0
    assert "M / K under 10" in found.pictures["accuracy"] and "least used code in answers" in found.pictures["accuracy"]
    assert found.pictures == make("codebook_size", large, small, other).pictures


def test_codebook_size_draws_a_curve_a_representation(tmp_path):
    runs = [
        made.run(tmp_path / f"{kind}{size}", {"cirf_full": BOTH}, codebook__size=size, codebook__representation=kind)
        for kind in ("raw", "mean_centered")
        for size in (4, 8)
    ]
    found = make("codebook_size", *runs)
    assert set(found.pictures) == {
        f"{what}-representation-{kind}" for what in ("accuracy", "delta") for kind in ("raw", "mean_centered")
    }


def test_ablations_test_against_the_papers_choice(tmp_path):
    chosen = made.run(tmp_path / "chosen", {"cirf_full": {"sums": 0.9, "coins": 0.9}}, draw=1)
    raw = made.run(tmp_path / "raw", {"cirf_full": {"sums": 0.3, "coins": 0.9}}, draw=2, codebook__representation="raw")
    near = made.run(tmp_path / "near", {"cirf_full": {"sums": 0.9, "coins": 0.9}}, draw=1, codebook__representation="random")
    found = make("representation", raw, chosen, near, paper=True)
    table = {row["representation"]: row for row in rows(found, "representation") if row["source"] != "paper"}
    wins = losses = 0
    for task in made.TASKS:
        ours, theirs = answers(raw, task), answers(chosen, task)
        wins += sum(ours[name] > theirs[name] for name in ours)
        losses += sum(ours[name] < theirs[name] for name in ours)
    assert table["raw"]["p"] == pytest.approx(binomtest(wins, wins + losses).pvalue)
    assert table["raw"]["p_holm"] == pytest.approx(2 * table["raw"]["p"]) and table["raw"]["reading"] == "below"
    assert table["raw"]["difference"] == pytest.approx((wins - losses) / 80)
    assert table["raw"]["mean"] == pytest.approx(sum(sum(answers(raw, task).values()) / 40 for task in made.TASKS) / 2)
    assert table["random"]["reading"] == "no difference on any question"
    assert table["mean_centered"]["reading"] == "the reference"
    assert "no run is of the paper's choice" in " ".join(make("representation", raw, near).notes)
    theirs = [row for row in rows(found, "representation") if row["source"] == "paper"]
    assert len(theirs) == 4 and theirs[0]["task:gsm8k"] == pytest.approx(0.353) and theirs[3]["mean"] == pytest.approx(0.844)


def test_a_difference_inside_the_noise_is_called_so(tmp_path):
    chosen = made.run(tmp_path / "chosen", {"cirf_full": BOTH}, draw=1)
    raw = made.run(tmp_path / "raw", {"cirf_full": BOTH}, draw=2, codebook__representation="raw")
    found = make("representation", chosen, raw)
    assert "not significant" in found.notes[0]
    assert rows(found, "representation")[1]["reading"] == "not significant"


def test_other_questions_are_not_tested(tmp_path):
    chosen = made.run(tmp_path / "chosen", {"cirf_full": BOTH})
    raw = made.run(tmp_path / "raw", {"cirf_full": BOTH}, questions=30, codebook__representation="raw")
    found = make("representation", chosen, raw)
    assert "did not answer the same questions" in found.notes[0]
    assert all("p" not in row for row in rows(found, "representation"))


def test_initialisation_shows_both_readings_of_random(tmp_path):
    made_runs = [
        made.run(tmp_path / "chosen", {"cirf_full": BOTH}),
        made.run(tmp_path / "both", {"cirf_full": BOTH}, codebook__initialiser="random", vocabulary__init="random"),
        made.run(tmp_path / "noise", {"cirf_full": BOTH}, codebook__representation="random"),
        made.run(tmp_path / "raw", {"cirf_full": BOTH}, codebook__representation="raw"),
    ]
    table = rows(make("initialisation", *made_runs), "initialisation")
    assert {(row["initialiser"], row["embedding"], row["representation"]) for row in table} == {
        ("sinkhorn", "trained", "mean_centered"),
        ("random", "random", "mean_centered"),
        ("sinkhorn", "trained", "random"),
    }


def test_initialisation_sets_codes_that_were_never_balanced_apart(tmp_path):
    nearest = {"codebook__reassign": "nearest", "codebook__assign": "nearest"}
    made_runs = [
        made.run(tmp_path / "chosen", {"cirf_full": BOTH}),
        made.run(tmp_path / "balanced", {"cirf_full": BOTH}, codebook__initialiser="kmeans"),
        made.run(tmp_path / "never", {"cirf_full": BOTH}, codebook__initialiser="kmeans", **nearest),
        made.run(tmp_path / "half", {"cirf_full": BOTH}, codebook__initialiser="kmeans", codebook__reassign="nearest"),
    ]
    table = rows(make("initialisation", *made_runs), "initialisation")
    assert {row["source"]: (row["initialiser"], row["assignment"]) for row in table} == {
        "chosen": ("sinkhorn", "sinkhorn"),
        "balanced": ("kmeans", "sinkhorn"),
        "never": ("kmeans", "nearest"),
        "half": ("kmeans", "nearest, at the end sinkhorn"),
    }
    assert [row["reading"] for row in table if row["source"] == "chosen"] == ["the reference"]


def test_clustering_says_which_way_centring_falls(tmp_path):
    plain = {"sums": [[number % 4, (number + 1) % 4] for number in range(24)]}
    own = {"sums": [[number % 4] * 2 for number in range(24)]}
    centred = made.run(tmp_path / "centred", {}, codes=plain)
    raw = made.run(tmp_path / "raw", {}, codes=own, codebook__representation="raw")
    found = make("clustering", centred, raw)
    table = {row["representation"]: row for row in rows(found, "clustering")}
    assert table["raw"]["collapsed"] == 1 and table["mean_centered"]["collapsed"] == 0
    assert table["raw"]["unique"] == 1 and table["mean_centered"]["unique"] == 2
    effect = {row["measure"]: row for row in rows(found, "centring")}
    assert effect["AMI of code and question"]["reading"] == "lower"
    assert any("mean-centring lowers AMI of code and question" in note for note in found.notes)


def test_clustering_marks_a_codebook_of_few_segments(tmp_path):
    codes = {"sums": [[number % 4, (number + 1) % 4] for number in range(24)]}  # 48 segments
    for size, summary in ((4, ""), (8, "few")):
        found = make("clustering", made.run(tmp_path / str(size), {}, codes=codes, codebook__size=size))
        assert [row["few"] for row in rows(found, "clustering")] == [summary]
        assert any("few segments" in note for note in found.notes) == bool(summary)


def family(tmp_path: Any, model: str, better: float, **keys: Any) -> Any:
    shares = {"cirf_full": 0.8, "cirf_fast": 0.7, "cirf_faster": 0.5, "codi": better, "pause": 0.2}
    seconds = {"cirf_full": 1.0, "cirf_fast": 0.7, "cirf_faster": 0.4, "codi": 0.9, "pause": 0.3}
    tokens = {"cirf_full": 24, "cirf_fast": 16, "cirf_faster": 8, "codi": 6, "pause": 4}
    return made.run(
        tmp_path / f"{model}{len(keys)}",
        {name: {"sums": share, "coins": share, "far": share / 2} for name, share in shares.items()},
        out=["far"],
        seconds=seconds,
        tokens=tokens,
        draw=len(model),
        backbone__model=model,
        **keys,
    )


def test_scaling_says_what_cirf_beats(tmp_path):
    runs = [family(tmp_path, "tiny-135m", 0.3), family(tmp_path, "small-0.5b", 0.95)]
    found = make("scaling", *runs)
    beaten = {
        (row["backbone"], row["method"]): row.get("beaten_seconds") for row in rows(found, "scaling") if row["domain"] == "in"
    }
    assert beaten["tiny-135m", "codi"] is True and beaten["small-0.5b", "codi"] is False
    assert beaten["tiny-135m", "cirf_full"] is None and beaten["tiny-135m", "pause"] is False
    assert any("codi" in note and "not beaten by time" in note for note in found.notes)
    assert len(found.pictures) == 8
    with pytest.raises(MissingInputError, match="two backbones"):
        make("scaling", runs[0])


def test_variants_of_one_run(tmp_path):
    found = make("variants", family(tmp_path, "tiny-135m", 0.3))
    table = {(row["domain"], row["method"]): row for row in rows(found, "variants")}
    assert len(table) == 6 and table["in", "cirf_faster"]["speedup"] == pytest.approx(2.5)
    assert set(found.pictures) == {"in-seconds", "in-tokens", "out-seconds", "out-tokens"}


def test_the_law_is_refused_on_few_points_and_fitted_on_enough(tmp_path):
    one = family(tmp_path, "tiny-135m", 0.3)
    with pytest.raises(MissingInputError, match="at least 4 functional methods"):
        make("scaling_law", one)
    two = family(tmp_path, "tiny-135m", 0.3, codebook__size=8)
    found = make("scaling_law", one, two)
    row = next(row for row in rows(found, "scaling_law") if row["domain"] == "in" and row["against"] == "seconds")
    points = [point for point in rows(found, "points") if point["domain"] == "in"]
    assert row["points"] == len(points) == 6
    height = [row["intercept"] + row["slope"] * point["seconds"] for point in points]
    assert [point["accuracy"] - point["residual_seconds"] for point in points] == pytest.approx(height)
    assert row["slope_low"] < row["slope"] < row["slope_high"]
    assert {point["method"]: point["gamma"] for point in points} == {"cirf_full": None, "cirf_fast": 0.1, "cirf_faster": 0.2}
    assert any("from 6 points" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("codebook_size", "differ only in codebook.size"),
        ("representation", "codebook.representation"),
        ("initialisation", "codebook.initialiser"),
        ("scaling", "two backbones"),
        ("variants", "two CIRF variants"),
        ("scaling_law", "at least 4"),
        ("geometry", "models/cirf_full"),
        ("clustering", "`codebook`"),
    ],
)
def test_what_is_lacking_is_said(name, said, tmp_path):
    with pytest.raises(MissingInputError, match=said):
        make(name, made.run(tmp_path / "run", {"cirf_full": BOTH}))


def test_groups_say_what_distinguishes_them(tmp_path):
    runs = [
        made.run(tmp_path / f"{size}{seed}{rate}", {}, codebook__size=size, seed=seed, finetune__learning_rate=rate)
        for size in (4, 8)
        for seed, rate in ((1, 0.1), (2, 0.1), (1, 0.2), (1, 0.1))[:3]
    ]
    assert [group.label for group in grouped([*runs, *runs], ("codebook.size",))] == ["base", "seed 2", "learning_rate 0.2"]
    assert all(len(group.runs) == 2 for group in grouped(runs, ("codebook.size",)))
    assert distinct_labels([{"a": "x", "b": "y"}, {"a": "z", "b": "y"}]) == ["x", "z"]
