"""What a backbone lacks, or cannot do, is said before any work; a whole run of a hybrid one."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import tinyrun

sys.path.insert(0, str(Path(__file__).with_name("lm")))
import families


def _backbone(folder: Path, kind: str) -> Path:
    families.build(kind, scale=1.0).save_pretrained(folder)
    tinyrun.builders().build_tokenizer().save_pretrained(folder)
    return folder


def _refused(workshop: tinyrun.Workshop, tmp_path: Path, backbone: Path, **keys: Any) -> str:
    """What run and dry-run say, before anything is made."""
    file = workshop.recipe(tmp_path / "recipe.yaml", backbone__model=str(backbone), **keys)
    said = tinyrun.cirf("run", file, "--out", tmp_path / "run", "--dry-run").error()
    assert tinyrun.cirf("run", file, "--out", tmp_path / "run").error() == said
    assert not list((tmp_path / "run").rglob("stage.json"))
    return said


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2", "gpt2"])
def test_a_backbone_without_a_tokenizer(workshop: tinyrun.Workshop, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(workshop.backbone, folder, ignore=shutil.ignore_patterns("token*", "chat_template*"))
    config = json.loads((folder / "config.json").read_text()) | {"model_type": kind}
    (folder / "config.json").write_text(json.dumps(config))
    assert "no tokenizer there" in _refused(workshop, tmp_path, folder)
    checked = tinyrun.cirf("check", workshop.train, "--set", f"backbone.model={folder}")
    assert "no tokenizer there" in checked.error()


def test_a_backbone_whose_tokenizer_has_no_end_token(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder = shutil.copytree(workshop.backbone, tmp_path / "model")
    tokenizer = tinyrun.builders().build_tokenizer(None)
    tokenizer.eos_token = None
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    tokenizer.save_pretrained(folder)
    assert "no end token" in _refused(workshop, tmp_path, folder)


@pytest.mark.parametrize("index", [None, {"weight_map": {"a": "model-00001-of-00002.safetensors"}}])
def test_a_backbone_without_weights(workshop: tinyrun.Workshop, tmp_path: Path, index: dict[str, Any] | None) -> None:
    folder = tmp_path / "model"
    shutil.copytree(workshop.backbone, folder, ignore=None if index else shutil.ignore_patterns("*.safetensors"))
    if index:
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "no weights there (model" in _refused(workshop, tmp_path, folder)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "vision_config": {}, "text_config": {}},
            "holds a LlavaForConditionalGeneration, not a causal language model",
        ),
        (
            {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]},
            "holds a T5ForConditionalGeneration, not a causal",
        ),
        ({"vocab_size": 128}, "tokens, the model embeddings of 128; use the tokenizer that the model came with"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "has quantised weights (gptq); train the model that"),
    ],
    ids=["images", "encoder", "vocabulary", "quantised"],
)
def test_a_backbone_of_another_kind(workshop: tinyrun.Workshop, tmp_path: Path, values: dict[str, Any], said: str) -> None:
    folder = shutil.copytree(workshop.backbone, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text()) | values
    (folder / "config.json").write_text(json.dumps(config))
    assert said in _refused(workshop, tmp_path, folder)


def test_a_backbone_with_adapters_next_to_it(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder = shutil.copytree(workshop.backbone, tmp_path / "model")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2}))
    assert "holds adapters next to a model; merge them into it" in _refused(workshop, tmp_path, folder)


@pytest.mark.parametrize(("kind", "method"), [("gemma4", "coconut"), ("qwen3_5", "codi"), ("mamba", "coconut")])
def test_a_backbone_that_cannot_think_in_vectors(workshop: tinyrun.Workshop, tmp_path: Path, kind: str, method: str) -> None:
    said = _refused(workshop, tmp_path, _backbone(tmp_path / "model", kind), methods=["cirf_full", method])
    assert "cannot reason in vectors" in said and method in said


@pytest.mark.parametrize("targets", ["out_proj", "wings"])
def test_adapters_on_layers_that_can_have_none_or_are_not_there(workshop: tinyrun.Workshop, tmp_path: Path, targets: str) -> None:
    lora = {"finetune__adaptation": "lora", "finetune__lora": {"target_modules": targets}}
    said = _refused(workshop, tmp_path, _backbone(tmp_path / "model", "mamba"), **lora)
    assert "finetune.lora.target_modules" in said and targets in said and "all-linear" in said


@pytest.mark.parametrize(
    ("kind", "adaptation"),
    [*(pytest.param(kind, "full", marks=pytest.mark.slow) for kind in ("qwen3_5", "recurrent_gemma")), ("mamba", "lora")],
)
def test_a_run_of_a_model_that_keeps_states(workshop: tinyrun.Workshop, tmp_path: Path, kind: str, adaptation: str) -> None:
    file = workshop.recipe(
        tmp_path / "recipe.yaml",
        backbone__model=str(_backbone(tmp_path / "model", kind)),
        methods=["cirf_full"],
        finetune__adaptation=adaptation,
        finetune__lora={"rank": 4},
        evaluate__max_trace_tokens=8,
        evaluate__voting={"votes": [3]},
        evaluate__latency_questions=0,
    )
    said = tinyrun.cirf("run", file, "--out", tmp_path / "run", "--limit", "8")
    assert said.code == 0, said.err
    rows = (tmp_path / "run" / "votes" / "cirf_full").rglob("*.jsonl")
    assert any(path.read_text().strip() for path in rows)


def test_an_opt_that_projects_its_embeddings_learns_to_think(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    file = workshop.recipe(
        tmp_path / "recipe.yaml", backbone__model=str(_backbone(tmp_path / "model", "opt")), methods=["codi", "coconut"]
    )
    said = tinyrun.cirf("run", file, "--out", tmp_path / "run", "--until", "models/codi", "--limit", "8")
    assert said.code == 0, said.err
