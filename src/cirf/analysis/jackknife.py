"""An interval of any statistic of many units: leave out a group of them at a time, and see how far it moves.

Made for measures such as mutual information, which drawing units anew would inflate: a unit drawn twice agrees with itself.
Source: Wolter 2007, "Introduction to Variance Estimation", chapter 4 (the random group jackknife).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

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
