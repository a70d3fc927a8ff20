"""Names beside the points of a picture, where they cover nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cirf.analysis.drawing import settle
from cirf.analysis.marks import gid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.transforms import Bbox

_Place = tuple[tuple[int, int], str, str, float]
"""How far from a point, in points; which side of the name lies there, across and along; and the point's height."""

CROWD = 12
"""Of more points only some are named beside them, the others below the picture."""

_COLUMNS = 3
"""Most names in a line below it."""

_CUT = 10
"""How much worse it is to reach beyond the picture than beyond its axes."""

_NAME = 5
"""How much worse it is to cover a name than a point, a bar or a line."""

_DOTS = 12
"""A line between two corners is kept clear at so many places."""


def place_names(
    figure: Figure,
    axes: Axes,
    points: Sequence[tuple[float, float, float, float, str, str]],
    lines: Sequence[Line2D] = (),
) -> None:
    """Write each point's name beside it, at the first of some places where it covers nothing and stays inside.

    A point is where it lies across and up, the lower and upper end of its bar, its name and its colour; ``lines`` are to stay
    uncovered too. Each name gets the gid of its point (`marks.gid`); one that is empty is left out.
    """
    import numpy as np
    from matplotlib.transforms import Bbox

    settle(figure)
    renderer = figure._get_renderer()  # type: ignore[attr-defined]
    inside = axes.get_window_extent(renderer)
    taken, names = list[Bbox](), list[Bbox]()
    for x, y, low, high, _, _ in points:
        (left, bottom), (_, top) = axes.transData.transform((x, low)), axes.transData.transform((x, high))
        taken.append(Bbox.from_extents(left - 4, bottom, left + 4, top))
        middle = axes.transData.transform((x, y))
        taken.append(Bbox.from_extents(middle[0] - 6, middle[1] - 6, middle[0] + 6, middle[1] + 6))
    for line in lines:
        corners = axes.transData.transform(np.asarray(line.get_xydata()))
        for start, end in pairwise(corners):
            taken += [Bbox.from_extents(*(at - 3), *(at + 3)) for at in np.linspace(start, end, _DOTS)]
    for mark, (x, y, low, high, title, colour) in enumerate(points):
        if not title:
            continue
        places: list[_Place] = [
            ((11, 0), "left", "center", y),
            ((-11, 0), "right", "center", y),
            ((0, 7), "center", "bottom", high),
        ]
        places += [((0, -7), "center", "top", low), ((11, 16), "left", "center", y), ((11, -16), "left", "center", y)]
        places += [((-11, 16), "right", "center", y), ((-11, -16), "right", "center", y)]
        places += [((8, 5), "right", "bottom", high), ((8, -5), "right", "top", low)]
        places += [((-8, 5), "left", "bottom", high), ((-8, -5), "left", "top", low)]
        places += [((8, 20), "right", "bottom", high), ((8, -20), "right", "top", low)]
        written = dict.fromkeys((title, title.replace(", ", ",\n", 1)))  # on two lines where that fits better
        tried: list[tuple[float, int, Any, Bbox]] = []
        for name in written:
            text = axes.annotate(name, (x, y), (0, 0), textcoords="offset points", color=colour, fontweight="bold")
            size = text.get_window_extent(renderer)  # measured once: where it stands does not change it
            for place in places:
                box = _box(axes.transData.transform((x, place[3])), place, size, figure.dpi / 72).padded(4)
                outside = _beyond(box, inside) + _CUT * _beyond(box, figure.bbox)
                covered = sum(_overlap(box, other) for other in taken) + _NAME * sum(_overlap(box, other) for other in names)
                tried.append((20 * outside + covered, len(tried), text, box))
        _, number, chosen, box = min(tried, key=lambda one: one[:2])
        for text in {id(one[2]): one[2] for one in tried}.values():
            if text is not chosen:
                text.remove()
        offset, across, along, height = places[number % len(places)]
        chosen.xy = (x, height)
        chosen.set(position=offset, horizontalalignment=across, verticalalignment=along, gid=gid(mark, "name"))
        names.append(box)


def _box(point: Any, place: _Place, size: Bbox, scale: float) -> Bbox:
    """Where a text of that size comes to stand beside a point, both in pixels."""
    from matplotlib.transforms import Bbox

    (right, up), across, along, _ = place
    left = point[0] + scale * right - {"left": 0, "center": 0.5, "right": 1}[across] * size.width
    bottom = point[1] + scale * up - {"bottom": 0, "center": 0.5, "top": 1}[along] * size.height
    return Bbox.from_bounds(left, bottom, size.width, size.height)


def names_below(figure: Figure, handles: Sequence[Line2D]) -> None:
    """Write the labels of these markers below the picture, in as many columns as it has room for; it grows by their lines."""
    if not handles:
        return
    height, renderer = figure.get_figheight(), figure._get_renderer()  # type: ignore[attr-defined]
    for columns in range(_COLUMNS, 0, -1):
        figure.set_figheight(height + 0.2 * math.ceil(len(handles) / columns))
        legend = figure.legend(
            handles=handles, loc="outside lower left", ncols=columns, fontsize=8, frameon=False, handletextpad=0.1
        )
        if columns == 1 or legend.get_window_extent(renderer).width <= 0.97 * figure.bbox.width:
            return
        legend.remove()


def _beyond(box: Any, around: Any) -> float:
    beyond = (around.x0 - box.x0, around.y0 - box.y0, box.x1 - around.x1, box.y1 - around.y1)
    return float(sum(max(0.0, by) for by in beyond))


def _overlap(one: Any, other: Any) -> float:
    wide = min(one.x1, other.x1) - max(one.x0, other.x0)
    high = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(wide * high) if wide > 0 and high > 0 else 0.0
