"""The kernel of a training: plain attention for short rows on a CPU, and the model's own afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.lm.prompt import prompt_text
from cirf.lm.training import attention
from cirf.lm.training.attention import for_rows
from cirf.lm.training.finetune import Row, finetune
from cirf.recipe import schema


@pytest.mark.parametrize(
    ("longest", "device", "kernel"),
    [(attention.SHORT, "cpu", "eager"), (attention.SHORT + 1, "cpu", "sdpa"), (8, "cuda", "sdpa")],
)
def test_short_rows_on_a_cpu_get_plain_attention(tiny: Any, longest: int, device: str, kernel: str) -> None:
    model = tiny.build_model("llama")
    ids = torch.randint(0, 400, (2, 12), generator=torch.Generator().manual_seed(1))
    before = model(input_ids=ids).logits
    with for_rows(model, longest, device):
        assert model.config._attn_implementation == kernel
        torch.testing.assert_close(model(input_ids=ids).logits, before, atol=1e-5, rtol=1e-5)
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(model(input_ids=ids).logits, before)


def test_a_model_with_plain_attention_keeps_it(tiny: Any) -> None:
    model = tiny.build_model("gemma2")
    with for_rows(model, 8, "cpu"):
        assert model.config._attn_implementation == "eager"
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize(("asked", "used"), [("auto", attention.NAME), ("sdpa", "sdpa")])
@pytest.mark.parametrize("adaptation", ["full", "lora"])
def test_training_uses_it_unless_the_recipe_names_a_kernel(
    tiny: Any, tokenizer: Any, tmp_path: Path, adaptation: str, asked: str, used: str
) -> None:
    model = tiny.build_model("llama")
    seen: set[str] = set()

    def look(module: Any, args: Any) -> None:
        if torch.is_grad_enabled():  # not what is tried beforehand
            seen.add(module.config._attn_implementation)

    model.register_forward_pre_hook(look)
    rows = [Row(prompt_text(tokenizer, f"What is {number} plus 1?"), str(number + 1)) for number in range(4)]
    section = schema.Finetune.model_validate({"adaptation": adaptation, "epochs": 1, "batch_size": 2, "bf16": False})
    trained, _, _ = finetune(model, tokenizer, rows, rows[:1], section, "direct_sft", [], tmp_path, 0, attention=asked)
    assert seen == {used}
    assert trained.config._attn_implementation == "sdpa"
    trained.save_pretrained(tmp_path / "saved")
    assert used not in (tmp_path / "saved" / "config.json").read_text()
