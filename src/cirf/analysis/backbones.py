"""Runs over several backbones: the points of each, put together where only the backbone and how it is trained differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cirf.analysis.accuracy import FUNCTIONAL, kind
from cirf.analysis.groups import Group, grouped, model_name
from cirf.analysis.matrices import parameters
from cirf.analysis.pareto import Point, domain_points
from cirf.analysis.source import Run

CIRF = FUNCTIONAL
BASELINES = ("codi", "pause")


def families(runs: Sequence[Run]) -> list[Group]:
    """Evaluated runs that agree in all but the backbone and its training; a lone run is a family.

    Backbones of other sizes want other rates and batches, so that those may differ.
    """
    return grouped((run for run in runs if run.methods), ("backbone", "finetune"), keep=bool)


def points_of(run: Run, domain: str, kinds: Sequence[str]) -> list[Point]:
    """A run's points (see `pareto`) of the methods of some kinds, variants of them too, with the size of their models."""
    found = [point for point in domain_points(run, domain) if kind(run, point["kind"]) in kinds]
    size = _parameters(run, [point["kind"] for point in found])
    told: dict[str, Any] = {"backbone": model_name(run), "parameters": size}
    return [point | told | {"method": point["kind"], "of": kind(run, point["kind"])} for point in found]


def _parameters(run: Run, methods: Sequence[str]) -> int | None:
    """Of the first trained model; all of a run grow from one backbone."""
    for name in methods:
        folder = run.shown.at(f"models/{name}")
        if (folder / "config.json").is_file() and (size := parameters(folder)):
            return size
    return None
