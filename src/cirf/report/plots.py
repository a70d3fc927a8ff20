"""The pictures, as SVG text to stand inside the page: no files, no fonts, no clocks, the same data the same bytes.

They are drawn for a light ground and stand on a light card in either colour scheme.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cirf.report.style import style
from cirf.report.times import setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _SOFT, _GRID = "#1f2430", "#565d6d", "#e3e6ec"


def pareto_svg(data: Mapping[str, Any], axis: str = "auto") -> str | None:
    """Accuracy (with its Wilson interval) against what it costs: up and to the left is better.

    ``data`` is `collect.collect`'s dict. ``axis`` is ``latency`` (mean seconds an answer at batch 1), ``tokens`` (mean
    generated tokens), or ``auto``: latency where every method has one. ``None`` if there is nothing to draw.
    """
    key = {"latency": "latency_mean_s", "tokens": "tokens"}
    timed = all(row["latency_mean_s"] is not None for row in data["methods"].values())
    axis = axis if axis != "auto" else "latency" if timed else "tokens"
    rows = {name: row for name, row in data["methods"].items() if row[key[axis]]}
    if not rows:
        return None
    xs = [row[key[axis]] for row in rows.values()]
    with _figure(4.9, 3.7, f"pareto-{axis}") as (figure, out):
        axes = figure.add_subplot()
        logarithmic = max(xs) > 4 * min(xs)
        if logarithmic:
            axes.set_xscale("log")
        _limits(axes, xs, logarithmic)
        axes.set_ylim(-3, 103)
        axes.set_xlabel("seconds an answer, one question at a time" if axis == "latency" else "generated tokens an answer")
        axes.set_ylabel("accuracy, %")
        points = []
        for name, row in rows.items():
            look, x, y = style(name, list(data["methods"])), row[key[axis]], 100 * row["accuracy"]
            low, high = (100 * bound for bound in row["interval"])
            axes.plot([x, x], [low, high], color=look.colour, linewidth=2, alpha=0.55, solid_capstyle="round")
            axes.plot([x], [y], look.marker, color=look.colour, markersize=9, markeredgecolor="white", zorder=3)
            points.append((x, y, low, high, look.title, look.colour))
        _ticks(axes, axis, logarithmic)
        if axis == "latency":
            figure.supxlabel("\n".join(textwrap.wrap(setting(data["latency"]), 84)), fontsize=7.5, color=_SOFT)
        _label(figure, axes, points)
        what = f"mean seconds an answer ({setting(data['latency'])})" if axis == "latency" else "mean generated tokens an answer"
        out.append(f"Accuracy against {what}. " + "; ".join(f"{p[4]}: {p[1]:.1f} % at {p[0]:.3g}" for p in points))
    return out[0]


def training_svg(data: Mapping[str, Any]) -> str | None:
    """Training loss (thin) and validation loss (thick, with markers) of every trained method against updates."""
    curves = {name: row for name, row in data["training"].items() if row["train"] or row["validation"]}
    if not curves:
        return None
    with _figure(4.9, 3.5, "training") as (figure, out):
        axes = figure.add_subplot()
        told, handles = [], []
        for name, row in curves.items():
            look = style(name, list(data["methods"]))
            for points, width, alpha, marker in ((row["train"], 1.1, 0.6, ""), (row["validation"], 2.2, 1.0, look.marker)):
                if points:
                    updates, values = zip(*points, strict=True)
                    drawn = axes.plot(updates, values, color=look.colour, linewidth=width, alpha=alpha, marker=marker)
            handles.append(drawn[0])
            last = (row["validation"] or row["train"])[-1][1]
            told.append(f"{look.title}: last {'validation' if row['validation'] else 'training'} loss {last:.3g}")
        axes.set_ylim(bottom=0)
        axes.margins(x=0.02)
        names = [style(name, list(data["methods"])).title for name in curves]
        axes.legend(handles, names, frameon=False, fontsize=9, loc="upper right", labelcolor="linecolor")
        axes.set_xlabel("updates")
        axes.set_ylabel("loss a target token")
        out.append("Training curves. " + "; ".join(told))
    return out[0]


def codebook_svg(data: Mapping[str, Any]) -> str | None:
    """Losses of the codebook's two phases against epochs."""
    losses = (data["codebook"] or {}).get("losses", {})
    phases = {phase: rows for phase, rows in losses.items() if rows}
    if not phases:
        return None
    from matplotlib.ticker import MaxNLocator

    with _figure(4.9, 3.5, "codebook") as (figure, out):
        titles = {"autoencoder": "autoencoder", "vq": "with codes"}
        looks = {"total": (_INK, "-"), "reconstruction": ("#0b62b0", "-")}
        looks |= {"codebook": ("#a83c00", "--"), "commitment": ("#00735c", ":")}
        for place, (phase, rows) in enumerate(phases.items(), 1):
            axes = figure.add_subplot(1, len(phases), place)
            for name in rows[0]:
                if name in looks and not (phase == "autoencoder" and name == "reconstruction"):
                    colour, dash = looks[name]
                    axes.plot(range(1, len(rows) + 1), [row[name] for row in rows], dash, color=colour, linewidth=1.6, label=name)
            axes.set_title(titles.get(phase, phase), fontsize=10, color=_SOFT, loc="left")
            axes.set_xlabel("epoch")
            axes.set_ylim(bottom=0)
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            if place == len(phases):
                axes.legend(frameon=False, fontsize=8.5)
        figure.axes[0].set_ylabel("loss a segment")
        told = "; ".join(f"{phase}: last {rows[-1]['total']:.3g}" for phase, rows in phases.items())
        out.append(f"Losses of the codebook by epoch. {told}")
    return out[0]


