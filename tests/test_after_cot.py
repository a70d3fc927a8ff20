"""Functional tokens learned by a model that has learned the rationales in words first (`start: sft_cot`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from cirf import methods
from cirf.errors import CirfError
from cirf.recipe_io import parse
from cirf.rows import read_rows

HEAD = "name: r\nproblems: {tasks: [{task: gsm8k}]}\nmethods: [%s]\nvariants: {%s}\n"
AFTER = "after: {method: cirf_full, settings: {start: sft_cot}}"


def test_it_goes_on_from_the_model_of_sft_cot() -> None:
    recipe = parse(HEAD % ("after", AFTER))
    assert [method.name for method in methods.learners(recipe)] == ["sft_cot", "after"]
    after = methods.get("after", recipe)
    assert after.taught_by["settings"] == after.identity["settings"] == {"start": "sft_cot"}
    usual = parse(HEAD % ("x", "x: {method: cirf_full, settings: {start: backbone}}"))
    assert [method.name for method in methods.learners(usual)] == ["x"] and "settings" not in methods.get("x", usual).taught_by


@pytest.mark.parametrize(
    ("name", "variant", "more", "said"),
    [
        ("cirf_full", "cirf_full: {settings: {start: sft_cot}}", "", "give the variant another name"),
        (
            "x",
            "x: {method: cirf_fast, settings: {start: sft_cot}}",
            "compression: {start: full}\n",
            "set one of them to backbone",
        ),
        ("x", "x: {method: cirf_full, settings: {start: coconut}}", "", "variants.x.settings.start"),
    ],
)
def test_a_start_that_is_taken_is_named(name: str, variant: str, more: str, said: str) -> None:
    with pytest.raises(CirfError, match=said):
        methods.get(name, parse(HEAD % (name, variant) + more))


def test_it_learns_the_traces_from_there(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "methods": ["cirf_full", "after", "pruned"],
        "variants": {
            "after": {"method": "cirf_full", "settings": {"start": "sft_cot"}},
            "pruned": {"method": "cirf_fast", "settings": {"start": "sft_cot"}},
        },
        "finetune__overrides": {name: {"learning_rate": 1e-30} for name in ("after", "pruned")},
        "evaluate__latency_items": 0,
    }
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", **keys), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    models = tmp_path / "run" / "models"
    assert list(read_rows(models / "after" / "sft.jsonl")) == list(read_rows(models / "cirf_full" / "sft.jsonl"))
    words = len(AutoTokenizer.from_pretrained(workshop.backbone))
    untrained = load_file(workshop.backbone / "model.safetensors")
    begun = load_file(models / "sft_cot" / "model.safetensors")
    for name in ("after", "pruned"):
        made = load_file(models / name / "model.safetensors")
        assert made.keys() == begun.keys()
        for key, weight in begun.items():
            known = words if "embed" in key or "head" in key else len(weight)  # rows behind them are the functional tokens'
            assert torch.equal(made[key][:known], weight[:known]), key
    assert any(not torch.equal(begun[key][: len(weight)], weight) for key, weight in untrained.items()), "sft_cot has learned"
