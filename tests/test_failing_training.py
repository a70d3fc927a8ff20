"""A training that fails says so: it ends early, or is warned of in the log, the report and its JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tinyrun

from cirf.rows import read_rows


@pytest.fixture(scope="module")
def run(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tinyrun.Said]:
    """One update is far too few for a net that knows nothing."""
    folder = tmp_path_factory.mktemp("failing")
    keys = {"methods": ["cirf_full", "direct_sft"], "evaluate__check": 3, "finetune__learning_rate": 1e-5}
    made = workshop.recipe(folder / "recipe.yaml", **keys)
    return folder / "run", tinyrun.cirf("run", made, "--out", folder / "run")


def test_the_log_the_end_and_the_report_warn(run: tuple[Path, tinyrun.Said]) -> None:
    folder, said = run
    assert said.code == 0, said.err
    told = "cirf_full is not trained enough to be used: only 0% of its answers to 3 held-out questions are well-formed"
    assert f"checks/cirf_full: WARNING: {told}" in said.err
    assert f"warning: {told}" in said.out
    found = json.loads((folder / "report.json").read_text())["checks"]
    assert found["cirf_full"]["n"] == 3 and found["cirf_full"]["well_formed"] == 0.0
    assert any(told in line for line in found["cirf_full"]["faults"]) and "well_formed" in found["direct_sft"]
    page = (folder / "report.html").read_text()
    assert told in page and page.index(told) < page.index("Accuracy and what it costs")


def test_a_check_asks_held_out_questions_alone(run: tuple[Path, tinyrun.Said]) -> None:
    folder, _ = run
    held_out = {row["id"] for row in read_rows(folder / "problems" / "validation.jsonl")}
    asked = {row["id"] for row in read_rows(folder / "checks" / "cirf_full" / "sums.jsonl")}
    assert len(asked) == 3 and asked <= held_out


def test_the_prompt_ends_with_the_opening_delimiter(run: tuple[Path, tinyrun.Said]) -> None:
    rows = read_rows(run[0] / "models" / "cirf_full" / "sft.jsonl")
    assert all(row["prompt"].endswith("<cirf>") and row["completion"].startswith("<cirf_0") for row in rows)
    assert not any("<cirf>" in row["prompt"] for row in read_rows(run[0] / "models" / "direct_sft" / "sft.jsonl"))


def test_a_hopeless_training_ends_early_and_names_the_keys(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys = {"methods": ["cirf_full"], "finetune__give_up": 0.5, "finetune__epochs": 3.0, "finetune__learning_rate": 1e-5}
    made = workshop.recipe(tmp_path / "recipe.yaml", **keys)
    said = tinyrun.cirf("run", made, "--out", tmp_path / "run")
    assert said.code == 2
    assert "answers to held-out questions are well-formed, so the training was ended" in said.err
    assert "finetune.epochs: auto" in said.err and "finetune.rows_lr_ratio" in said.err and "finetune.give_up: 0" in said.err
    assert not (tmp_path / "run" / "models" / "cirf_full").exists()
    again = tinyrun.cirf(
        "run", made, "--out", tmp_path / "run", "--set", "finetune.give_up=0", "--set", "evaluate.latency_items=0"
    )
    assert again.code == 0, again.err
