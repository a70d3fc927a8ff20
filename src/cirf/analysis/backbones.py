"""Runs over several backbones: the points of each, grouped if only the backbone and its training differ.

`SCALING`: do results hold at every size, CIRF variants with CODI and Pause. `VARIANTS`: CIRF variants side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cirf.analysis.accuracy import FUNCTIONAL, kind
from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.geometry import parameters
from cirf.analysis.groups import Group, below, distinct_labels, file_name, grouped, model_names, put, settings, short, values
from cirf.analysis.pareto import (
    COSTS,
    DOMAINS,
    MEASURED,
    Point,
    describe_point,
    domain_points,
    mark_fronts,
    on_same_questions,
    picture,
    with_costs,
    without_answers,
)
from cirf.analysis.source import Run, Source
from cirf.pictures.canvas import SOFT, Mark, add, canvas, limits, marked, ticks
from cirf.pictures.style import style
from cirf.pictures.table import Column, Table

BASELINES = ("codi", "pause")
_OWN = ("backbone", "finetune", "compression")


@dataclass(frozen=True, slots=True)
class TrainedBackbone:
    """A trained backbone: its name, with what distinguishes it from others of that name, and its runs."""

    name: str
    runs: Sequence[Run]


def families(runs: Sequence[Run]) -> list[Group]:
    """Evaluated runs that agree in all but the backbone, its training and its pruning; a lone run is a family. Backbones of other
    sizes need other rates, batches and thresholds, so those may differ."""
    return grouped((run for run in runs if run.methods), _OWN, keep=bool)


def settings_of(family: Group) -> list[TrainedBackbone]:
    """The settings of a family. Names are unique in it: for a backbone trained in several ways they say which."""
    found: dict[tuple[Any, ...], list[Run]] = {}
    for run in family.runs:
        found.setdefault(values(run, _OWN), []).append(run)
    names = model_names(family.runs)
    by_backbone: dict[str, list[list[Run]]] = {}
    for members in found.values():
        by_backbone.setdefault(names[str(members[0].key("backbone.model"))], []).append(members)
    backbones = []
    for name, several in by_backbone.items():
        rests = [{key: value for key, value in settings(members[0]).items() if below(key, _OWN)} for members in several]
        for label, members in zip(distinct_labels(rests, short), several, strict=True):
            backbones.append(TrainedBackbone(f"{name} ({label})" if label else name, members))
    return backbones


def points_of(setting: TrainedBackbone, domain: str, kinds: Sequence[str]) -> list[Point]:
    """A setting's points (see `pareto`) of the methods of some kinds, variants of them too, with the size of their models. A
    method that several of its runs have counts once; all points answered the same questions, those that most did."""
    found: dict[str, Point] = {}
    for run in sorted(setting.runs, key=lambda run: -len(run.methods)):
        mine = [point for point in domain_points(run, domain) if kind(run, point["kind"]) in kinds]
        size = _parameters(run, [point["kind"] for point in mine])
        row: dict[str, Any] = {"backbone": setting.name, "model": str(run.key("backbone.model")), "parameters": size}
        for point in mine:
            found.setdefault(point["kind"], point | row | {"method": point["kind"], "of": kind(run, point["kind"])})
    return on_same_questions(list(found.values()))[0] if found else []


def _parameters(run: Run, methods: Sequence[str]) -> int | None:
    """Of the first trained model; all of a run grow from one backbone. An archive has no weights, but its trainings' counts."""
    for name in methods:
        folder = run.shown.at(f"models/{name}")
        if (folder / "config.json").is_file() and (size := parameters(folder)):
            return size
    for name in methods:
        history = run.data.get("training", {}).get(name, {}).get("numbers", {})
        on_top = 0 if history.get("adaptation") == "full" else history.get("trainable_parameters", 0)  # of frozen weights
        if size := history.get("parameters", 0) - on_top:
            return int(size)
    return None


_COST_WORDS = {"seconds": "time", "tokens": "tokens"}
_SCALING_COLUMNS = (
    Column("settings", "Settings"),
    Column("backbone", "Backbone"),
    Column("parameters", "Parameters", "count"),
    Column("domain", "Domain"),
    Column("method", "Method"),
    *MEASURED,
    Column("beaten_seconds", "CIRF as good and as fast"),
    Column("beaten_tokens", "CIRF as good in as few tokens"),
)


