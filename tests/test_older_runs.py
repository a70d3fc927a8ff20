"""Runs that an older version has begun: read, gone on with, or refused in one line that names the key."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tinyrun
import yaml

from cirf.recipe import Problems, Recipe
from cirf.stages import keys


@pytest.fixture
def old(finished: Path, tmp_path: Path) -> Path:
    """A finished run as a version left it that had no hashes in records, no times, and fewer keys."""
    run = shutil.copytree(finished, tmp_path / "run")
    for path in run.rglob("stage.json"):
        told = json.loads(path.read_text())
        del told["sha256"]
        path.write_text(json.dumps(told))
    (run / "environment.json").unlink()
    (run / "problems" / "timings.json").unlink()
    made = yaml.safe_load((run / "recipe.yaml").read_text())
    del (
        made["problems"]["unusable"],
        made["evaluate"]["probes"],
        made["vocabulary"]["like"],
        made["steering" if "steering" in made else "notes"],
    )
    (run / "recipe.yaml").write_text(yaml.safe_dump(made))
    return run


def test_what_has_not_changed_since_stands_and_is_reported(old: Path) -> None:
    before = tinyrun.stages(old)
    said = tinyrun.cirf("status", old, "--verify")
    assert said.code == 0 and "a rerun would do nothing" in said.out, said.out + said.err
    assert tinyrun.cirf("report", old).code == 0
    said = tinyrun.cirf("run", old / "recipe.yaml", "--out", old)
    assert said.code == 0 and tinyrun.stages(old) == before, said.err


def test_a_younger_key_counts_only_where_it_is_not_at_its_default() -> None:
    problems = {"tasks": [{"task": "gsm8k"}]}
    keyed = [
        keys.problems(Recipe(name="a", problems=Problems.model_validate(problems | more))) for more in ({}, {"unusable": 0.2})
    ]
    assert "unusable" not in keyed[0] and keyed[1] == keyed[0] | {"unusable": 0.2}


def test_a_stage_whose_code_has_changed_is_made_again_with_what_rests_on_it(old: Path) -> None:
    record = old / "segments" / "stage.json"
    told = json.loads(record.read_text())
    record.write_text(json.dumps(told | {"key": "0" * len(told["key"])}))
    rows = {row["stage"]: row["state"] for row in json.loads(tinyrun.cirf("status", old, "--json").out)}
    assert rows["problems"] == "done" and rows["segments"] == "stale" and rows["evaluation/cot"] == "done"
    before = tinyrun.stages(old)
    said = tinyrun.cirf("run", old / "recipe.yaml", "--out", old)
    assert said.code == 0, said.err
    assert tinyrun.remade(before, tinyrun.stages(old)) == {"segments"}  # it came out as it was


def test_a_key_that_is_no_more_is_named(old: Path) -> None:
    path = old / "recipe.yaml"
    path.write_text(path.read_text() + "temperature_of_old: 1\n")
    for command in (["status", old], ["report", old], ["run", path, "--out", old]):
        assert "temperature_of_old: no such key" in tinyrun.cirf(*command).error()
