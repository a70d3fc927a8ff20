from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cirf.statistics import (
    compare,
    corrected,
    describe_difference,
    holm,
    mcnemar,
    mean,
    mean_interval,
    mean_of_shares,
    sign_flip,
    wilson,
)

COUNTS = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(COUNTS)
def test_wilson_is_scipys(case):
    successes, n = case
    oracle = stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    ours = wilson(successes, n)
    assert ours.low == pytest.approx(oracle.low, abs=1e-9)
    assert ours.high == pytest.approx(oracle.high, abs=1e-9)
    assert 0 <= ours.low <= successes / n <= ours.high <= 1


def test_wilson_of_nothing_knows_nothing_and_refuses_nonsense():
    assert wilson(0, 0) == (0.0, 1.0)
    for successes, n in ((3, 2), (-1, 5)):
        with pytest.raises(ValueError, match="successes"):
            wilson(successes, n)


def test_mean_does_not_depend_on_order():
    values = [1e16, 1.0, -1e16]
    assert mean(values) == mean(values[::-1]) == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="at least one"):
        mean([])


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_is_the_exact_binomial_test(wins, losses):
    oracle = stats.binomtest(wins, wins + losses, 0.5).pvalue if wins + losses else 1.0
    assert mcnemar(wins, losses) == pytest.approx(oracle, rel=1e-9)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=50))
def test_a_comparison_turned_round_is_its_mirror_image(pairs):
    first = {str(i): float(a) for i, (a, _) in enumerate(pairs)}
    second = {str(i): float(b) for i, (_, b) in enumerate(pairs)}
    there, back = compare(first, second), compare(second, first)
    assert there.difference == -back.difference
    assert there.p == back.p
    assert (there.wins, there.losses) == (back.losses, back.wins)
    assert there.interval.low == pytest.approx(-back.interval.high)
    assert there.difference == pytest.approx(mean(list(first.values())) - mean(list(second.values())))
    assert there.test == "mcnemar"


def test_a_known_paired_table():
    first = {f"{i}": float(i < 30) for i in range(100)}
    second = {f"{i}": float(20 <= i < 25) for i in range(100)}
    found = compare(first, second)
    assert (found.wins, found.losses, found.difference) == (25, 0, 0.25)
    assert found.p == pytest.approx(2 * 0.5**25)
    spread = 1.959964 * math.sqrt(26 - 25**2 / 102) / 102  # Agresti and Min: half an item in each cell
    assert found.interval == pytest.approx((25 / 102 - spread, 25 / 102 + spread), abs=1e-6)


def test_means_over_runs_are_compared_by_the_exact_sign_flip_test():
    first = {"a": 1.0, "b": 2 / 3, "c": 1 / 3, "d": 1.0}
    second = {"a": 0.0, "b": 1 / 3, "c": 1 / 3, "d": 2 / 3}
    found = compare(first, second)
    assert found.test == "sign-flip"
    assert found.p == pytest.approx(2 / 8)  # of the eight choices of signs of 3, 1 and 1, the two with all alike
    assert (found.wins, found.losses) == (3, 0)


def test_means_over_no_common_number_of_runs_are_compared_by_their_normal_approximation():
    first = {"a": 0.91371, "b": 0.62113, "c": 0.51327, "d": 1.0}
    second = {"a": 0.00123, "b": 0.31417, "c": 0.51327, "d": 0.70001}
    found = compare(first, second)
    gaps = np.array([first[key] - second[key] for key in "abcd"])
    z = gaps.mean() / (gaps.std(ddof=1) / 2)
    assert found.test == "paired-z"
    assert found.p == pytest.approx(2 * stats.norm.sf(z))


@given(st.lists(st.integers(-4, 4), max_size=10))
def test_sign_flips_are_counted_as_by_brute_force(gaps):
    sums = [sum(s * g for s, g in zip(signs, gaps, strict=True)) for signs in itertools.product((-1, 1), repeat=len(gaps))]
    share = sum(abs(total) >= abs(sum(gaps)) for total in sums) / len(sums)
    assert sign_flip(gaps) == pytest.approx(share)


