"""What the runs of each shipped sweep are to be compared in, told from their recipes alone: no run is left without its like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cirf import sweep_io
from cirf.analysis.accuracy import functional
from cirf.analysis.backbones import families
from cirf.analysis.groups import grouped
from cirf.analysis.source import Run


def planned(name: str) -> list[Run]:
    """The sweep's runs that are evaluated, as they would be read."""
    runs = []
    for place, point in enumerate(sweep_io.load(name).points()):
        if point.until is None:
            recipe = point.recipe.model_dump(mode="json")
            data = {"recipe": recipe, "methods": {method: {"tasks": {}} for method in point.recipe.methods}}
            runs.append(Run(Path(f"{point.part}-{place}"), lambda data=data: data, part=point.part))
    return runs


def compared(runs: list[Run], *keys: str) -> list[set[Any]]:
    """Of each group the values of the first key, in runs that have a functional method."""
    groups = grouped([run for run in runs if functional([run])], keys, method=functional)
    return [{run.key(keys[0]) if len(keys) == 1 else tuple(map(run.key, keys)) for run in group.runs} for group in groups]


BEGINNINGS = ("codebook.initialiser", "vocabulary.init")
BEGUN = {("sinkhorn", "codebook"), ("random", "random"), ("random", "codebook"), ("kmeans", "codebook"), ("sinkhorn", "random")}
REPRESENTATIONS = {"mean_centered", "raw", "question_centered", "random"}


@pytest.mark.parametrize(("name", "sizes"), [("paper", {32, 64, 128, 256}), ("analyses-cpu", {8, 32, 128, 512})])
def test_the_base_stands_beside_what_is_varied(name: str, sizes: set[int]) -> None:
    runs = planned(name)
    assert compared(runs, "codebook.size") == [sizes]
    assert compared(runs, "codebook.representation") == [REPRESENTATIONS]
    assert compared(runs, *BEGINNINGS) == [BEGUN]


@pytest.mark.parametrize(("name", "backbones"), [("paper", 5), ("scaling-cpu", 3)])
def test_all_backbones_are_one_family(name: str, backbones: int) -> None:
    found = [{run.key("backbone.model") for run in family.runs} for family in families(planned(name))]
    assert max(map(len, found)) == backbones


def test_a_recipes_own_variants_set_no_functional_methods_apart() -> None:
    runs = planned("paper")
    for run in runs[2:]:
        run.recipe["variants"] = {}
    assert compared(runs, "codebook.size") == [{32, 64, 128, 256}]
