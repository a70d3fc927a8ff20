"""Values with their intervals, a line each: for tables of which a reader wants to see the differences."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill, wrap
from typing import NamedTuple

from cirf.pictures import canvas as reachable
from cirf.pictures.canvas import INK, SOFT, canvas
from cirf.pictures.table import Form, with_ends

_WIDE = 24
"""Letters of a label on one line."""


class Mark(NamedTuple):
    """A value on a line; ``look`` names its place in ``LOOKS``."""

    value: float
    low: float | None = None
    high: float | None = None
    look: str = "ours"


class Look(NamedTuple):
    """How marks of a kind are distinguished: by shape and filling, not by colour alone."""

    colour: str
    marker: str
    filled: bool


LOOKS = {
    "ours": Look("#0b62b0", "o", True),
    "second": Look("#a83c00", "s", True),
    "before": Look("#5d5d5d", "o", False),
    "paper": Look("#8a3d86", "D", False),
}


def draw_dots(
    name: str,
    title: str,
    axis: str,
    lines: Sequence[tuple[str, Sequence[Mark]]],
    form: Form,
    legend: dict[str, str] | None = None,
) -> str:
    """A line a label with its marks; ``axis`` is what they measure, ``legend`` says what the looks mean."""
    scale = 100 if form in ("share", "points") else 1
    height = sum(max(1, 0.62 * len(wrap(label, _WIDE))) for label, _ in lines)
    with canvas(4.9, 1.25 + 0.3 * height + 0.25 * bool(legend), name) as (figure, out):
        axes = figure.add_subplot()
        axes.set_title(title, loc="left", fontsize=10, color=SOFT)
        points: list[reachable.Mark] = []
        for place, (label, marks) in enumerate(lines):
            for mark in marks:
                look = LOOKS[mark.look]
                if mark.low is not None and mark.high is not None:
                    ends = [scale * mark.low, scale * mark.high]
                    axes.plot(ends, [place, place], color=look.colour, linewidth=2, alpha=0.55, solid_capstyle="round")
                face = look.colour if look.filled else "white"
                said = (legend or {}).get(mark.look, "")
                summary = f"{label}{', ' * bool(said)}{said}: {with_ends(mark.value, mark.low, mark.high, form)}"
                axes.plot(
                    [scale * mark.value],
                    [place],
                    marker=look.marker,
                    linestyle="none",
                    color=look.colour,
                    markerfacecolor=face,
                    markersize=7.5,
                    gid=reachable.add(points, summary),
                )
        axes.set_yticks(range(len(lines)), [fill(label, _WIDE) for label, _ in lines])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.grid(axis="y", visible=False)
        axes.set_ylim(len(lines) - 0.4, -0.6)
        axes.margins(x=0.08)
        axes.set_xlabel(axis)
        if legend:
            handles = [
                axes.plot(
                    [],
                    [],
                    marker=look.marker,
                    linestyle="none",
                    color=look.colour,
                    markerfacecolor=look.colour if look.filled else "white",
                )[0]
                for look in (LOOKS[key] for key in legend)
            ]
            figure.legend(
                handles, list(legend.values()), loc="outside lower center", ncols=len(legend), frameon=False, fontsize=9
            )
        out.append(f"{title}: {axis}. {'; '.join(point.description for point in points)}")
    return reachable.marked(out[0], points)
