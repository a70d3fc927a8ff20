"""Curves over the number of functional tokens, with bars below that count the least used code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cirf.analysis.drawing import canvas
from cirf.analysis.few import FEW
from cirf.analysis.marks import INK, SOFT, Mark, add, marked
from cirf.analysis.table import Form, with_ends

_COLOURS = ("#0b62b0", "#a83c00", "#2f6b2f", "#8a3d86", "#7a5c00", "#00697a", "#b0204f", "#5b3a8c", "#6b4b3a")
_MARKERS = "osD^vPXph"
_BARS = (("#8a92a1", "", "training segments"), ("#c9ced8", "////", "answers"))
_FEW = f"M / K under {FEW}"
_GROUND = 0.5  # where the bars' logarithmic axis begins, so that 1 can be seen


class Curve(NamedTuple):
    """A line: its name; of each point K, value, ends of its interval, whether it is marked; whether it is a mean."""

    name: str
    points: Sequence[tuple[int, float, float | None, float | None, bool]]
    thick: bool


def draw_sizes(
    name: str, title: str, axis: str, form: Form, curves: Sequence[Curve], bars: Sequence[tuple[int, int | None, int]]
) -> str:
    """Values above (shares, drawn as percent), least counts below on a logarithmic axis; marked points are hollow.

    ``form``: how a point tells its value, ``share`` or ``points``.
    ``bars``: K, count of the least used code in training segments (``None``: not known) and in answers. The intervals of single
    tasks are left to the table wherever there is a mean.
    """
    from matplotlib.ticker import FuncFormatter, NullLocator

    sizes = [size for size, _, _ in bars]
    with canvas(4.9, 5.2, name) as (figure, out):
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        above.set_title(title, loc="left", fontsize=10, color=SOFT)
        above.set_xscale("log", base=2)
        marks: list[Mark] = []
        means = any(curve.thick for curve in curves)
        for place, curve in enumerate(curves):
            colour = INK if curve.thick else _COLOURS[place % len(_COLOURS)]
            marker = "o" if curve.thick else _MARKERS[place % len(_MARKERS)]
            xs, ys = [point[0] for point in curve.points], [100 * point[1] for point in curve.points]
            width = 2.2 if curve.thick else 1.2
            above.plot(xs, ys, color=colour, linewidth=width, alpha=1 if curve.thick else 0.8, zorder=2 + curve.thick)
            above.plot([], [], marker=marker, color=colour, linewidth=width, label=curve.name)
            for x, value, low, high, few in curve.points:
                if low is not None and high is not None and (curve.thick or not means):
                    above.plot([x, x], [100 * low, 100 * high], color=colour, linewidth=2, alpha=0.4, solid_capstyle="round")
                face = "white" if few else colour
                told = f"{curve.name}, K = {x}: {with_ends(value, low, high, form)}{f', {_FEW}' if few else ''}"
                looks: dict[str, Any] = {"color": colour, "markerfacecolor": face, "markersize": 6.5, "zorder": 4}
                above.plot([x], [100 * value], marker, **looks, gid=add(marks, told))
        if any(point[4] for curve in curves for point in curve.points):
            above.plot([], [], "o", color=SOFT, markerfacecolor="white", label=_FEW)
        above.set_ylabel(axis)
        above.margins(y=0.08)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
        highest = max((count for bar in bars for count in bar[1:] if count is not None), default=1)
        below.set_yscale("log")
        below.set_ylim(_GROUND, max(10, highest) * 4)
        for place, (colour, hatch, said) in enumerate(_BARS):
            shift = 2 ** (0.14 * (2 * place - 1))
            known = [(bar[0], count) for bar in bars if (count := bar[1 + place]) is not None]
            if not known:
                continue
            heights = [max(0.0, count - _GROUND) for _, count in known]
            lefts = [size * shift * 2**-0.12 for size, _ in known]
            widths = [size * shift * (2**0.12 - 2**-0.12) for size, _ in known]
            looks = {"align": "edge", "color": colour, "hatch": hatch, "edgecolor": SOFT, "linewidth": 0.6, "label": said}
            for drawn, (size, count) in zip(below.bar(lefts, heights, widths, _GROUND, **looks), known, strict=True):
                drawn.set_gid(add(marks, f"least used code in {said}, K = {size}: {count}"))
                below.annotate(
                    str(count), (size * shift, max(count, _GROUND)), (0, 2), textcoords="offset points", ha="center", fontsize=8
                )
        below.set_ylabel("least used")
        below.legend(loc="upper right", fontsize=8, frameon=False, ncols=2, borderaxespad=0)
        below.set_xlabel("functional tokens K")
        below.set_xticks(sizes)
        below.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
        below.xaxis.set_minor_locator(NullLocator())
        below.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,.0f}"))
        below.yaxis.set_minor_locator(NullLocator())
        below.set_xlim(min(sizes) / 2**0.6, max(sizes) * 2**0.6)
        out.append(
            f"{axis} by number of functional tokens{f', {title}' if title else ''}. {'; '.join(mark.told for mark in marks)}"
        )
    return marked(out[0], marks)
