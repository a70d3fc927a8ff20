"""Intervals and tests: whether two methods differ on the same questions.

Intervals of means are of the bias-corrected and accelerated bootstrap (Efron 1987; several samples as in Davison and Hinkley
1997, 5.3.2), since times and lengths have a long right tail. Items are drawn within their task, with all their runs::

    mean_interval([[1.0, 2.0, 4.0, 9.0]])                      -> Interval(1.75, 7.75)
    mean_interval([[1.0, 0.0, 1.0], [0.5, 0.0]], [0.5, 0.5])   -> of the mean of two tasks' means
    mean_interval([[3.0]])                                     -> None: one item says nothing of others
    wilson(45, 60)                                             -> Interval(0.6277..., 0.8422...)
    compare({"a": 1, "b": 0}, {"a": 1, "b": 1})                -> Comparison(n=2, difference=-0.5, ..., p=1.0)

`left_out` and `interval` leave out one group of units at a time (random group jackknife, Wolter 2007, chapter 4): for measures
such as mutual information, which resampling would inflate, because a unit drawn twice agrees with itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist, fmean, pstdev
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    import numpy as np

DRAWS = 2000  # samples drawn; 2.5 % of the means are then beyond an end, give or take 0.35 %
_AT_ONCE = 2**18  # values drawn at a time: as many as the caches hold
_FEW = 16  # different values, of which it is quicker to draw how often each comes
_ALPHA = 0.05


def mean_interval(
    tasks: Sequence[Sequence[float]], weights: Sequence[float] | None = None, *, draws: int = DRAWS, seed: int = 0
) -> Interval | None:
    """The 95 % interval of a weighted mean of the tasks' means; the same values give the same interval.

    ``tasks``: the items' values, task by task; an item's value is its mean over runs. ``weights``: of the tasks' means; ``None``:
    their shares of the items, which makes it the mean over all items. ``None`` where a task has fewer than two items. Where no
    task's values differ it is the point itself, which says that no spread was seen and not that there is none: for shares see
    `mean_of_shares`. ``ValueError`` on no tasks, or weights that are not one a task.
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


GROUPS = 20  # groups left out in turn, or as many as there are units
Unit = TypeVar("Unit")


def left_out(units: Sequence[Unit], statistic: Callable[[Sequence[Unit]], Sequence[float]]) -> list[Sequence[float]]:
    """Statistics of the units without each group in turn; unit ``i`` is in group ``i mod GROUPS``."""
    groups = min(GROUPS, len(units))
    if groups < 2:
        return []
    return [statistic([unit for index, unit in enumerate(units) if index % groups != group]) for group in range(groups)]


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


Z95 = 1.959963984540054  # the 97.5 % point of the normal distribution: two-sided 95 %
NOISE = 0.05  # a p-value from here on is called noise
_Key = TypeVar("_Key")
_MOST_RUNS = 64  # of one evaluation, whose means are recognised
_EQUAL = 1e-9  # closer than this, gaps are alike


class Interval(NamedTuple):
    """A 95 % confidence interval."""

    low: float
    high: float


class Comparison(NamedTuple):
    """Two methods on the same ``n`` items. ``difference`` is first minus second, as a share, with its 95 % interval.

    ``wins`` and ``losses`` count the items that only the first, only the second solved (better, worse where an item was run
    several times). ``test`` names what ``p`` was found by: ``mcnemar``, ``sign-flip`` (both exact) or ``paired-z``. ``p_holm`` is
    ``p`` corrected for the ``family`` of comparisons that it was looked at with (`corrected`); ``None`` for a single comparison.
    """

    n: int
    difference: float
    interval: Interval
    wins: int
    losses: int
    p: float
    test: str
    p_holm: float | None = None
    family: int = 1

    @property
    def significant(self) -> bool:
        """Whether the difference is significant at the 5 % level, by the corrected p-value if there is one."""
        return (self.p if self.p_holm is None else self.p_holm) < NOISE

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with ``significant`` and the sentence of `describe_difference`."""
        row = {**self._asdict(), "interval": list(self.interval)}
        return {**row, "significant": self.significant, "sentence": describe_difference(self)}


def wilson(successes: float, n: int) -> Interval:
    """Wilson's score interval (95 %) of a share.

    ``successes`` may be fractional, the mean over several runs of the same ``n`` items. It then errs on the safe side: with
    ``p_i`` the chance that item ``i`` is solved, ``r`` runs have the variance ``(Var(p_i) + E[p_i (1 - p_i)] / r) / n``, and
    Wilson's formula takes that of one run. Counting ``n r`` answers instead would leave out that runs repeat the items.
    Without items nothing is known: ``(0, 1)``. Raises ``ValueError`` if ``successes`` is outside ``[0, n]``. Source: Wilson
    1927.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    if n == 0:
        return Interval(0.0, 1.0)
    share, z2 = successes / n, Z95**2
    middle = share + z2 / (2 * n)
    spread = Z95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    scale = 1 + z2 / n
    low = 0.0 if successes == 0 else max(0.0, (middle - spread) / scale)
    high = 1.0 if successes == n else min(1.0, (middle + spread) / scale)
    return Interval(low, high)


mean = fmean  # the mean, free of the order of summation; `ValueError` on nothing


spread = pstdev  # of these very values, divided by their number, as the paper's ± over three runs is; `ValueError` on nothing