def compression_svg(data: Mapping[str, Any]) -> str | None:
    """Share of results kept against the threshold, with the recipe's thresholds marked."""
    found = data["compression"]
    if not found or not found["curve"]:
        return None
    with _figure(4.9, 3.1, "compression") as (figure, out):
        axes = figure.add_subplot()
        gammas, kept = zip(*found["curve"], strict=True)
        axes.plot(gammas, [100 * share for share in kept], color="#0b62b0", linewidth=2)
        for row in found["thresholds"]:
            axes.plot([row["gamma"]], [100 * row["results"]], "o", color="#0b62b0", markersize=7, markeredgecolor="white")
            told = f"{100 * row['results']:.0f} %"
            axes.annotate(told, (row["gamma"], 100 * row["results"]), (4, 6), textcoords="offset points", color=_INK, fontsize=9)
        axes.set_ylim(0, 105)
        axes.set_xlim(left=-0.02 * max(gammas), right=1.12 * max(gammas) or 1)
        axes.set_xlabel("threshold γ: most that a removal may add to the answer's loss, nats")
        axes.set_ylabel("results kept, %")
        rows = "; ".join(f"{100 * row['results']:.0f} % at {row['gamma']:g}" for row in found["thresholds"])
        out.append(f"Share of results kept by threshold. {rows}")
    return out[0]


def voting_svg(data: Mapping[str, Any]) -> str | None:
    """Accuracy of 1, 2, ... votes against what an answer costs, the fallback's one answer as a point of its own."""
    found = data["voting"]
    if not found:
        return None
    timed = {row["votes"]: row["mean_s"] for row in (found["latency"] or {}).get("votes", ())}
    names = list(data["methods"])
    with _figure(4.9, 3.3, "voting") as (figure, out):
        axes = figure.add_subplot()
        look = style(found["method"], names)
        xs = [timed.get(row["votes"], row["tokens"]) for row in found["curve"]]
        axes.plot(xs, [100 * row["accuracy"] for row in found["curve"]], color=look.colour, linewidth=1.5, alpha=0.6)
        for x, row in zip(xs, found["curve"], strict=True):
            axes.plot([x, x], [100 * bound for bound in row["interval"]], color=look.colour, linewidth=2, alpha=0.45)
            axes.plot([x], [100 * row["accuracy"]], "o", color=look.colour, markersize=7, markeredgecolor="white", zorder=3)
            told = f"{row['votes']}"
            axes.annotate(told, (x, 100 * row["accuracy"]), (0, 8), textcoords="offset points", ha="center", fontsize=9)
        if "alone" in found:
            look, alone = style(found["fallback"], names), found["alone"]
            x = timed.get(0, alone["tokens"])
            axes.plot([x, x], [100 * bound for bound in alone["interval"]], color=look.colour, linewidth=2, alpha=0.45)
            axes.plot([x], [100 * alone["accuracy"]], look.marker, color=look.colour, markersize=9, markeredgecolor="white")
            axes.annotate(look.title, (x, 100 * alone["accuracy"]), (8, -4), textcoords="offset points", color=look.colour)
            xs.append(x)
        if max(xs) > 4 * min(xs):
            axes.set_xscale("log")
        axes.set_ylim(-3, 103)
        axes.set_xlabel("seconds an answer, one question at a time" if timed else "generated tokens an answer")
        axes.set_ylabel("accuracy, %")
        rows = "; ".join(f"{100 * row['accuracy']:.1f} % with {row['votes']}" for row in found["curve"])
        out.append(f"Accuracy by number of votes. {rows}")
    return out[0]