@given(st.integers(0, 60), st.integers(0, 60))
def test_flipping_the_signs_of_ones_is_mcnemars_test(wins, losses):
    assert sign_flip([1] * wins + [-1] * losses + [0] * 5) == pytest.approx(mcnemar(wins, losses))


def test_several_comparisons_are_corrected_together_and_say_so():
    def against(wins):
        return compare({str(i): 1.0 for i in range(40)}, {str(i): float(i >= wins) for i in range(40)})

    alone = {"clear": against(20), "close": against(6), "closer": against(6)}
    together = corrected(alone)
    assert list(together) == list(alone)
    assert [row.p_holm for row in together.values()] == holm([row.p for row in alone.values()])
    assert alone["close"].significant and not together["close"].significant and together["clear"].significant
    text = describe_difference(together["close"])
    assert "not significant" in text and "p = 0.031, corrected for 3 comparisons p = 0.062" in text
    assert "corrected" not in describe_difference(corrected({"one": alone["close"]})["one"])
    summary = together["close"].to_dict()
    assert summary["p_holm"] == pytest.approx(2 * summary["p"]) and summary["significant"] is False and summary["family"] == 3


def test_different_items_are_refused():
    with pytest.raises(ValueError, match="different items"):
        compare({"a": 1.0}, {"b": 1.0})
    with pytest.raises(ValueError, match="nothing"):
        compare({}, {})


@pytest.mark.parametrize("n", [1, 5, 200])
@pytest.mark.parametrize(("ours", "theirs"), [(1.0, 1.0), (0.0, 0.0), (2 / 3, 2 / 3), (2 / 3, 1 / 3), (0.31337, 0.0), (1.0, 0.0)])
def test_gaps_that_are_all_alike_are_no_certainty(n, ours, theirs):
    found = compare({str(i): ours for i in range(n)}, {str(i): theirs for i in range(n)})
    low, high = found.interval
    assert low <= found.difference <= high and high - low > 1 / (n + 2)
    assert found.p == pytest.approx(2 / 2**n if ours > theirs else 1.0)
    if n == 5:
        assert (low < 0 < high) == (ours - theirs < 0.5)  # five items that differ by a third each could be chance


@pytest.mark.parametrize(("runs", "share"), [(1, 0.9), (3, 0.9), (3, 0.99)])
def test_the_interval_of_a_difference_covers_the_truth(runs, share):
    """Of few items that are nearly all solved, where the spread that is seen is often none."""
    draw = np.random.default_rng(7)
    n, tried, covered = 12, 1000, 0
    for _ in range(tried):
        chances = draw.beta(9 * share, 9 * (1 - share), size=n)
        ours, theirs = (draw.binomial(runs, chances) / runs for _ in range(2))
        low, high = compare({str(i): v for i, v in enumerate(ours)}, {str(i): v for i, v in enumerate(theirs)}).interval
        covered += low <= 0 <= high
    assert covered / tried >= 0.94


def test_noise_is_called_noise():
    even = compare({"a": 1.0, "b": 0.0, "c": 1.0}, {"a": 0.0, "b": 1.0, "c": 0.0})
    text = describe_difference(even, "CIRF", "CoT")
    assert "not significant" in text and "+33.3 points" in text and "n = 3" in text
    clear = compare({str(i): 1.0 for i in range(20)}, {str(i): 0.0 for i in range(20)})
    assert describe_difference(clear, "CIRF", "CoT").startswith("CIRF is 100.0 points above CoT")
    assert "p < 0.001" in describe_difference(clear)
    for value in (0.0, 1.0):
        text = describe_difference(compare({"a": value}, {"a": value}), "CIRF", "CoT")
        assert text.startswith("no difference between CIRF and CoT on any question (95 % interval -") and "n = 1" in text
    assert even.to_dict()["significant"] is False and clear.to_dict()["significant"] is True


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_only_raises_p_values_keeps_their_order_and_is_bonferroni_for_the_least(values):
    adjusted = holm(values)
    assert all(before <= after <= 1 for before, after in zip(values, adjusted, strict=True))
    ranked = sorted(zip(values, adjusted, strict=True))
    assert [after for _, after in ranked] == sorted(adjusted)
    if values:
        assert min(adjusted) == pytest.approx(min(1.0, len(values) * min(values)))


def test_holm_of_a_worked_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


