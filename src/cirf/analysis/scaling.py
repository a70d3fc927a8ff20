"""Do results hold at every size: CIRF variants with CODI and Pause over backbones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.backbones import BASELINES, CIRF, families, points_of, settings_of
from cirf.analysis.groups import file_name, put
from cirf.analysis.pareto import DOMAINS, MEASURED, Point, mark_fronts, picture, with_costs, without_answers
from cirf.analysis.source import Source
from cirf.pictures.table import Column, Table

COSTS = {"seconds": "time", "tokens": "tokens"}
_COLUMNS = (
    Column("settings", "Settings"),
    Column("backbone", "Backbone"),
    Column("parameters", "Parameters", "count"),
    Column("domain", "Domain"),
    Column("method", "Method"),
    *MEASURED,
    Column("beaten_seconds", "CIRF as good and as fast"),
    Column("beaten_tokens", "CIRF as good in as few tokens"),
)


def make(source: Source) -> AnalysisResult:
    """A row a backbone, domain and method; a picture a backbone, domain and cost, with one axis for all sizes."""
    rows: list[Point] = []
    pictures: dict[str, str] = {}
    notes: list[str] = []
    for family in families(source.runs):
        for domain, domain_title in DOMAINS.items():
            found = [points_of(setting, domain, (*CIRF, *BASELINES)) for setting in settings_of(family)]
            found = [points for points in found if any(row["of"] in CIRF for row in points)]
            if len({points[0]["model"] for points in found}) < 2:
                continue
            ordered = sorted(found, key=lambda points: points[0]["parameters"] or 0)
            for points in ordered:
                mark_fronts(points)
                rows += [without_answers(_beaten(point, points)) | {"settings": family.label} for point in points]
                notes += _notes(points, domain_title, family.label)
            everything = [point for points in ordered for point in points]
            for cost in COSTS:
                unknown = with_costs(everything, cost)[1]
                notes += [f"{', '.join(filter(None, (domain_title, family.label)))}: {unknown}"] if unknown else []
                for points in ordered:
                    if known := with_costs(points, cost)[0]:
                        name = "-".join(filter(None, (points[0]["backbone"], domain, cost, family.label)))
                        title = ", ".join(filter(None, (points[0]["backbone"], domain_title, family.label)))
                        put(pictures, file_name(name), picture(known, title, cost, everything))
    if not rows:
        raise MissingInputError(
            "it needs evaluated runs of at least two backbones, each with a functional method; `cirf sweep` makes them"
        )
    notes.append(
        "A method is beaten where a CIRF variant of the same backbone is at least as accurate at no higher cost; these are point"
        " estimates, and intervals that overlap leave the order open."
    )
    return AnalysisResult((Table("scaling", "Accuracy and cost over backbones.", _COLUMNS, rows),), pictures, notes)


def _beaten(point: Point, points: Sequence[Point]) -> Point:
    """Of a baseline: whether a CIRF variant is as accurate and as cheap."""
    found: dict[str, Any] = {}
    for cost in COSTS:
        if point["of"] in BASELINES and point[cost] is not None:
            ours = [row for row in points if row["of"] in CIRF and row[cost] is not None]
            found[f"beaten_{cost}"] = any(row["accuracy"] >= point["accuracy"] and row[cost] <= point[cost] for row in ours)
    return point | found


def _notes(points: Sequence[Point], domain: str, label: str) -> list[str]:
    """Which baselines a CIRF variant beats, also if it beats none."""
    sentences = []
    for point in (_beaten(point, points) for point in points if point["of"] in BASELINES):
        known = {word: point[key] for cost, word in COSTS.items() if point.get(key := f"beaten_{cost}") is not None}
        verdicts = [f"{'beaten' if beaten else 'not beaten'} by {word}" for word, beaten in known.items()]
        sentences.append(f"{point['method']} ({100 * point['accuracy']:.1f} %) is {' and '.join(verdicts) or 'of no known cost'}")
    place = ", ".join(filter(None, (points[0]["backbone"], domain, label)))
    return [f"{place}: {'; '.join(sentences)}."] if sentences else []


ANALYSIS = Analysis(
    "scaling",
    "Sizes of backbones",
    "CIRF variants with CODI and Pause on backbones of several sizes, accuracy against time and tokens, on one axis for all.",
    "a sweep over `backbone.model` with evaluations of CIRF variants, `codi` and `pause`; for times the stage `latency`",
    make,
    "Figure scaling",
)
