"""A small sweep of real runs in miniature, made once: sizes, representations, first codes, seeds and two backbones."""

from __future__ import annotations

import json
from pathlib import Path

import made
import pytest
import tinyrun
import yaml

FAMILY = ["cirf_full", "cirf_bare"]


@pytest.fixture(scope="session")
def sweep(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep's folder; copy it to change it."""
    folder = tmp_path_factory.mktemp("sweep")
    second = tinyrun.write_backbone(folder / "second", "gpt2", tied=False, seed=3)
    rows = tinyrun.sums(24, seed=4, steps=2)
    for row in rows:
        row["question"] = f"Sorted: {row['question']}"
        row["rationale"] = "\n".join(f"{line} So we sort them." for line in row["rationale"].splitlines())
    train = tinyrun.write_jsonl(folder / "sorted.jsonl", rows)
    tasks = [
        {"task": "jsonl", "name": "sums", "train_file": str(workshop.train), "test_file": str(workshop.test)},
        {"task": "jsonl", "name": "sorted", "train_file": str(train), "test_file": str(workshop.test)},
    ]
    keys = {"problems__tasks": tasks, "methods": ["cirf_full"], "codebook__sizes": [6]}
    parts = [
        {"name": "base", "points": [{"methods": FAMILY}]},
        {"name": "sizes", "points": [{"codebook.size": 8}]},
        {"name": "representation", "points": [{"codebook.representation": "raw"}]},
        {"name": "initialisation", "points": [{"codebook.initialiser": "random", "vocabulary.init": "random"}]},
        {"name": "seed", "points": [{"seed": 2}]},
        {"name": "backbone", "points": [{"backbone.model": str(second), "methods": FAMILY}]},
    ]
    recipe = tinyrun.recipe(workshop.backbone, workshop.embedder, workshop.train, workshop.test, **keys)
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({"name": "tiny", "recipe": recipe, "parts": parts}, sort_keys=False))
    with tinyrun.sketched():
        said = tinyrun.cirf("sweep", path, "--out", folder / "runs")
    assert said.code == 0, said.err
    return folder / "runs"


@pytest.fixture(scope="session")
def runs(sweep: Path) -> dict[str, str]:
    """The path of each part's one run, as sources have it."""
    return {point["part"]: point["run"] for point in json.loads((sweep / "sweep.json").read_text())["points"]}


@pytest.fixture(scope="session")
def analysed(sweep: Path) -> Path:
    """The folder of those of the sweep's analyses that compare runs, with the paper's values."""
    said = tinyrun.cirf("analyze", sweep, *made.OF_SWEEPS, "--paper")
    assert said.code == 0, said.err
    return sweep / "analysis"