@contextmanager
def _figure(width: float, height: float, salt: str) -> Iterator[tuple[Figure, list[str]]]:
    """A figure to draw on; the caller appends its description to the list, and finds the SVG there instead after."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    settings: dict[str, Any] = {
        "svg.hashsalt": salt,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 10,
        "axes.edgecolor": _GRID,
        "axes.labelcolor": _SOFT,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": _GRID,
        "text.color": _INK,
        "xtick.color": _SOFT,
        "ytick.color": _SOFT,
        "xtick.minor.size": 0,
        "xtick.minor.width": 0,
    }
    out: list[str] = []
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for key, value in settings.items():
            matplotlib.rcParams[key] = value  # type: ignore[index,unused-ignore]
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, out
        buffer = io.StringIO()
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    out[:] = [_inline(buffer.getvalue(), out[0], salt)]


def _inline(svg: str, description: str, salt: str) -> str:
    """The bare ``<svg>`` element with a role and a description; ids are made the picture's own, so two never clash."""
    body = svg[svg.index("<svg") :].strip()
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.S)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{salt}-\1"', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{salt}-", body)
    body = re.sub(r'(<svg[^>]*?) width="[^"]+"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?) height="[^"]+"', r"\1", body, count=1)
    told = description.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return body.replace("<svg", f'<svg role="img" aria-label="{told}"', 1)


def _limits(axes: Axes, xs: Sequence[float], logarithmic: bool) -> None:
    if logarithmic:
        room = (max(xs) / min(xs)) ** 0.16
        axes.set_xlim(min(xs) / room, max(xs) * room)
    else:
        axes.set_xlim(0, 1.25 * max(xs))


def _ticks(axes: Axes, axis: str, logarithmic: bool) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    unit = " s" if axis == "latency" else ""
    if logarithmic:
        low, high = axes.get_xlim()
        decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
        steps = (1, 2, 5) if high / low < 200 else (1,)
        axes.xaxis.set_major_locator(FixedLocator([step * 10.0**decade for decade in decades for step in steps]))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(low, high)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}{unit}"))


def _label(figure: Figure, axes: Axes, points: Sequence[tuple[float, float, float, float, str, str]]) -> None:
    """Write each point's name beside it, at the first of some places where it covers nothing and stays inside."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    renderer = figure._get_renderer()  # type: ignore[attr-defined]
    inside = axes.get_window_extent(renderer)
    taken = []
    for x, y, low, high, _, _ in points:
        (left, bottom), (_, top) = axes.transData.transform((x, low)), axes.transData.transform((x, high))
        taken.append(Bbox.from_extents(left - 4, bottom, left + 4, top))
        middle = axes.transData.transform((x, y))
        taken.append(Bbox.from_extents(middle[0] - 6, middle[1] - 6, middle[0] + 6, middle[1] + 6))
    for x, y, low, high, title, colour in points:
        places = [((11, 0), "left", "center", y), ((-11, 0), "right", "center", y), ((0, 7), "center", "bottom", high)]
        places += [((0, -7), "center", "top", low), ((11, 16), "left", "center", y), ((11, -16), "left", "center", y)]
        places += [((-11, 16), "right", "center", y), ((-11, -16), "right", "center", y)]
        places += [((8, 5), "right", "bottom", high), ((8, -5), "right", "top", low)]
        places += [((-8, 5), "left", "bottom", high), ((-8, -5), "left", "top", low)]
        tried: list[tuple[float, int, Any, Bbox]] = []
        for offset, across, along, height in places:
            text = axes.annotate(title, (x, height), offset, textcoords="offset points", color=colour, fontweight="bold")
            text.set(horizontalalignment=across, verticalalignment=along)
            box = text.get_window_extent(renderer).padded(4)
            beyond = (inside.x0 - box.x0, inside.y0 - box.y0, box.x1 - inside.x1, box.y1 - inside.y1)
            outside = sum(max(0.0, by) for by in beyond)
            covered = sum(_overlap(box, other) for other in taken)
            tried.append((20 * outside + covered, len(tried), text, box))
        chosen = min(tried, key=lambda one: one[:2])
        for _, place, text, _ in tried:
            if place != chosen[1]:
                text.remove()
        taken.append(chosen[3])


def _overlap(one: Any, other: Any) -> float:
    wide = min(one.x1, other.x1) - max(one.x0, other.x0)
    high = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(wide * high) if wide > 0 and high > 0 else 0.0
