"""The room on a pretrained model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cirf.lm import backbone, vocabulary
from cirf.lm.decoding.generate import generate
from cirf.lm.saving import save_model
from cirf.lm.training.batches import Row
from cirf.lm.training.finetune import finetune
from cirf.lm.training.spec import TrainingSpec
from cirf.recipe import schema

pytestmark = pytest.mark.slow


@pytest.mark.real
def test_a_pretrained_model_learns_a_trace_in_a_few_updates(bundled: Callable[[str], Path], tmp_path: Path) -> None:
    source = bundled("smollm2-135m-instruct")
    section = schema.Backbone(device="cpu")
    tokenizer = backbone.load_tokenizer(source, section)
    prompt = backbone.prompt_text(tokenizer, "What is 2 plus 3?")
    assert "SmolLM" not in prompt and "2 plus 3" in prompt
    model = backbone.load_model(source, section, training="lora")
    ids = vocabulary.extend(model, tokenizer, None, schema.Vocabulary(alpha="mean"), 8, 0)
    assert model.get_input_embeddings().weight.shape[0] == len(tokenizer) == 49152 + 10
    settings = schema.Finetune(
        lora=schema.Lora(rank=16), epochs=30, batch_size=1, gradient_accumulation_steps=1, learning_rate=3e-3, warmup_steps=3
    )
    row = Row(prompt, "<cirf><cirf_003>5</cirf>5")
    model, history, _ = finetune(model, tokenizer, [row], [], TrainingSpec(settings, "cirf_full", ids, tmp_path / "scratch", 0))
    assert history.losses[-1]["loss"] < 0.1 < history.losses[0]["loss"]
    save_model(model, tokenizer, tmp_path / "model", "bfloat16", "cirf")
    again = backbone.load_model(tmp_path / "model", section)
    output = generate(again, backbone.load_tokenizer(tmp_path / "model", section), [prompt], 12)[0]
    assert (output.text, output.truncated) == (row.target, False)
