"""Measures of codes and of their embeddings equal what other code, written another way, makes of the same."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.metrics.pairwise import cosine_similarity

from cirf.analysis.clustering import measure
from cirf.analysis.geometry import measures, pairwise_cosines
from cirf.analysis.jackknife import interval, left_out
from cirf.analysis.line import drawn, fit
from cirf.analysis.stability import distribution, jensen_shannon
from cirf.codebook.clustering import clustering

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
    told = 1 / count + (1 - 1 / count) * (found["mean_cosine"] or 0.0)
    assert found["bias"] ** 2 == pytest.approx(max(told, 0.0), abs=1e-9)


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


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=6), RATIONALES)
def test_jensen_shannon_by_its_definition(ours, others):
    theirs = [[min(code, 4) for code in codes] for _, _, codes in others if codes]
    first, second = distribution(ours, 5), distribution(theirs, 5)
    divergence = 0.0
    for one in (first, second):
        for share, both in zip(one, zip(first, second, strict=True), strict=True):
            divergence += share * math.log2(2 * share / sum(both)) / 2 if share else 0
    assert jensen_shannon(first, second) == pytest.approx(math.sqrt(max(0.0, divergence)), abs=1e-6)


def test_a_line_through_points_on_a_line():
    x = np.array([1.0, 2.0, 3.0, 5.0])
    many = np.broadcast_to(x, (7, 4))
    line = fit(x, 0.1 + 0.2 * x, many, 0.1 + 0.2 * many, 0.001)
    assert (line.intercept, line.slope) == (pytest.approx(0.1), pytest.approx(0.2))
    assert line.r2 == pytest.approx(1) and line.r2_out == pytest.approx(1)
    assert (line.slope_low, line.slope_high) == (pytest.approx(0.2), pytest.approx(0.2))


@given(st.integers(0, 1000))
def test_a_fit_is_numpys_and_each_point_is_foretold_by_the_others(seed):
    draw = np.random.default_rng(seed)
    x, y = np.arange(6) + draw.random(6) / 2, draw.random(6)
    line = fit(x, y, x[None], y[None], 0.001)
    slope, intercept = np.polyfit(x, y, 1)
    assert (line.slope, line.intercept) == (pytest.approx(slope), pytest.approx(intercept))
    assert line.r2 == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
    foretold = [np.polyval(np.polyfit(np.delete(x, i), np.delete(y, i), 1), x[i]) for i in range(6)]
    assert line.r2_out == pytest.approx(1 - ((y - foretold) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def test_draws_take_the_same_questions_for_all_points():
    values = np.random.default_rng(1).random((1, 30)).repeat(3, axis=0)
    means = drawn([values, values[:, :10]])
    assert np.allclose(means[:, 0], means[:, 2])
    assert means[:, 0].mean() == pytest.approx((values[0].mean() + values[0, :10].mean()) / 2, abs=0.01)


def test_uses_add_up():
    counts: dict[int, int] = defaultdict(int)
    for code in (0, 1, 1, 3):
        counts[code] += 1
    assert distribution([[0, 1], [1, 3]], 4) == [counts[code] / 4 for code in range(4)]
