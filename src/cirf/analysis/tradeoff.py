"""The picture of accuracy against cost: families of methods by colour, the Pareto front, names at the points that matter."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from cirf.pictures.canvas import SOFT, Mark, canvas, gid, marked, ticks
from cirf.pictures.placing import place_names
from cirf.pictures.style import FAMILIES

LONGEST = 44  # characters at which a name is cut in a picture; the description and the table have the full names
FEW = 6  # up to this many points are all named in the picture; of more, those on the front or named anyway
_ROOM = 0.06
_LEAST = 10.0  # fewest percentage points that the axis of accuracy spans


class PictureSize(NamedTuple):
    """Inches of a picture, and points of its text."""

    width: float
    height: float
    font: float


HALF, WIDE, NARROW = PictureSize(4.9, 3.7, 10), PictureSize(8.9, 4.5, 9), PictureSize(3.7, 4.4, 8)
"""Half a page wide, a whole page, and a phone's window."""


class MethodPoint(NamedTuple):
    """A method as a point: its id, display name and words for the reader, family, cost, accuracy with its interval in per cent,
    whether it is on the front, and whether it is named even if not, as the baseline is."""

    method: str
    title: str
    description: str
    family: str
    cost: float
    accuracy: float
    low: float
    high: float
    front: bool
    named: bool = False


def draw(
    spots: Sequence[MethodPoint],
    name: str,
    labels: tuple[str, str],
    description: str,
    *,
    title: str = "",
    unit: str = "",
    size: PictureSize = HALF,
    span: Sequence[float] = (),
) -> str:
    """The SVG of points with their intervals: up and to the left is better. ``labels`` are those of the axes, ``unit`` is that of
    the cost, ``span`` are further costs that the axis is to include."""
    costs = [*(spot.cost for spot in spots), *span]
    with canvas(size.width, size.height, name) as (figure, out):
        axes = figure.add_subplot()
        if title:
            axes.set_title(title, loc="left", fontsize=size.font, color=SOFT)
        logarithmic = _across(axes, costs)
        low, high = min(spot.low for spot in spots), max(spot.high for spot in spots)
        room = max(_ROOM * (high - low), (_LEAST - (high - low)) / 2)
        axes.set_ylim(max(low - room, -2.0), min(high + room, 102.0))
        axes.set_xlabel(labels[0], fontsize=size.font)
        axes.set_ylabel(labels[1], fontsize=size.font)
        axes.tick_params(labelsize=size.font)
        front = sorted((spot.cost, spot.accuracy) for spot in spots if spot.front)
        line = axes.plot([x for x, _ in front], [y for _, y in front], color="#9aa1ad", linewidth=1.4, zorder=1)
        for index, spot in enumerate(spots):
            _point(axes, index, spot, size)
        ticks(axes, "latency" if unit == "s" else "tokens", logarithmic)
        _legend(figure, spots, size)
        named = [len(spots) <= FEW or spot.front or spot.named for spot in spots]
        placed = [(spot.cost, spot.accuracy, spot.low, spot.high, spot.title, FAMILIES[spot.family].colour) for spot in spots]
        place_names(figure, axes, together(placed, named), line, size.font)
        out.append(description)
    return marked(out[0], [Mark(spot.method, spot.description) for spot in spots])


def _point(axes: Any, place: int, spot: MethodPoint, size: PictureSize) -> None:
    """Draw one method, named ones in front."""
    look, first = FAMILIES[spot.family], spot.front or spot.named
    bar: dict[str, Any] = {"linewidth": 1.6, "alpha": 0.5 if first else 0.25, "gid": gid(place, "bar")}
    axes.plot([spot.cost] * 2, [spot.low, spot.high], color=look.colour, solid_capstyle="round", zorder=2, **bar)
    point: dict[str, Any] = {"markersize": size.font - 1 if first else size.font - 2, "alpha": 1.0 if first else 0.75}
    point |= {"markeredgecolor": "white", "zorder": 4 if first else 3, "gid": gid(place, "point")}
    axes.plot([spot.cost], [spot.accuracy], **look.point, **point)


def _across(axes: Any, costs: Sequence[float]) -> bool:
    """Fit the axis of cost; whether it is logarithmic."""
    low, high = min(costs), max(costs)
    if high > 4 * low:
        room = (high / low) ** 0.08
        axes.set_xscale("log")
        axes.set_xlim(low / room, high * room)
        return True
    room = 0.15 * max(high - low, high / 4)
    axes.set_xlim(max(low - room, 0), high + room)
    return False


def _legend(figure: Any, spots: Sequence[MethodPoint], size: PictureSize) -> None:
    """A line above the picture that names the families in it, where there are several."""
    from matplotlib.lines import Line2D

    looks = [look for family, look in FAMILIES.items() if any(spot.family == family for spot in spots)]
    if len(looks) > 1:
        shape: dict[str, Any] = {"markersize": size.font - 2, "markeredgecolor": "white"}
        handles = [Line2D([], [], label=look.title, **shape, **look.point) for look in looks]
        drawn: dict[str, Any] = {"frameon": False, "fontsize": size.font}
        drawn |= {"handletextpad": 0, "columnspacing": 0.9, "borderpad": 0}
        figure.legend(handles=handles, loc="outside upper left", ncols=len(looks), **drawn)


def together(
    points: Sequence[tuple[float, float, float, float, str, str]], named: Sequence[bool]
) -> list[tuple[float, float, float, float, str, str]]:
    """All points, in their order, their names cut, or empty where they are not to be named; where named points coincide the
    first has a name of several lines."""
    made: list[tuple[float, float, float, float, str, str]] = []
    first: dict[tuple[float, float], int] = {}
    for (x, y, low, high, title, colour), beside_it in zip(points, named, strict=True):
        name, known = shorten(title, LONGEST) if beside_it else "", first.get((x, y))
        if name and known is not None:
            above = made[known]
            made[known], name = (*above[:4], f"{above[4]}\n{name}", above[5]), ""
        elif name:
            first[(x, y)] = len(made)
        made.append((x, y, low, high, name, colour))
    return made


def shorten(text: str, longest: int) -> str:
    """A text of at most ``longest`` characters, its end cut where it has more."""
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def on_front(points: Sequence[tuple[float, float | None]]) -> list[bool | None]:
    """Which of (accuracy, cost) no other beats: as good and as cheap, and better in one; ``None`` where no cost is known."""

    def beaten(place: int) -> bool:
        accuracy, cost = points[place]
        assert cost is not None
        return any(
            other[1] is not None and other[0] >= accuracy and other[1] <= cost and (other[0] > accuracy or other[1] < cost)
            for other in points
        )

    return [None if cost is None else not beaten(place) for place, (_, cost) in enumerate(points)]
