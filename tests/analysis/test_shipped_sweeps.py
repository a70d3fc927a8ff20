"""The settings in which the runs of a shipped sweep are compared, from their recipes alone: every run has a counterpart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tables import each_row

from cirf.analysis.accuracy import functional
from cirf.analysis.backbones import families
from cirf.analysis.groups import grouped
from cirf.analysis.source import Run, published
from cirf.methods.registry import METHODS, learners
from cirf.recipe import sweep as sweep_io
from cirf.recipe.load import load, shipped, shipped_files


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


BEGINNINGS = ("codebook.initialiser", "vocabulary.init", "codebook.reassign", "codebook.assign")
BALANCED, NEVER = ("sinkhorn", "sinkhorn"), ("nearest", "nearest")
BEGUN = {
    "paper": {
        ("sinkhorn", "codebook", *BALANCED),
        ("random", "random", *NEVER),
        ("random", "codebook", *NEVER),
        ("kmeans", "codebook", *NEVER),
        ("sinkhorn", "random", *BALANCED),
    },
    "analyses-cpu": {
        ("sinkhorn", "codebook", *BALANCED),
        ("random", "random", *BALANCED),
        ("random", "codebook", *BALANCED),
        ("kmeans", "codebook", *BALANCED),
        ("sinkhorn", "random", *BALANCED),
        ("random", "codebook", *NEVER),
        ("kmeans", "codebook", *NEVER),
    },
}
REPRESENTATIONS = {"mean_centered", "raw", "question_centered", "random"}


@pytest.mark.parametrize(("name", "sizes"), [("paper", {32, 64, 128, 256}), ("analyses-cpu", {8, 32, 128, 512})])
def test_the_base_is_shown_with_what_is_varied(name: str, sizes: set[int]) -> None:
    runs = planned(name)
    assert compared(runs, "codebook.size") == [sizes]
    assert compared(runs, "codebook.representation") == [REPRESENTATIONS]
    assert compared(runs, *BEGINNINGS) == [BEGUN[name]]


SWEEPS = [name for kind in ("recipes", "sweeps") for name in shipped_files(kind) if name not in shipped()]


@each_row("name", [*shipped(), *SWEEPS])
def test_every_method_of_a_shipped_recipe_can_be_set_up(name: str) -> None:
    for recipe in [point.recipe for point in sweep_io.load(name).points()] if name in SWEEPS else [load(name)]:
        assert {method.name for method in learners(recipe)} <= {*METHODS, *recipe.variants}


@pytest.mark.parametrize(("name", "backbones"), [("paper", 5), ("scaling-cpu", 3)])
def test_all_backbones_are_one_family(name: str, backbones: int) -> None:
    found = [{run.key("backbone.model") for run in family.runs} for family in families(planned(name))]
    assert max(map(len, found)) == backbones


def test_a_recipes_own_variants_set_no_functional_methods_apart() -> None:
    runs = planned("paper")
    for run in runs[2:]:
        run.recipe["variants"] = {}
    assert compared(runs, "codebook.size") == [{32, 64, 128, 256}]


# The paper's figures next to ours are those of its tables

TASKS = ("coin_flip", "commonsense_qa", "gsm8k", "multiarith", "svamp", "math500", "bbh", "strategyqa", "scienceqa")
MAIN = {
    ("Qwen3-8B", "sem_cot"): (
        "46.33±3.70, 98.17±0.85, 30.33±0.47, 80.37±2.92, 71.00±2.04, 19.40±8.56, 20.93±1.79, 3.87±1.57, 61.33±4.34",
        "0.99±0.00, 0.99±0.00, 1.01±0.00, 0.99±0.00, 0.99±0.00, 13.58±0.63, 0.99±0.00, 0.96±0.01, 0.95±0.01",
    ),
    ("Qwen3-8B", "cirf_full"): (
        "83.17±1.55, 87.00±0.41, 71.17±1.70, 97.41±0.52, 83.33±1.03, 28.27±0.84, 46.67±1.09, 69.07±0.34, 75.53±1.09",
        "0.48±0.01, 0.30±0.00, 0.84±0.01, 0.45±0.01, 0.46±0.00, 1.48±0.01, 0.87±0.02, 0.49±0.01, 0.43±0.01",
    ),
    ("Qwen3-8B", "cirf_fast"): (
        "62.33±0.24, 86.83±0.85, 64.67±0.24, 93.33±0.00, 82.83±0.24, 27.60±0.59, 44.93±0.82, 67.73±0.57, 76.47±1.11",
        "0.22±0.00, 0.28±0.00, 0.65±0.02, 0.30±0.01, 0.33±0.01, 0.92±0.02, 0.55±0.01, 0.36±0.01, 0.31±0.00",
    ),
    ("Qwen3-8B", "cirf_faster"): (
        "62.50±0.00, 87.00±0.41, 54.67±1.31, 93.33±0.79, 80.50±0.00, 23.87±0.75, 44.60±0.43, 65.67±0.96, 75.13±1.09",
        "0.22±0.00, 0.28±0.00, 0.46±0.02, 0.27±0.00, 0.31±0.00, 0.58±0.00, 0.43±0.01, 0.28±0.00, 0.28±0.00",
    ),
    ("Llama3.1-8B", "sem_cot"): (
        "55.67±15.34, 71.50±19.80, 11.83±7.19, 42.04±29.99, 49.17±12.98, 19.60±4.42, 41.27±23.15, 20.47±7.91, 70.27±14.97",
        "0.65±0.16, 0.84±0.01, 0.87±0.01, 0.84±0.01, 0.78±0.02, 5.41±3.28, 0.84±0.01, 0.80±0.04, 0.74±0.06",
    ),
    ("Llama3.1-8B", "cirf_full"): (
        "77.00±0.82, 81.83±0.62, 56.17±2.59, 98.52±0.69, 76.50±0.71, 11.27±0.09, 34.13±0.96, 68.93±0.82, 74.20±0.71",
        "0.34±0.01, 0.25±0.00, 0.57±0.01, 0.38±0.00, 0.33±0.01, 0.76±0.03, 0.48±0.01, 0.44±0.01, 0.33±0.00",
    ),
    ("Llama3.1-8B", "cirf_fast"): (
        "57.17±0.24, 81.17±1.43, 51.83±1.43, 96.11±0.79, 78.17±1.03, 9.33±0.25, 35.27±1.36, 64.47±0.52, 75.73±1.00",
        "0.16±0.00, 0.19±0.00, 0.45±0.01, 0.29±0.00, 0.23±0.00, 0.44±0.01, 0.30±0.00, 0.30±0.01, 0.21±0.00",
    ),
    ("Llama3.1-8B", "cirf_faster"): (
        "57.50±0.00, 82.67±0.62, 45.33±0.85, 90.93±0.69, 76.17±0.47, 9.27±0.38, 34.47±0.41, 60.53±0.68, 75.20±0.49",
        "0.17±0.00, 0.21±0.00, 0.39±0.01, 0.28±0.00, 0.23±0.00, 0.32±0.01, 0.24±0.00, 0.27±0.01, 0.20±0.00",
    ),
}


def figures(line: str) -> list[tuple[float, float]]:
    return [(float(mean), float(spread)) for mean, _, spread in (cell.strip().partition("±") for cell in line.split(","))]


@each_row(("model", "method"), MAIN)
def test_rows_of_the_main_table_are_the_papers(model: str, method: str) -> None:
    rows = {row["task"]: row for row in published("main") if (row["model"], row["method"]) == (model, method)}
    accuracies, seconds = map(figures, MAIN[model, method])
    assert [(rows[task]["accuracy"], rows[task]["accuracy_sd"]) for task in TASKS] == accuracies
    assert [(rows[task]["seconds"], rows[task]["seconds_sd"]) for task in TASKS] == seconds
    assert len(rows) == len(TASKS) and {row["source"] for row in rows.values()} == {"paper"}