SKEWED = [list(np.random.default_rng(3).lognormal(size=size) * scale) for size, scale in ((25, 1), (40, 3))]


def bca(samples, statistic):
    made = stats.bootstrap(samples, statistic, n_resamples=40_000, rng=1, method="BCa", vectorized=True)
    return made.confidence_interval.low, made.confidence_interval.high


def test_one_task_is_scipys():
    ours = mean_interval([SKEWED[0]], draws=40_000)
    low, high = bca((SKEWED[0],), np.mean)
    assert ours == pytest.approx((low, high), rel=0.02)
    centre = np.mean(SKEWED[0])
    assert ours.high - centre > centre - ours.low  # the long tail is on the right


def test_tasks_are_drawn_apart_as_scipys_samples_are():
    ours = mean_interval(SKEWED, [0.5, 0.5], draws=40_000)
    low, high = bca(tuple(SKEWED), lambda a, b, axis=-1: (np.mean(a, axis=axis) + np.mean(b, axis=axis)) / 2)
    assert ours == pytest.approx((low, high), rel=0.02)
    pooled = mean_interval(SKEWED, draws=40_000)
    weighted = mean_interval(SKEWED, [25 / 65, 40 / 65], draws=40_000)
    assert pooled == weighted


def test_few_different_values_are_drawn_by_their_counts_to_the_same_end():
    shares = [0.0] * 37 + [1.0] * 63
    ours = mean_interval([shares], draws=40_000)
    low, high = bca((shares,), np.mean)
    assert ours == pytest.approx((low, high), abs=0.011)  # a step of the mean is 0.01


@given(st.lists(st.lists(st.floats(0, 100), min_size=2, max_size=30), min_size=1, max_size=4), st.integers(0, 9))
@settings(max_examples=25)
def test_the_same_values_give_the_same_interval_around_their_mean(tasks, seed):
    found = mean_interval(tasks, draws=300, seed=seed)
    assert found == mean_interval(tasks, draws=300, seed=seed)
    everything = [value for task in tasks for value in task]
    low, high = min(everything), max(everything)
    assert low - 1e-9 <= found.low <= found.high <= high + 1e-9


def test_a_single_item_says_nothing_and_equal_ones_show_no_spread():
    assert mean_interval([[3.0]]) is None
    assert mean_interval([[1.0, 2.0], [3.0]]) is None
    assert mean_interval([[2.0, 2.0]]) == (2.0, 2.0)
    for tasks, weights in (([], None), ([[1.0, 2.0]], [0.5, 0.5])):
        with pytest.raises(ValueError, match="nothing, or weights"):
            mean_interval(tasks, weights)


def test_scaling_the_values_scales_the_interval():
    once, thrice = mean_interval([SKEWED[0]]), mean_interval([[3 * value for value in SKEWED[0]]])
    assert thrice == pytest.approx([3 * bound for bound in once])


def test_tasks_solved_whole_keep_an_interval():
    whole = mean_of_shares([[1.0] * 20])
    assert whole == pytest.approx(wilson(20, 20))
    two = mean_of_shares([[1.0] * 20, [1.0, 0.0] * 10])
    assert 0 < two.low < 0.75 < two.high <= 1
    assert two.low > mean_of_shares([[1.0] * 5, [1.0, 0.0] * 10]).low  # fewer questions say less
    spread = [[1.0] * 15 + [0.0] * 5, [1.0, 0.0] * 10]
    assert mean_of_shares(spread) == mean_interval(spread, [0.5, 0.5])


@pytest.mark.parametrize("runs", [1, 3])
def test_wilsons_interval_covers_the_truth_however_often_the_questions_are_asked(runs):
    """The interval is of ``n`` questions drawn from many, each with a chance of its own, whatever the number of runs."""
    draw = np.random.default_rng(5)
    n, covered, tried = 200, 0, 2000
    for _ in range(tried):
        chances = draw.beta(1.4, 0.6, size=n)  # 0.7 in the mean
        solved = draw.binomial(runs, chances).sum() / runs
        low, high = wilson(solved, n)
        covered += low <= 0.7 <= high
    assert 0.94 <= covered / tried <= (0.96 if runs == 1 else 1.0)
