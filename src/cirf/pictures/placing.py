"""Names at the points of a picture, where they cover nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from cirf.pictures.canvas import gid, settle

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_STEPS = (12, 22, 32, 44)
_PLACES = [(9, 0), (-9, 0), (0, 7), (0, -7)]
_PLACES += [(right, sign * step) for step in _STEPS for sign in (1, -1) for right in (9, -9, 24, -24, 0)]
"""How far from a point a name may be, in points to the right and up."""

_LEAD = 20  # a name that is farther from its point, in points, gets a line to it
_FAR = 12.0  # how much worse a point of distance is than a square pixel of a line that is covered
_MARK, _NAME, _OUTSIDE, _BEYOND = 4.0, 6.0, 8.0, 64.0
"""How much worse it is to cover a mark or a name, and to leave the axes or the picture, than to cover a line."""

_NEAR = 150.0  # how much worse a name is next to another mark, which would seem to be the one named
_ROUNDS = 3  # how often each name is placed again given the others
_DOTS = 12  # number of places at which a line between two corners is kept clear


class _Placement(NamedTuple):
    """A name's text, its place, its box in pixels (left, bottom, right, top), and its cost independent of the other names."""

    name: str
    right: int
    up: int
    box: np.ndarray
    cost: float

    @property
    def sides(self) -> dict[str, Any]:
        """Which side of the name is at its place."""
        across = "left" if self.right > 0 else "right" if self.right else "center"
        return {"ha": across, "va": "center" if self.right else "bottom" if self.up > 0 else "top"}


def place_names(
    figure: Figure,
    axes: Axes,
    points: Sequence[tuple[float, float, float, float, str, str]],
    lines: Sequence[Line2D] = (),
    font: float = 10,
) -> None:
    """Write each point's name at the nearest place where it covers little and stays inside. A point is its place across and up,
    the lower and upper end of its bar, its name and its colour; ``lines`` are to stay uncovered too, ``font`` is the size of the
    text in points. Each name gets the gid of its point (`canvas.gid`); an empty one is left out."""
    import numpy as np

    settle(figure)
    to_pixels = axes.transData.transform
    marks = np.array([[*(at - 7), *(at + 7)] for at in map(to_pixels, (point[:2] for point in points))])
    ends = [np.concatenate([to_pixels((x, low)), to_pixels((x, high))]) for x, _, low, high, _, _ in points]
    slight = [end + np.array([-1.5, 0, 1.5, 0]) for end in ends]
    for line in lines:
        for start, end in pairwise(to_pixels(np.asarray(line.get_xydata()))):
            slight += [np.concatenate([at - 3, at + 3]) for at in np.linspace(start, end, _DOTS)]
    tried = {
        number: _tries(figure, axes, (x, y), title, font, number, marks, np.array(slight))
        for number, (x, y, _, _, title, _) in enumerate(points)
        if title
    }
    chosen = {number: min(tries, key=lambda one: one.cost) for number, tries in tried.items()}
    for _ in range(_ROUNDS):
        for number, tries in tried.items():
            names = np.array([one.box for other, one in chosen.items() if other != number]).reshape(-1, 4)
            chosen[number] = min(tries, key=lambda one: one.cost + _NAME * _overlap(one.box, names).sum())
    for number, found in chosen.items():
        x, y, _, _, _, colour = points[number]
        lead = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "alpha": 0.7, "shrinkA": 0, "shrinkB": 3}
        axes.annotate(
            found.name,
            (x, y),
            (found.right, found.up),
            textcoords="offset points",
            arrowprops=lead if max(abs(found.up), abs(found.right)) > _LEAD else None,
            color=colour,
            fontweight="bold",
            fontsize=font,
            gid=gid(number, "name"),
            **found.sides,
        )


def _tries(
    figure: Figure,
    axes: Axes,
    place: tuple[float, float],
    title: str,
    font: float,
    number: int,
    marks: np.ndarray,
    slight: np.ndarray,
) -> list[_Placement]:
    """All ways of writing the name of a point. ``marks`` [P x 4] and ``slight`` [n x 4], lines and bars of intervals, are boxes
    in pixels that names are to cover little of; ``marks[number]`` is the point's own."""
    import numpy as np

    point, scale, found = axes.transData.transform(place), figure.dpi / 72, []
    others = np.delete(marks, number, axis=0)
    renderer = figure._get_renderer()  # type: ignore[attr-defined]
    bounds = np.array([axes.get_window_extent(renderer).extents, figure.bbox.extents])
    broken = [title.replace(mark, f"{mark.rstrip()}\n", 1) for mark in (", ", " + ", " with ") if mark in title]
    for name in (title, *broken):  # on one line, and on two where there is a place to break
        text = axes.annotate(name, place, (0, 0), textcoords="offset points", fontweight="bold", fontsize=font)
        extent = text.get_window_extent(renderer)
        text.remove()
        size = np.array([extent.width, extent.height])
        for right, up in _PLACES:
            away = scale * np.array([right, up])
            before = np.array([1 - np.sign(right), 1 if right else 1 - np.sign(up)]) / 2  # shares of the name left and below
            corner = point + away - before * size
            box = np.concatenate([corner - 3, corner + size + 3])
            area = (box[2] - box[0]) * (box[3] - box[1])
            cost = _MARK * _overlap(box, marks).sum() + _overlap(box, slight).sum() + _FAR * (abs(right) + abs(up))
            cost += _NEAR * (_overlap(np.add(box, (-6, -6, 6, 6)), others) > 0).sum()
            cost += (area - _overlap(box, bounds)) @ (_OUTSIDE, _BEYOND)
            for step in range(1, _DOTS) if abs(up) > _STEPS[0] else ():  # a mark on the way would seem to be the one named
                dot = point + away * step / _DOTS
                cost += _NAME * _overlap(np.concatenate([dot - 3, dot + 3]), others).sum()
            found.append(_Placement(name, right, up, box, float(cost)))
    return found


def _overlap(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The square pixels that a box [4] shares with each of others [n x 4]: [n]."""
    import numpy as np

    wide, high = np.minimum(box[2:], others[:, 2:]).T - np.maximum(box[:2], others[:, :2]).T
    shared: np.ndarray = np.where((wide > 0) & (high > 0), wide * high, 0.0)
    return shared
