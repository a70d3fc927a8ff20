"""Runs over several backbones: the points of each, grouped if only the backbone and its training differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cirf.analysis.accuracy import FUNCTIONAL, kind
from cirf.analysis.geometry import parameters
from cirf.analysis.groups import Group, below, distinct_labels, grouped, model_names, settings, short, values
from cirf.analysis.pareto import Point, domain_points, on_same_questions
from cirf.analysis.source import Run

CIRF = FUNCTIONAL
BASELINES = ("codi", "pause")
_OWN = ("backbone", "finetune", "compression")


@dataclass(frozen=True, slots=True)
class TrainedBackbone:
    """A trained backbone: its name, with what distinguishes it from others of that name, and its runs."""

    name: str
    runs: Sequence[Run]


def families(runs: Sequence[Run]) -> list[Group]:
    """Evaluated runs that agree in all but the backbone, its training and its pruning; a lone run is a family.

    Backbones of other sizes need other rates, batches and thresholds, so those may differ.
    """
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
    """A setting's points (see `pareto`) of the methods of some kinds, variants of them too, with the size of their models.

    A method that several of its runs have counts once; all points answered the same questions, those that most did.
    """
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
        if size := _counted(run.data.get("training", {}).get(name, {}).get("numbers", {})):
            return size
    return None


def _counted(history: Mapping[str, Any]) -> int | None:
    """The number of parameters of a backbone by its training's record, without those trained on top of frozen weights."""
    extra = 0 if history.get("adaptation") == "full" else history.get("trainable_parameters", 0)
    return (history.get("parameters", 0) - extra) or None
