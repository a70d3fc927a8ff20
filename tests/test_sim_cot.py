"""SIM-CoT: its settings and hosts, and a whole run of it: the decoder learns beside, and what answers is as its host is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
from safetensors.torch import load_file
from tables import each_row

from cirf import methods
from cirf.errors import CirfError
from cirf.methods.latent.sim_cot import SimCot
from cirf.recipe.schema import Recipe
from cirf.store.jsonl import read_rows


def _recipe(preset: str | None = None, variants: dict[str, Any] | None = None, **settings: Any) -> Recipe:
    made = {"sim_cot": {"settings": settings, "preset": preset}} | (variants or {})
    return Recipe.model_validate({"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "variants": made})


def _get(recipe: Recipe) -> SimCot:
    method = methods.get("sim_cot", recipe)
    assert isinstance(method, SimCot)
    return method


def test_it_thinks_as_its_host_does() -> None:
    assert [_get(made).latents for made in (_recipe(), _recipe("paper"), _recipe("official"), _recipe(host="codi"))] == [
        6,
        5,
        10,
        6,
    ]
    beside = _get(_recipe(host="codi", host_settings={"thoughts": 3, "train_new_tokens": False}))
    assert (beside.latents, beside.start, beside.tokens_learn) == (3, None, False)
    assert (_get(_recipe()).start, _get(_recipe()).tokens_like, _get(_recipe("official")).tokens_like) == ("sft_cot", None, "<<")


@each_row(
    ("settings", "said"),
    [
        ({"host": "pause"}, r"variants\.sim_cot\.settings\.host: "),
        ({"host_settings": {"stage": 3}}, r"variants\.sim_cot\.settings: host_settings\.stage: .*\(coconut\)"),
        ({"host": "codi", "host_settings": {"stages": 3}}, r"host_settings\.stages: .*\(codi\)"),
        ({"host_settings": {"stages": "three"}}, r"host_settings\.stages: "),
        ({"host_settings": {"thoughts": 0}}, "there is nothing to decode"),
        ({"start": "host", "host_settings": {"thoughts": 1}}, "starts from coconut, whose settings differ from"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(CirfError, match=said):
        _get(_recipe(**settings))


def test_its_host_is_checked_under_its_name() -> None:
    early = {"finetune": {"epochs": 3}, "variants": {"sim_cot": {"settings": {"host_settings": {"stage_epochs": 1.0}}}}}
    with pytest.raises(CirfError, match="sim_cot: the last stage would begin after 3 of 3 epochs"):
        _get(Recipe.model_validate(_recipe().model_dump() | early))
    with pytest.raises(CirfError, match=r"gradient_checkpointing: sim_cot continues"):
        _get(Recipe.model_validate(_recipe(host="codi").model_dump() | {"finetune": {"gradient_checkpointing": True}}))


@pytest.mark.parametrize("host", ["coconut", "codi"])
def test_in_two_phases_it_goes_on_from_its_hosts_model(host: str) -> None:
    same = {"thoughts": 2}
    recipe = _recipe(variants={host: {"settings": same}}, start="host", host=host, host_settings=same)
    named = [method.name for method in methods.learners(recipe.model_copy(update={"methods": ("sim_cot",)}))]
    assert named == [*(["sft_cot"] if host == "coconut" else []), host, "sim_cot"]


VARIANTS: dict[str, Any] = {
    "coconut": {"settings": {"start": "backbone", "stages": 1}},
    "sim_cot": {"settings": {"host_settings": {"start": "backbone", "stages": 1}}},
    "silent": {"method": "sim_cot", "settings": {"weight": 0.0, "host_settings": {"start": "backbone", "stages": 1}}},
    "codi": {"settings": {"thoughts": 2}},
    "further": {
        "method": "sim_cot",
        "settings": {"host": "codi", "start": "host", "host_settings": {"thoughts": 2}, "reduction": "mean"},
    },
    "last": {
        "method": "sim_cot",
        "settings": {"start": "host", "decoder": "copy", "host_settings": {"start": "backbone", "stages": 1}},
    },
}
KEYS: dict[str, Any] = {
    "methods": ["coconut", "sim_cot", "silent", "codi", "further", "last"],
    "variants": VARIANTS,
    "finetune__adaptation": "lora",
    "finetune__lora": {"rank": 4, "alpha": 8, "dropout": 0.1},
    "finetune__epochs": 2.0,
    "evaluate__latency_questions": 0,
    "evaluate__max_completion_tokens": 12,
}


@pytest.fixture(scope="module")
def run(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sim_cot")
    rows = tinyrun.write_jsonl(folder / "train.jsonl", tinyrun.sums(24))
    recipe = workshop.recipe(folder / "r.yaml", train=rows, **KEYS)
    for until in ("models", "evaluation/further"):
        said = tinyrun.cirf("run", recipe, "--out", folder / "run", "--until", until)
        assert said.code == 0, said.err
    return folder / "run"


def _history(run: Path, name: str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run / "models" / name / "history.json").read_text())
    return summary


def _weights(run: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(run / "models" / name / "model.safetensors")


def test_of_no_weight_the_decoder_changes_nothing(run: Path) -> None:
    """So neither its being there nor its going changes what the host becomes, but for the last bit of a gradient's norm; with a
    weight it does."""
    host, silent, own = (_history(run, name) for name in ("coconut", "silent", "sim_cot"))
    for one, other in zip(silent["losses"] + silent["validation"], host["losses"] + host["validation"], strict=True):
        assert one == pytest.approx(other, rel=1e-5)
    assert (silent["curriculum"], own["curriculum"]) == (host["curriculum"], host["curriculum"])
    weights = [_weights(run, name) for name in ("coconut", "silent", "sim_cot")]
    apart = [max(float((value - other[name]).abs().max()) for name, value in weights[0].items()) for other in weights[1:]]
    assert apart[0] < 1e-5 and apart[1] > 1e-3 and weights[0].keys() == weights[1].keys() == weights[2].keys()
    assert own["trainable_parameters"] == 2 * host["trainable_parameters"] - 2 * 32  # adapters twice, the marks' rows once


def test_only_stages_with_thoughts_have_its_loss(run: Path) -> None:
    host, own = (_history(run, name) for name in ("coconut", "sim_cot"))
    stages = {row["stage"]: row["update"] for row in host["curriculum"]["stages"]}
    assert set(stages) == {0, 1, 2}
    for place, (with_it, without) in enumerate(zip(own["losses"], host["losses"], strict=True)):
        assert (with_it["loss"] > without["loss"] + 1) == (place >= stages[1]), place
    assert own["validation"][0] == host["validation"][0]  # of the host's targets alone


def test_what_is_saved_is_a_model_of_its_host(run: Path, tmp_path: Path) -> None:
    for name, host in (("sim_cot", "coconut"), ("further", "codi"), ("last", "coconut")):
        folders = run / "models" / name, run / "models" / host
        kept = [sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()) for folder in folders]
        assert kept[0] == kept[1]
        for file in ("latent.json", "chat_template.jinja", "tokenizer.json", "config.json", "sft.jsonl"):
            assert (folders[0] / file).read_bytes() == (folders[1] / file).read_bytes(), file
    moved = shutil.copytree(run / "models/further", tmp_path / "moved")
    said = tinyrun.cirf(
        "evaluate", moved, "--protocol", "own", "--set", "evaluate.latency_questions=0", "--out", tmp_path / "out"
    )
    assert said.code == 0, said.err
    assert read_rows(tmp_path / "out/evaluation/further/sums.jsonl") == read_rows(run / "evaluation/further/sums.jsonl")


def test_the_second_phase_begins_where_the_host_ended(run: Path) -> None:
    """With its weights, its net and all its thoughts."""
    for name, host in (("further", "codi"), ("last", "coconut")):
        first, last = _history(run, name)["validation"][0]["loss"], _history(run, host)["validation"][-1]["loss"]
        assert first == pytest.approx(last, abs=2e-5), name
    assert [row["stage"] for row in _history(run, "last")["curriculum"]["stages"]] == [2]
    template = (run / "models/last/chat_template.jinja").read_text()
    assert template.count("<latent>") == 1
    nets = [load_file(run / f"models/{name}/latent/projector.safetensors") for name in ("further", "codi")]
    moved = [float((nets[0][key] - nets[1][key]).abs().max()) for key in nets[0]]
    assert 0 < max(moved) < 0.2  # it went on from there