def _scaling(source: Source) -> AnalysisResult:
    """A row a backbone, domain and method; a picture a backbone, domain and cost, with one axis for all sizes."""
    rows: list[Point] = []
    pictures: dict[str, str] = {}
    notes: list[str] = []
    for family in families(source.runs):
        for domain, domain_title in DOMAINS.items():
            found = [points_of(setting, domain, (*FUNCTIONAL, *BASELINES)) for setting in settings_of(family)]
            found = [points for points in found if any(row["of"] in FUNCTIONAL for row in points)]
            if len({points[0]["model"] for points in found}) < 2:
                continue
            ordered = sorted(found, key=lambda points: points[0]["parameters"] or 0)
            for points in ordered:
                mark_fronts(points)
                rows += [without_answers(_beaten(point, points)) | {"settings": family.label} for point in points]
                notes += _notes(points, domain_title, family.label)
            everything = [point for points in ordered for point in points]
            for cost in _COST_WORDS:
                unknown = with_costs(everything, cost)[1]
                notes += [f"{', '.join(filter(None, (domain_title, family.label)))}: {unknown}"] if unknown else []
                for points in ordered:
                    if known := with_costs(points, cost)[0]:
                        name = "-".join(filter(None, (points[0]["backbone"], domain, cost, family.label)))
                        title = ", ".join(filter(None, (points[0]["backbone"], domain_title, family.label)))
                        put(pictures, file_name(name), picture(known, title, cost, everything))
    if not rows:
        raise MissingInputError("it needs runs of two backbones, evaluated with a functional method; `cirf sweep` makes them")
    notes.append(
        "A method is beaten where a CIRF variant of the same backbone is at least as accurate at no higher cost; these are point"
        " estimates, and intervals that overlap leave the order open."
    )
    return AnalysisResult((Table("scaling", "Accuracy and cost over backbones.", _SCALING_COLUMNS, rows),), pictures, notes)


def _beaten(point: Point, points: Sequence[Point]) -> Point:
    """Of a baseline: whether a CIRF variant is as accurate and as cheap."""
    found: dict[str, Any] = {}
    for cost in _COST_WORDS:
        if point["of"] in BASELINES and point[cost] is not None:
            ours = [row for row in points if row["of"] in FUNCTIONAL and row[cost] is not None]
            found[f"beaten_{cost}"] = any(row["accuracy"] >= point["accuracy"] and row[cost] <= point[cost] for row in ours)
    return point | found


def _notes(points: Sequence[Point], domain: str, label: str) -> list[str]:
    """Which baselines a CIRF variant beats, also if it beats none."""
    sentences = []
    for point in (_beaten(point, points) for point in points if point["of"] in BASELINES):
        known = {word: point[key] for cost, word in _COST_WORDS.items() if point.get(key := f"beaten_{cost}") is not None}
        verdicts = [f"{'beaten' if beaten else 'not beaten'} by {word}" for word, beaten in known.items()]
        sentences.append(f"{point['method']} ({100 * point['accuracy']:.1f} %) is {' and '.join(verdicts) or 'of no known cost'}")
    place = ", ".join(filter(None, (points[0]["backbone"], domain, label)))
    return [f"{place}: {'; '.join(sentences)}."] if sentences else []


SCALING = Analysis(
    "scaling",
    "Sizes of backbones",
    "CIRF variants with CODI and Pause on backbones of several sizes, accuracy against time and tokens, on one axis for all.",
    "a sweep over `backbone.model` with evaluations of CIRF variants, `codi` and `pause`; for times the stage `latency`",
    _scaling,
    "Figure scaling",
)

_STROKES: Sequence[Any] = ("-", "--", ":", "-.", (0, (6, 2, 1, 2, 1, 2)), (0, (1, 3)))
_VARIANT_COLUMNS = (
    Column("settings", "Settings"),
    Column("backbone", "Backbone"),
    Column("parameters", "Parameters", "count"),
    Column("domain", "Domain"),
    Column("method", "Variant"),
    *MEASURED,
    Column("speedup", "Times as fast as the first", "number"),
    Column("token_ratio", "Tokens to those of the first", "number"),
)


def _variants(source: Source) -> AnalysisResult:
    """A row a backbone, domain and variant; a picture a domain and cost, with a line a backbone."""
    rows: list[Point] = []
    pictures: dict[str, str] = {}
    notes: list[str] = []
    for family in families(source.runs):
        for domain, domain_title in DOMAINS.items():
            lines = [line for setting in settings_of(family) if len(line := points_of(setting, domain, FUNCTIONAL)) > 1]
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
    return AnalysisResult((Table("variants", "CIRF variants over backbones.", _VARIANT_COLUMNS, rows),), pictures, notes)


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


VARIANTS = Analysis(
    "variants",
    "CIRF variants",
    "What the shorter variants cost in accuracy and save in time and tokens, over all backbones, in and out of domain.",
    "evaluations of at least two CIRF variants; for times the stage `latency`",
    _variants,
    "Figure variants",
)