def mcnemar(wins: int, losses: int) -> float:
    """Exact two-sided p-value of McNemar's test: under the null each discordant item falls to either side with 1/2. Twice the
    smaller tail of Binomial(wins + losses, 1/2), at most 1."""
    n, k = wins + losses, min(wins, losses)
    tail = sum(math.comb(n, i) for i in range(k + 1))
    return min(1.0, float((2 * tail) / 2**n))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values, in their order, adjusted for having looked at all of them (Holm 1979): each at most 1. Sorted as ``p[0] <=
    ... <= p[m-1]``, the adjusted ``p[i]`` is the largest ``(m - j) * p[j]`` of all ``j <= i``. Calling those below 0.05 real
    keeps the chance of a single false one below 0.05, whatever depends on what."""
    order = sorted(range(len(p_values)), key=lambda place: (p_values[place], place))
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def corrected(comparisons: Mapping[_Key, Comparison]) -> dict[_Key, Comparison]:
    """The same comparisons, each with the p-value that `holm` makes of it among all of them."""
    adjusted = holm([comparison.p for comparison in comparisons.values()])
    pairs = zip(comparisons.items(), adjusted, strict=True)
    return {name: comparison._replace(p_holm=p, family=len(adjusted)) for (name, comparison), p in pairs}


def sign_flip(gaps: Sequence[int]) -> float:
    """Exact two-sided p-value of the paired sign-flip test (Fisher 1935) of whole numbers.

    Under the null each gap could as well have the other sign: the p-value is the share of all ``2^n`` choices of signs
    whose sum is at least as far from zero as the one seen, counted by adding one gap after the other to the distribution
    of sums. For gaps of -1, 0 and 1 it is McNemar's exact test.
    """
    import numpy as np

    sizes = sorted(abs(gap) for gap in gaps if gap)
    seen = abs(sum(gaps))
    if not sizes or not seen:
        return 1.0
    chances = np.ones(1)  # of the sums -reach, -reach + 1, ..., reach
    for size in sizes:
        wider = np.zeros(len(chances) + 2 * size)
        wider[: len(chances)] += chances / 2
        wider[2 * size :] += chances / 2
        chances = wider
    reach = sum(sizes)
    return min(1.0, 2 * float(chances[reach + seen :].sum()))


def compare(first: Mapping[str, float], second: Mapping[str, float]) -> Comparison:
    """Compare two methods item by item.

    Each mapping goes from an item's id to how often it was solved, 0 to 1 (the mean over runs); the ids must be the
    same, else ``ValueError``. The interval is that of `_agresti_min`, for means over several runs too. Where all values are
    0 or 1 the p-value is McNemar's exact one; means over several runs get that of `sign_flip`, which is McNemar's carried
    over to them. Values that are means over no common number of runs get that of the normal approximation of the mean paired
    difference, or where all gaps are alike, so that no spread is seen, McNemar's of their signs.
    """
    if first.keys() != second.keys():
        raise ValueError("the two methods answered different items")
    if not first:
        raise ValueError("a comparison of nothing")
    gaps = [first[item] - second[item] for item in sorted(first)]
    n = len(gaps)
    wins, losses = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    interval = _agresti_min(gaps)
    if all(value in (0, 1) for value in (*first.values(), *second.values())):
        return Comparison(n, (wins - losses) / n, interval, wins, losses, mcnemar(wins, losses), "mcnemar")
    centre = mean(gaps)
    runs = _common_runs([*first.values(), *second.values()])
    if runs:
        return Comparison(n, centre, interval, wins, losses, sign_flip([round(gap * runs) for gap in gaps]), "sign-flip")
    alike = max(gaps) - min(gaps) < _EQUAL
    error = math.sqrt(math.fsum((gap - centre) ** 2 for gap in gaps) / max(1, n - 1) / n)
    p = mcnemar(wins, losses) if alike else math.erfc(abs(centre) / error / math.sqrt(2))
    return Comparison(n, centre, interval, wins, losses, p, "paired-z")


def _common_runs(values: Sequence[float]) -> int | None:
    """The least number of runs that shares like these can be means over, if it is a small one."""
    for runs in range(1, _MOST_RUNS + 1):
        if all(abs(value * runs - round(value * runs)) < _EQUAL for value in values):
            return runs
    return None


def _agresti_min(gaps: Sequence[float]) -> Interval:
    """The 95 % interval of the mean paired difference, from the items' gaps (each -1 to 1). Agresti and Min (2005) add half an
    item to each cell of the table of two methods, which is two items more, with half a win and half a loss among them. Written in
    sums of gaps and of their squares the same holds for means over several runs. It is never without width: gaps that are all
    alike, as where both methods solve all of a few items, show no spread, and that is not to say that there is none."""
    total, squares, n = math.fsum(gaps), math.fsum(gap * gap for gap in gaps) + 1, len(gaps) + 2
    centre, reach = total / n, Z95 * math.sqrt(squares - total * total / n) / n
    return Interval(max(-1.0, centre - reach), min(1.0, centre + reach))


def describe_difference(comparison: Comparison, first: str = "the first", second: str = "the second") -> str:
    """One honest sentence about a comparison: how large the difference is, and whether it is more than noise."""
    points = 100 * comparison.difference
    low, high = (100 * bound for bound in comparison.interval)
    p = _p_text(comparison.p)
    if comparison.p_holm is not None and comparison.family > 1:
        p += f", corrected for {comparison.family} comparisons {_p_text(comparison.p_holm)}"
    span = f"95 % interval {low:+.1f} to {high:+.1f} points, n = {comparison.n}, {p}"
    if comparison.wins == comparison.losses == 0:
        return f"no difference between {first} and {second} on any question ({span})"
    if not comparison.significant:
        return f"the difference between {first} and {second}, {points:+.1f} points, is not significant ({span})"
    word = "above" if points > 0 else "below"
    return f"{first} is {abs(points):.1f} points {word} {second} ({span})"


def _p_text(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"
