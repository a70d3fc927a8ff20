"""Steering in a run: variants of one trained model, each within its dials, and none of it trains anything again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tinyrun
import torch

from cirf.analysis.traces import read_codes
from cirf.errors import CirfError
from cirf.lm.calculator import Calculator
from cirf.methods import get
from cirf.recipe_io import load, parse
from cirf.rows import read_rows

CALLS: list[str] = []


def _call(self: Calculator, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    CALLS.append(type(self).__name__)
    return scores


@pytest.fixture(scope="module")
def run(workshop: tinyrun.Workshop, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run, gone on with by a recipe of steered variants."""
    folder = tmp_path_factory.mktemp("steered")
    shutil.copytree(finished, folder / "run")
    before = tinyrun.stages(folder / "run")
    variants = {
        name: {"method": "cirf_full", "model": "cirf_full", "settings": settings}
        for name, settings in {
            "held": {"grammar": True},
            "two": {"budget": 2},
            "bare": {"results": False},
            "counted": {"calculator": True},
        }.items()
    }
    variants["prose"] = {"method": "cot", "settings": {"calculator": True}}
    path = workshop.recipe(folder / "recipe.yaml", methods=["cirf_full", *variants], variants=variants)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Calculator, "__call__", _call)
        said = tinyrun.cirf("run", path, "--out", folder / "run")
    assert said.code == 0, said.err
    made = tinyrun.remade(before, tinyrun.stages(folder / "run"))
    assert not any(stage.startswith(("models/", "codebook", "evaluation/cirf_full")) for stage in made), made
    return folder / "run"


def outputs(run: Path, name: str) -> list[str]:
    return [row["output"] for row in read_rows(run / "evaluation" / name / "sums.jsonl")]


def test_every_answer_is_within_its_dials(run: Path) -> None:
    assert all("<cirf>" not in text for text in outputs(run, "held")), "the prompt holds the one opening delimiter"
    assert all(len([code for code, _ in read_codes(text) if code is not None]) <= 2 for text in outputs(run, "two"))
    assert all(not result for text in outputs(run, "bare") for code, result in read_codes(text))
    assert all(None not in [code for code, _ in read_codes(text)] for text in outputs(run, "held"))


def test_settings_that_steer_nothing_leave_a_method_what_it_was(run: Path) -> None:
    recipe = load(str(run / "recipe.yaml"))
    full, two = get("cirf_full", recipe), get("two", recipe)
    assert full.identity == {} and not full.steered and full.steer(None, None) is tuple
    assert two.identity["settings"]["budget"] == 2 and two.taught_by == {"method": "cirf_full"}
    assert "calculator" not in two.identity["settings"]  # what was answered before there was one stays


def test_a_calculator_goes_with_traces_and_with_prose(run: Path) -> None:
    recipe = load(str(run / "recipe.yaml"))
    counted, prose, cot = (get(name, recipe) for name in ("counted", "prose", "cot"))
    assert CALLS and counted.steered and prose.steered and not cot.steered and cot.identity == {}
    assert counted.identity == {"method": "cirf_full", "settings": {"calculator": True}}
    assert counted.taught_by == {"method": "cirf_full"}
    assert prose.identity == {"method": "cot", "settings": {"calculator": True}}
    assert outputs(run, "counted") and outputs(run, "prose")
    form = {"grammar": False, "budget": None, "results": True, "result_tokens": None, "result_cost": 0.0}
    assert get("cirf_full", recipe).asked_by == form and counted.asked_by == form | {"calculator": True}


@pytest.mark.parametrize("settings", ["{calculator: true, results: false}", "{calculator: true}"])
def test_a_calculator_without_results_is_refused(settings: str) -> None:
    method = "cirf_bare" if settings == "{calculator: true}" else "cirf_full"
    text = f"name: r\nmethods: [mine]\nvariants: {{mine: {{method: {method}, settings: {settings}}}}}\n"
    recipe = parse(text + "problems: {tasks: [{task: gsm8k}]}\n")
    with pytest.raises(CirfError, match="no results that could be worked out"):
        get("mine", recipe).check(recipe)


def test_one_question_is_asked_within_the_dials_and_words_are_not_steered(run: Path) -> None:
    said = tinyrun.cirf("ask", run, "How many?", "--budget", "1", "--no-results", "--json")
    assert said.code == 0, said.err
    steps = json.loads(said.out)["steps"]
    assert len(steps) <= 1 and all(not step["result"] for step in steps)
    worked_out = tinyrun.cirf("ask", run / "models" / "direct_sft", "How many?", "--calculator", "--json")
    assert worked_out.code == 0, worked_out.err
    refused = tinyrun.cirf("ask", run / "models" / "direct_sft", "How many?", "--budget", "1")
    assert refused.code == 2 and "which this model has none of" in refused.err
