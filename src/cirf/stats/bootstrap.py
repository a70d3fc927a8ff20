"""Intervals of means by resampling the items: the bias-corrected and accelerated bootstrap.

A worked example::

    mean_interval([[1.0, 2.0, 4.0, 9.0]])                      -> Interval(1.75, 7.75)
    mean_interval([[1.0, 0.0, 1.0], [0.5, 0.0, 1.0]])          -> of the mean over six items, three drawn in each task
    mean_interval([[1.0, 0.0, 1.0], [0.5, 0.0]], [0.5, 0.5])   -> of the mean of two tasks' means
    mean_interval([[3.0]])                                     -> None: one item says nothing of others

Items are drawn within their task, since an evaluation fixes how many each task has, and an item is drawn with all its runs,
since runs repeat items. BCa and not the plain percentiles, because times and lengths have a long right tail, to which the
percentiles of few items pay too little heed. Source: Efron 1987, "Better bootstrap confidence intervals"; several samples as
in Davison and Hinkley 1997, 5.3.2.

`left_out` and `interval` leave out one group of units at a time: for measures such as mutual information, which resampling would
inflate, because a unit drawn twice agrees with itself. Source: Wolter 2007, "Introduction to Variance Estimation", chapter 4 (the
random group jackknife).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeVar

from cirf.stats.tests import Interval, mean, wilson

if TYPE_CHECKING:
    import numpy as np


DRAWS = 2000
"""Samples drawn; 2.5 % of the means are then beyond an end, give or take 0.35 %."""

_AT_ONCE = 2**18  # values drawn at a time: as many as the caches hold
_FEW = 16  # different values, of which it is quicker to draw how often each comes
_ALPHA = 0.05


def mean_interval(
    tasks: Sequence[Sequence[float]], weights: Sequence[float] | None = None, *, draws: int = DRAWS, seed: int = 0
) -> Interval | None:
    """The 95 % interval of a weighted mean of the tasks' means.

    Args:
        tasks: the items' values, task by task; an item's value is its mean over runs.
        weights: of the tasks' means; ``None``: their shares of the items, which makes it the mean over all items.
        draws: number of samples.
        seed: of the drawing: the same values give the same interval.

    ``None`` where a task has fewer than two items. Where no task's values differ it is the point itself, which says that no
    spread was seen and not that there is none: for shares see `mean_of_shares`. ``ValueError`` on no tasks, or weights that
    are not one a task.
    """
    import numpy as np

    if not tasks or (weights is not None and len(weights) != len(tasks)):
        raise ValueError("an interval of the mean of nothing, or weights that do not fit")
    if min(map(len, tasks)) < 2:
        return None
    total = sum(map(len, tasks))
    shares = [len(values) / total for values in tasks] if weights is None else list(weights)
    point = math.fsum(share * mean(values) for share, values in zip(shares, tasks, strict=True))
    generator = np.random.default_rng(seed)
    sampled = np.zeros(draws)
    cubes = squares = 0.0
    for share, task in zip(shares, tasks, strict=True):
        values = np.asarray(task, dtype=float)
        sampled += share * _means(values, draws, generator)
        influence = share * (values - values.mean()) / len(values)
        cubes, squares = cubes + float((influence**3).sum()), squares + float((influence**2).sum())
    if not (squares**1.5):  # no values differ, or by less than float precision
        return Interval(point, point)
    # Samples that equal the point count half: means of few or of whole numbers often do.
    slack = 1e-12 * max(1.0, abs(point))
    below = float((sampled < point - slack).mean() + (np.abs(sampled - point) <= slack).mean() / 2)
    normal = NormalDist()
    bias = normal.inv_cdf(min(max(below, 0.5 / draws), 1 - 0.5 / draws))
    acceleration = cubes / (6 * squares**1.5)

    def end(tail: float) -> float:
        shifted = bias + normal.inv_cdf(tail)
        return float(np.quantile(sampled, normal.cdf(bias + shifted / (1 - acceleration * shifted))))

    return Interval(end(_ALPHA / 2), end(1 - _ALPHA / 2))


def _means(values: np.ndarray, draws: int, generator: np.random.Generator) -> np.ndarray:
    """``draws`` means of ``len(values)`` values drawn with replacement."""
    import numpy as np

    different, counts = np.unique(values, return_counts=True)
    if len(different) <= _FEW:
        times = generator.multinomial(len(values), counts / len(values), size=draws)
        return np.asarray(times @ different / len(values))
    rows = max(1, _AT_ONCE // len(values))
    parts = []
    for start in range(0, draws, rows):
        places = generator.integers(0, len(values), (min(rows, draws - start), len(values)), dtype=np.int32)
        parts.append(values[places].mean(axis=1))
    return np.concatenate(parts)


def mean_of_shares(tasks: Sequence[Sequence[float]]) -> Interval:
    """The 95 % interval of the mean of the tasks' shares (values from 0 to 1), each task weighing alike.

    That of `mean_interval`; if a task's items are all equal, such as all solved, resampling shows no spread, and Wilson's
    intervals of the tasks are combined instead: each side is the root of the mean square of the tasks' (Zou and Donner 2008, the
    method of variance estimates recovery), divided by the root of their number.
    """
    weights = [1 / len(tasks)] * len(tasks)
    if all(max(values) > min(values) for values in tasks):
        found = mean_interval(tasks, weights)
        assert found is not None  # two values that differ are two items
        return found
    means = [mean(values) for values in tasks]
    bounds = [wilson(min(share * len(values), len(values)), len(values)) for share, values in zip(means, tasks, strict=True)]
    point = mean(means)
    down = math.sqrt(math.fsum((share - bound.low) ** 2 for share, bound in zip(means, bounds, strict=True))) / len(tasks)
    up = math.sqrt(math.fsum((bound.high - share) ** 2 for share, bound in zip(means, bounds, strict=True))) / len(tasks)
    return Interval(max(0.0, point - down), min(1.0, point + up))


GROUPS = 20
"""Groups left out in turn, or as many as there are units."""

Unit = TypeVar("Unit")


def left_out(units: Sequence[Unit], statistic: Callable[[Sequence[Unit]], Sequence[float]]) -> list[Sequence[float]]:
    """Statistics of the units without each group in turn; unit ``i`` is in group ``i mod GROUPS``."""
    groups = min(GROUPS, len(units))
    if groups < 2:
        return []
    return [statistic([unit for place, unit in enumerate(units) if place % groups != group]) for group in range(groups)]


def interval(value: float, without: Sequence[float]) -> tuple[float | None, float | None]:
    """The 95 % interval of a value from those without each group, by Student's t with as many degrees of freedom less one."""
    if len(without) < 2:
        return None, None
    from scipy.stats import t

    groups = len(without)
    middle = math.fsum(without) / groups
    error = math.sqrt((groups - 1) / groups * math.fsum((one - middle) ** 2 for one in without))
    reach = float(t.ppf(0.975, groups - 1)) * error
    return value - reach, value + reach
