"""Names at the points of a picture, where they cover nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from cirf.pictures.canvas import gid, settle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.transforms import Bbox


class _Place(NamedTuple):
    """How far from a point a name is, in points to the right and up, and which side of the name is there."""

    right: int
    up: int
    across: str
    along: str


_STEPS = (12, 22, 32, 44)
_PLACES = [
    _Place(9, 0, "left", "center"),
    _Place(-9, 0, "right", "center"),
    _Place(0, 7, "center", "bottom"),
    _Place(0, -7, "center", "top"),
]
for _step in _STEPS:
    for _up in (_step, -_step):
        _PLACES += [_Place(9, _up, "left", "center"), _Place(-9, _up, "right", "center")]
        _PLACES += [_Place(24, _up, "left", "center"), _Place(-24, _up, "right", "center")]
        _PLACES += [_Place(0, _up, "center", "bottom" if _up > 0 else "top")]

_LEAD = 20  # a name that is farther from its point, in points, gets a line to it
_FAR = 12.0  # how much worse a point of distance is than a square pixel of a line that is covered
_MARK, _NAME, _OUTSIDE, _BEYOND = 4.0, 6.0, 8.0, 64.0
"""How much worse it is to cover a mark or a name, and to leave the axes or the picture, than to cover a line."""

_NEAR = 150.0  # how much worse a name is next to another mark, which would seem to be the one named
_ROUNDS = 3  # how often each name is placed again given the others
_DOTS = 12  # number of places at which a line between two corners is kept clear


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
    settle(figure)
    marks, slight = _covered(axes, points, lines)
    tried = {
        number: _tries(figure, axes, (x, y), title, font, number, marks, slight)
        for number, (x, y, _, _, title, _) in enumerate(points)
        if title
    }
    chosen = {number: min(tries, key=lambda one: one.worse) for number, tries in tried.items()}
    for _ in range(_ROUNDS):
        for number, tries in tried.items():
            names = [one.box for other, one in chosen.items() if other != number]
            chosen[number] = min(tries, key=lambda one: one.worse + _NAME * sum(_overlap(one.box, box) for box in names))
    for number, found in chosen.items():
        x, y, _, _, _, colour = points[number]
        lead = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "alpha": 0.7, "shrinkA": 0, "shrinkB": 3}
        text = axes.annotate(
            found.name,
            (x, y),
            (found.at.right, found.at.up),
            textcoords="offset points",
            arrowprops=lead if abs(found.at.up) > _LEAD or abs(found.at.right) > _LEAD else None,
            **_look(colour, font),
        )
        text.set(horizontalalignment=found.at.across, verticalalignment=found.at.along, gid=gid(number, "name"))


class _Placement(NamedTuple):
    """A name's text, place and pixels, and its cost independent of the other names."""

    name: str
    at: _Place
    box: Bbox
    worse: float


def _tries(
    figure: Figure,
    axes: Axes,
    point: tuple[float, float],
    title: str,
    font: float,
    number: int,
    marks: list[Bbox],
    slight: list[Bbox],
) -> list[_Placement]:
    """All ways of writing the name of a point, whose own mark is ``marks[number]``."""
    others = marks[:number] + marks[number + 1 :]
    renderer = figure._get_renderer()  # type: ignore[attr-defined]
    inside, found = axes.get_window_extent(renderer), []
    broken = [title.replace(mark, f"{mark.rstrip()}\n", 1) for mark in (", ", " + ", " with ") if mark in title]
    for name in (title, *broken):  # on one line, and on two where there is a place to break
        text = axes.annotate(name, point, (0, 0), textcoords="offset points", **_look("black", font))
        size = text.get_window_extent(renderer)
        text.remove()
        for at in _PLACES:
            box = _box(axes.transData.transform(point), at, size, figure.dpi / 72).padded(3)
            area = box.width * box.height
            worse = _MARK * sum(_overlap(box, other) for other in marks) + sum(_overlap(box, other) for other in slight)
            worse += _NEAR * sum(_overlap(box.padded(6), other) > 0 for other in others)
            worse += _FAR * (abs(at.up) + abs(at.right))
            way = _way(axes.transData.transform(point), at, figure.dpi / 72)
            worse += _NAME * sum(_overlap(dot, other) for dot in way for other in others)
            worse += _OUTSIDE * (area - _overlap(box, inside)) + _BEYOND * (area - _overlap(box, figure.bbox))
            found.append(_Placement(name, at, box, worse))
    return found


def _way(point: Any, at: _Place, scale: float) -> list[Bbox]:
    """What is between a point and a name that is not next to it: another mark there would seem to be the one named."""
    from matplotlib.transforms import Bbox

    steps = range(1, _DOTS) if abs(at.up) > _STEPS[0] else ()
    shares = [scale * step / _DOTS for step in steps]
    middles = [(point[0] + share * at.right, point[1] + share * at.up) for share in shares]
    return [Bbox.from_extents(x - 3, y - 3, x + 3, y + 3) for x, y in middles]


def _look(colour: str, font: float) -> dict[str, Any]:
    return {"color": colour, "fontweight": "bold", "fontsize": font}


def _covered(
    axes: Axes, points: Sequence[tuple[float, float, float, float, str, str]], lines: Sequence[Line2D]
) -> tuple[list[Bbox], list[Bbox]]:
    """What names are to cover little of, in pixels: marks, and what matters less, lines and the bars of intervals."""
    import numpy as np
    from matplotlib.transforms import Bbox

    marks, slight = list[Bbox](), list[Bbox]()
    for x, y, low, high, _, _ in points:
        (left, bottom), (_, top) = axes.transData.transform((x, low)), axes.transData.transform((x, high))
        slight.append(Bbox.from_extents(left - 1.5, bottom, left + 1.5, top))
        across, up = axes.transData.transform((x, y))
        marks.append(Bbox.from_extents(across - 7, up - 7, across + 7, up + 7))
    for line in lines:
        corners = axes.transData.transform(np.asarray(line.get_xydata()))
        for start, end in pairwise(corners):
            slight += [Bbox.from_extents(*(at - 3), *(at + 3)) for at in np.linspace(start, end, _DOTS)]
    return marks, slight


def _box(point: Any, place: _Place, size: Bbox, scale: float) -> Bbox:
    """The pixels of a text of that size at a place of a point."""
    from matplotlib.transforms import Bbox

    left = point[0] + scale * place.right - {"left": 0, "center": 0.5, "right": 1}[place.across] * size.width
    bottom = point[1] + scale * place.up - {"bottom": 0, "center": 0.5, "top": 1}[place.along] * size.height
    return Bbox.from_bounds(left, bottom, size.width, size.height)


def _overlap(one: Any, other: Any) -> float:
    wide = min(one.x1, other.x1) - max(one.x0, other.x0)
    high = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(wide * high) if wide > 0 and high > 0 else 0.0
