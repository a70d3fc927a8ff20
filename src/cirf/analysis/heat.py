"""A symmetric matrix in shades, each value written in its cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cirf.analysis.drawing import canvas
from cirf.analysis.marks import INK, SOFT, Mark, add, marked


def draw_matrix(name: str, title: str, labels: Sequence[str], values: Mapping[tuple[str, str], float]) -> str:
    """The lower triangle of values from 0 (light) to 1 (dark) between ``labels``; pairs as in ``values``."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("shades", ["#f4f6f9", "#0b62b0"])
    rows, columns = labels[1:], labels[:-1]
    with canvas(4.9, 1.4 + 0.5 * len(rows), name) as (figure, out):
        axes = figure.add_subplot()
        axes.set_title(title, loc="left", fontsize=10, color=SOFT)
        marks: list[Mark] = []
        for down, second in enumerate(rows):
            for across, first in enumerate(columns[: down + 1]):
                value = values[first, second]
                reach = add(marks, f"{first} and {second}: {value:.2f}")
                box = ([across - 0.48, across + 0.48], down - 0.46, down + 0.46)
                axes.fill_between(*box, color=shades(value), linewidth=0, gid=reach)
                ink = "white" if value > 0.8 else INK
                axes.annotate(f"{value:.2f}", (across, down), ha="center", va="center", color=ink, fontsize=10)
        axes.grid(visible=False)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xticks(range(len(columns)), columns, rotation=30 if len(columns) > 2 else 0)
        axes.tick_params(length=0, labelcolor=INK)
        for side in axes.spines.values():
            side.set_visible(False)
        out.append(f"{title}. {'; '.join(mark.told for mark in marks)}")
    return marked(out[0], marks)
