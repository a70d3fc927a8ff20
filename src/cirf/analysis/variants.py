"""CIRF variants side by side over all backbones, in and out of domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.backbones import CIRF, families, points_of, settings_of
from cirf.analysis.groups import file_name, put
from cirf.analysis.pareto import COSTS, DOMAINS, MEASURED, Point, describe_point, with_costs, without_answers
from cirf.analysis.source import Source
from cirf.pictures.canvas import SOFT, Mark, add, canvas, limits, marked, ticks
from cirf.pictures.style import style
from cirf.pictures.table import Column, Table

_STROKES: Sequence[Any] = ("-", "--", ":", "-.", (0, (6, 2, 1, 2, 1, 2)), (0, (1, 3)))
_COLUMNS = (
    Column("settings", "Settings"),
    Column("backbone", "Backbone"),
    Column("parameters", "Parameters", "count"),
    Column("domain", "Domain"),
    Column("method", "Variant"),
    *MEASURED,
    Column("speedup", "Times as fast as the first", "number"),
    Column("token_ratio", "Tokens to those of the first", "number"),
)


def make(source: Source) -> AnalysisResult:
    """A row a backbone, domain and variant; a picture a domain and cost, with a line a backbone."""
    rows: list[Point] = []
    pictures: dict[str, str] = {}
    notes: list[str] = []
    for family in families(source.runs):
        for domain, domain_title in DOMAINS.items():
            lines = [line for setting in settings_of(family) if len(line := points_of(setting, domain, CIRF)) > 1]
            if not lines:
                continue
            lines.sort(key=lambda line: line[0]["parameters"] or 0)
            rows += [without_answers(_against(point, line[0])) | {"settings": family.label} for line in lines for point in line]
            title = ", ".join(filter(None, (domain_title, family.label)))
            for cost, axis in COSTS.items():
                unknown = with_costs([point for line in lines for point in line], cost)[1]
                drawn = [known for line in lines if (known := with_costs(line, cost)[0])]
                if drawn:
                    name = file_name("-".join(filter(None, (domain, cost, family.label))))
                    put(pictures, name, _picture(drawn, name, title, cost, axis))
                    notes += [f"{title}: {unknown}"] if unknown else []
    if not rows:
        raise MissingInputError("it needs a run with at least two CIRF variants among its evaluated methods")
    return AnalysisResult((Table("variants", "CIRF variants over backbones.", _COLUMNS, rows),), pictures, notes)


def _against(point: Point, first: Point) -> Point:
    """A point with its cost as a share of the first variant's."""
    row: dict[str, Any] = {"token_ratio": point["tokens"] / first["tokens"] if first["tokens"] else None}
    if point["seconds"] and first["seconds"]:
        row["speedup"] = first["seconds"] / point["seconds"]
    return point | row


def _picture(lines: Sequence[Sequence[Point]], name: str, title: str, cost: str, axis: str) -> str:
    everything = [point for line in lines for point in line]
    names = list(dict.fromkeys(point["method"] for point in everything))
    xs = [point[cost] for point in everything]
    with canvas(4.9, 4.2, f"variants-{name}") as (figure, out):
        axes = figure.add_subplot()
        axes.set_title(title, loc="left", fontsize=10, color=SOFT)
        logarithmic = max(xs) > 4 * min(xs)
        if logarithmic:
            axes.set_xscale("log")
        limits(axes, xs, logarithmic)
        axes.set_ylim(-3, 103)
        marks: list[Mark] = []
        for index, line in enumerate(lines):
            ordered = sorted(line, key=lambda point: float(point[cost]))
            stroke = _STROKES[index % len(_STROKES)]
            across, up = [point[cost] for point in ordered], [100 * point["accuracy"] for point in ordered]
            label = str(line[0]["backbone"])
            axes.plot(across, up, linestyle=stroke, color="#7d8592", linewidth=1.3, zorder=1, label=label)
            for point in line:
                look = style(point["method"], names)
                x, ends = point[cost], [100 * point["accuracy_low"], 100 * point["accuracy_high"]]
                axes.plot([x, x], ends, color=look.colour, linewidth=2, alpha=0.45, solid_capstyle="round")
                reach = add(marks, describe_point(f"{point['backbone']}, {look.title}", point, cost), point["method"])
                axes.plot([x], [100 * point["accuracy"]], **look.point, markersize=8, markeredgecolor="white", gid=reach)
        for method in names:
            look = style(method, names)
            axes.plot([], [], label=look.title, **look.point)
        ticks(axes, "latency" if cost == "seconds" else "tokens", logarithmic)
        axes.set_xlabel(axis)
        axes.set_ylabel("accuracy, mean of tasks, %")
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
        out.append(f"CIRF variants over backbones, {title}. {'; '.join(mark.description for mark in marks)}")
    return marked(out[0], marks)


ANALYSIS = Analysis(
    "variants",
    "CIRF variants",
    "What the shorter variants cost in accuracy and save in time and tokens, over all backbones, in and out of domain.",
    "evaluations of at least two CIRF variants; for times the stage `latency`",
    make,
    "Figure variants",
)
