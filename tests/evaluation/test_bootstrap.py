import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cirf.evaluation.bootstrap import mean_interval, mean_of_shares
from cirf.evaluation.statistics import wilson

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
@settings(max_examples=50)
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
