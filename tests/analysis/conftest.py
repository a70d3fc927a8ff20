"""A small sweep of real runs in miniature, made once: sizes, representations, first codes, seeds and two backbones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun

FAMILY = ["cirf_full", "cirf_bare", "pause"]
POINTS: list[tuple[str, dict[str, Any]]] = [
    ("size", {"codebook.size": 4}),
    ("size", {"codebook.size": 8}),
    ("representation", {"codebook.representation": "raw"}),
    ("representation", {"codebook.representation": "random"}),
    ("initialisation", {"codebook.initialiser": "random", "vocabulary.init": "random"}),
    ("seed", {"seed": 2}),
    ("size", {"backbone.model": "second"}),
]
"""The first is the base: settings that say what the recipe says anyway."""


@pytest.fixture(scope="session")
def sweep(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep's folder; copy it to change it. Stages that a point shares with the base are copied and not made again."""
    folder = tmp_path_factory.mktemp("sweep")
    second = tinyrun.write_backbone(folder.with_name(f"{folder.name}-second"), "gpt2", tied=False, seed=3)
    rows = tinyrun.sums(24, seed=4, steps=2)
    for row in rows:
        row["question"] = f"Sorted: {row['question']}"
        row["rationale"] = "\n".join(f"{line} So we sort them." for line in row["rationale"].splitlines())
    train = tinyrun.write_jsonl(folder.with_name(f"{folder.name}-sorted.jsonl"), rows)
    points = []
    for number, (part, settings) in enumerate(POINTS):
        run = folder / "runs" / f"point-{number}"
        model = second if settings.get("backbone.model") == "second" else workshop.backbone
        keys = {key.replace(".", "__"): value for key, value in settings.items()} | {"backbone__model": str(model)}
        methods = FAMILY if number in (0, len(POINTS) - 1) else ["cirf_full"]
        tasks = [
            {"task": "jsonl", "name": "sums", "train_file": str(workshop.train), "test_file": str(workshop.test)},
            {"task": "jsonl", "name": "sorted", "train_file": str(train), "test_file": str(workshop.test)},
        ]
        path = folder.with_name(f"{folder.name}-{number}.yaml")
        recipe = workshop.recipe(path, problems__tasks=tasks, methods=methods, **{"codebook__sizes": [6]} | keys)
        if number:
            shutil.copytree(folder / "runs" / "point-0", run)
        said = tinyrun.cirf("run", recipe, "--out", run)
        assert said.code == 0, said.err
        points.append({"part": part, "settings": settings, "run": run.relative_to(folder).as_posix()})
    (folder / "sweep.json").write_text(json.dumps({"name": "tiny", "points": points}))
    return folder


@pytest.fixture(scope="session")
def analysed(sweep: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sweep's analyses, with the paper's values."""
    said = tinyrun.cirf("analyze", sweep, "--paper")
    assert said.code == 0, said.err
    return sweep / "analysis"
