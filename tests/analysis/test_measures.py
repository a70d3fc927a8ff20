"""Measures of codes and of their embeddings equal what other code, written another way, makes of the same."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import made
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.metrics.pairwise import cosine_similarity

from cirf.analysis.accuracy import FUNCTIONAL
from cirf.analysis.analysis import AnalysisResult, MissingInputError, get
from cirf.analysis.clustering import clustering, measure
from cirf.analysis.geometry import measures, pairwise_cosines
from cirf.analysis.scaling_law import drawn, fit
from cirf.analysis.source import Source
from cirf.statistics import interval, left_out
from cirf.store.files import write_rows

MATRICES = st.tuples(st.integers(1, 9), st.integers(1, 7), st.integers(0, 2**32 - 1)).map(
    lambda drawn: np.random.default_rng(drawn[2]).standard_normal(drawn[:2]).astype(np.float32)
)


@given(MATRICES, st.floats(0.01, 100))
def test_geometry_by_another_way(rows, scale):
    found = measures(rows)
    lengths = [math.sqrt(sum(float(x) ** 2 for x in row)) for row in rows]
    middle = [math.fsum(map(float, column)) / len(rows) for column in rows.T]
    assert found["bias"] == pytest.approx(math.hypot(*middle) / (sum(lengths) / len(lengths)))
    cosines = cosine_similarity(rows.astype(np.float64))
    pairs = [cosines[i, j] for i in range(len(rows)) for j in range(i)]
    if pairs:
        assert found["mean_cosine"] == pytest.approx(float(np.mean(pairs)), abs=1e-9)
        assert found["max_cosine"] == pytest.approx(max(pairs), abs=1e-9)
    else:
        assert found["mean_cosine"] is found["max_cosine"] is None
    for key, value in measures(rows * scale).items():
        assert value == (None if found[key] is None else pytest.approx(found[key], abs=1e-4))


@given(MATRICES)
def test_bias_of_rows_of_one_length_follows_from_their_cosines(rows):
    unit = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    found, count = measures(unit), len(unit)
    summary = 1 / count + (1 - 1 / count) * (found["mean_cosine"] or 0.0)
    assert found["bias"] ** 2 == pytest.approx(max(summary, 0.0), abs=1e-9)


def test_a_row_of_zeros_makes_no_pair():
    rows = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]])
    assert pairwise_cosines(rows).tolist() == [0.0]
    assert measures(np.zeros((3, 2))) == {"bias": None, "mean_cosine": None, "max_cosine": None}


RATIONALES = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from("ab"), st.lists(st.integers(0, 6), max_size=5)), min_size=1, max_size=12
).filter(lambda rows: any(codes for _, _, codes in rows))


@given(RATIONALES)
def test_clustering_by_another_way(rows):
    bags = [(f"q{question}", task, codes) for question, task, codes in rows]
    question, task = measure(bags, 7)
    flat = np.array([code for _, _, codes in bags for code in codes])
    for found, place in ((question, 0), (task, 1)):
        names = np.array([bag[place] for bag in bags for _ in bag[2]])
        assert found.ami == pytest.approx(adjusted_mutual_info_score(names, flat), abs=1e-9)
        assert found.purity == pytest.approx(contingency_matrix(names, flat).max(axis=0).sum() / len(flat))
    assert question.used == len(np.unique(flat)) / 7
    shares = np.unique(flat, return_counts=True)[1] / len(flat)
    assert question.perplexity == pytest.approx(float(np.prod(shares**-shares)))
    long = [codes for _, _, codes in bags if len(codes) >= 2]
    assert question.collapsed == pytest.approx(sum(min(codes) == max(codes) for codes in long) / max(1, len(long)))
    assert question.unique == pytest.approx(np.mean([len(np.unique(codes)) for _, _, codes in bags]))


def test_rationales_of_one_question_are_one_question():
    assert clustering([[0, 1], [0, 1]], 2, ["q", "q"]).purity == 1
    assert clustering([[0, 1], [0, 1]], 2).purity == 0.5


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=20))
def test_the_jackknife_of_a_mean_is_the_textbook_interval(values):
    without = left_out(values, lambda kept: [sum(kept) / len(kept)])
    middle, count = float(np.mean(values)), len(values)
    low, high = interval(middle, [one[0] for one in without])
    reach = t.ppf(0.975, count - 1) * np.std(values, ddof=1) / math.sqrt(count)
    assert (low, high) == (pytest.approx(middle - reach, abs=1e-6), pytest.approx(middle + reach, abs=1e-6))


def test_one_unit_has_no_interval():
    assert interval(1.0, left_out([3], lambda kept: [1.0])) == (None, None)


def test_a_line_through_points_on_a_line():
    x = np.array([1.0, 2.0, 3.0, 5.0])
    many = np.broadcast_to(x, (7, 4))
    line = fit(x, 0.1 + 0.2 * x, many, 0.1 + 0.2 * many, 0.001)
    assert (line.intercept, line.slope) == (pytest.approx(0.1), pytest.approx(0.2))
    assert line.r2 == pytest.approx(1) and line.r2_out == pytest.approx(1)
    assert (line.slope_low, line.slope_high) == (pytest.approx(0.2), pytest.approx(0.2))


@given(st.integers(0, 1000))
def test_a_fit_is_numpys_and_each_point_is_forenamed_by_the_others(seed):
    draw = np.random.default_rng(seed)
    x, y = np.arange(6) + draw.random(6) / 2, draw.random(6)
    line = fit(x, y, x[None], y[None], 0.001)
    slope, intercept = np.polyfit(x, y, 1)
    assert (line.slope, line.intercept) == (pytest.approx(slope), pytest.approx(intercept))
    assert line.r2 == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
    predicted = [np.polyval(np.polyfit(np.delete(x, i), np.delete(y, i), 1), x[i]) for i in range(6)]
    assert line.r2_out == pytest.approx(1 - ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def test_draws_take_the_same_questions_for_all_points():
    values = np.random.default_rng(1).random((1, 30)).repeat(3, axis=0)
    means = drawn([values, values[:, :10]])
    assert np.allclose(means[:, 0], means[:, 2])
    assert means[:, 0].mean() == pytest.approx((values[0].mean() + values[0, :10].mean()) / 2, abs=0.01)


# The line through accuracies: which points count, how many models they are of, and what shows that it is no line

TOKENS = dict(zip(FUNCTIONAL, (4, 8, 16, 32, 64, 128), strict=False))


def make(*runs: Any) -> AnalysisResult:
    return get("scaling_law").make(Source(runs))


def fits(found: AnalysisResult, against: str = "log2 tokens") -> dict[str, Any]:
    (row,) = (row for row in found.tables[0].rows if row["against"] == against)
    return dict(row)


def nested(folder: Any, accuracies: list[float], questions: int = 400, **keys: Any) -> Any:
    """A run whose methods solve the same questions first, so that their differences are sure where their intervals are wide."""
    order = list(range(questions))
    random.Random(1).shuffle(order)
    found = made.run(folder, {name: {"sums": 0.5} for name in FUNCTIONAL[: len(accuracies)]}, questions=questions, **keys)
    for name, accuracy in zip(FUNCTIONAL, accuracies, strict=False):
        solved = set(order[: round(accuracy * questions)])
        rows = [
            {"id": f"sums-{number}", "run": 0, "output": "x", "correct": number in solved, "tokens": TOKENS[name]}
            for number in range(questions)
        ]
        write_rows(folder / "evaluation" / name / "sums.jsonl", rows)
    return found


def test_a_bend_is_seen_that_is_within_each_points_interval(tmp_path):
    bent = make(nested(tmp_path / "bent", [0.50, 0.56, 0.60, 0.62, 0.63, 0.63]))
    assert fits(bent)["p_line"] < 0.01 and "no line" in fits(bent)["reading"] and "no line" in bent.notes[0]
    points = bent.tables[1].rows
    assert all(row["accuracy_low"] < row["accuracy"] - row["residual_tokens"] < row["accuracy_high"] for row in points)
    straight = make(nested(tmp_path / "straight", [0.50, 0.53, 0.56, 0.59, 0.62, 0.65]))
    assert fits(straight)["reading"] == "a trend that these questions cannot distinguish from a line"
    level = make(nested(tmp_path / "level", [0.5, 0.5, 0.5, 0.5], questions=40))
    assert fits(level)["reading"] == "all accuracies are equal: nothing to fit"


@pytest.mark.slow
def test_a_line_is_seldom_called_none():
    dice, x = np.random.default_rng(0), np.arange(6.0)
    called = 0
    for _ in range(200):
        ease = dice.random((1, 300)) * 0.7 + dice.random((6, 300)) * 0.3  # a question that is easy for one is so for all
        solved = (ease < (0.4 + 0.03 * x)[:, None]).astype(float)
        heights = np.array([np.mean((dice.random((20000,)) * 0.7 + dice.random(20000) * 0.3) < 0.4 + 0.03 * at) for at in x])
        y = solved.mean(axis=1) - (heights - np.polyval(np.polyfit(x, heights, 1), x))  # the truth on a line
        draws = drawn([solved], 400) + (y - solved.mean(axis=1))
        line = fit(x, y, np.broadcast_to(x, draws.shape), draws, 0.5 / 300)
        called += line.p_line is not None and line.p_line < 0.05
    assert called <= 24


def test_models_count_once(tmp_path):
    run = made.run(tmp_path / "run", {name: {"sums": 0.5} for name in FUNCTIONAL[:4]}, tokens=TOKENS)
    run.data["recipe"]["variants"] = {FUNCTIONAL[3]: {"method": FUNCTIONAL[3], "model": FUNCTIONAL[0]}}
    assert (fits(make(run))["points"], fits(make(run))["models"]) == (4, 3)
    other = made.run(tmp_path / "other", {FUNCTIONAL[0]: {"sums": 0.5}}, draw=1, tokens={FUNCTIONAL[0]: 5}, seed=2)
    for one in (run, other):
        stage = one.folder / "models" / FUNCTIONAL[0] / "stage.json"
        stage.parent.mkdir(parents=True)
        stage.write_text(json.dumps({"key": "same"}))
    assert (fits(make(run, other))["points"], fits(make(run, other))["models"]) == (5, 3)


def test_points_of_the_same_settings_count_once(tmp_path):
    shares = {name: {"sums": 0.5} for name in FUNCTIONAL[:4]}
    runs = [made.run(tmp_path / "one", shares, tokens=TOKENS)]
    runs.append(made.run(tmp_path / "two", shares | {"direct": {"sums": 0.5}}, tokens=TOKENS, methods=[*shares, "direct"]))
    assert fits(make(*runs))["points"] == 4


def test_points_without_times_leave_the_others_theirs(tmp_path):
    shares = {name: {"sums": 0.5} for name in FUNCTIONAL[:4]}
    timed = made.run(tmp_path / "timed", shares, tokens=TOKENS, seconds={name: TOKENS[name] / 10 for name in shares})
    untimed = made.run(tmp_path / "untimed", shares, tokens=TOKENS, codebook__size=8)
    found = make(timed, untimed)
    assert fits(found)["points"] == 8 and fits(found, "seconds")["points"] == 4
    assert any("4 of 8 points have no time" in note for note in found.notes)


def test_token_counts_that_hardly_differ_have_no_line(tmp_path):
    shares = {name: {"sums": 0.5} for name in FUNCTIONAL[:4]}
    tokens = dict(zip(shares, (100, 101, 104, 108), strict=True))
    said = "the models' token counts differ by less than 10 %"
    with pytest.raises(MissingInputError, match=said):
        make(made.run(tmp_path / "untimed", shares, tokens=tokens))
    found = make(made.run(tmp_path / "timed", shares, tokens=tokens, seconds={name: TOKENS[name] / 10 for name in shares}))
    assert [row["against"] for row in found.tables[0].rows] == ["seconds"]
    assert any(note.endswith(f"the line against tokens is left out: {said}.") for note in found.notes)
    far = make(made.run(tmp_path / "far", shares, tokens=tokens | {FUNCTIONAL[0]: 97}))
    assert fits(far)["points"] == 4


def test_backbones_of_one_last_part_have_lines_of_their_own(tmp_path):
    shares = {name: {"sums": 0.5} for name in FUNCTIONAL[:4]}
    runs = [made.run(tmp_path / name, shares, tokens=TOKENS, backbone__model=f"/{name}/model") for name in "ab"]
    found = make(*runs)
    assert [row["points"] for row in found.tables[0].rows] == [4, 4] and len(found.pictures) == 2
