"""Points of accuracy against cost, shared by several analyses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from cirf.pictures.table import Column, with_ends

Point = dict[str, Any]
"""A method's numbers on some tasks; keys that begin with ``_`` are for computing and in no table."""

DOMAINS = {"in": "in domain", "out": "out of domain"}
COSTS = {"seconds": "seconds an answer, one question at a time", "tokens": "generated tokens an answer"}
"""The axis labels of costs."""
UNITS = {"seconds": "s", "tokens": "tokens"}

_NAMED = 4
"""Points that a sentence names, of those left out."""

MEASURED = (
    Column("accuracy", "Accuracy, mean of tasks", "share", bounds=True),
    Column("seconds", "Time an answer", "seconds"),
    Column("tokens", "Tokens an answer", "number"),
)
"""Columns of a point's accuracy and cost."""


def alike(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """The points of the same questions (``_asked``), those that most points answered, and the others."""
    most = Counter(point["_asked"] for point in points).most_common(1)[0][0]
    return [one for one in points if one["_asked"] == most], [one for one in points if one["_asked"] != most]


def left_out(others: Sequence[Point], of: str = "") -> str:
    """A sentence on points that answered other questions than most; ``of``: what they are left out of, if not of all."""
    named = ", ".join(point["method"] for point in others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f"left out{of and f' {of}'}, as having answered other questions than most: {named}{more}."


def costed(points: Sequence[Point], cost: str) -> tuple[list[Point], str]:
    """The points whose cost is known, and a sentence on how many others there are, empty if there is none."""
    known = [point for point in points if point[cost]]
    missing = len(points) - len(known)
    word = {"seconds": "time", "tokens": "count of tokens"}[cost]
    said = f"{missing} of {len(points)} points have no {word} and are not in the picture of it." if missing else ""
    return known, said


def tell(name: str, point: Point, cost: str) -> str:
    """A point in words: its name, accuracy with the interval, and the cost."""
    accuracy = with_ends(point["accuracy"], point["accuracy_low"], point["accuracy_high"], "share")
    value = f"{point[cost]:.3g}" if point[cost] < 1000 else f"{point[cost]:,.0f}"
    return f"{name}: {accuracy} at {value} {UNITS[cost]}"


def without_answers(point: Point) -> Point:
    """A point as a row of a table."""
    return {key: value for key, value in point.items() if not key.startswith("_")}
