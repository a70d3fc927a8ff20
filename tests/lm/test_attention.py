"""The kernel of a training: plain attention for short rows on a CPU, the model's own afterwards. Grouped queries: the same
answers for every mask, and used only where allowed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from cirf.cpu import packed as grouped_attention
from cirf.cpu.packed import FEW, NAME, group_queries, settle
from cirf.lm.decoding.generate import Decoding, generate, generate_one, sample_many
from cirf.lm.prompt import prompt_text
from cirf.lm.training import attention
from cirf.lm.training.attention import for_rows
from cirf.lm.training.batches import Row
from cirf.lm.training.finetune import finetune
from cirf.lm.training.spec import TrainingSpec
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
    trained, _, _ = finetune(
        model, tokenizer, rows, rows[:1], TrainingSpec(section, "direct_sft", [], tmp_path, 0, attention=asked)
    )
    assert seen == {used}
    assert trained.config._attn_implementation == "sdpa"
    trained.save_pretrained(tmp_path / "saved")
    assert used not in (tmp_path / "saved" / "config.json").read_text()


class _Module:
    num_key_value_groups = 3
    is_causal = True


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("tokens", [1, 4, FEW, FEW + 1])
@pytest.mark.parametrize("mask", ["none", "boolean", "numbers", "a row"])
def test_it_is_what_transformers_computes(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, rows: int, tokens: int, mask: str
) -> None:
    draw = torch.Generator().manual_seed(tokens)
    query = torch.randn(rows, 6, tokens, 16, generator=draw).to(dtype)
    key, value = (torch.randn(rows, 2, 40, 16, generator=draw).to(dtype) for _ in range(2))
    hidden = torch.rand(rows, 1, tokens, 40, generator=draw) < 0.3
    hidden[..., 0] = False
    hidden = hidden[:, :, :1] if mask == "a row" else hidden
    seen: Any = {"none": None, "numbers": torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -torch.inf)}.get(
        mask, ~hidden
    )
    wanted, _ = sdpa_attention_forward(_Module(), query, key, value, seen, scaling=0.3)
    heads: list[int] = []
    real = functional.scaled_dot_product_attention

    def counted(q: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        heads.append(q.shape[1])
        return real(q, *given, **named)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", counted)
    found, _ = grouped_attention.attend(_Module(), query, key, value, seen, scaling=0.3)
    slack = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found, wanted, atol=slack, rtol=slack)
    if tokens <= FEW and (tokens == 1 or mask != "none"):
        assert heads == [2]  # each key is read once


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_answers_stay_the_same(tiny: Any, tokenizer: Any, kind: str) -> None:
    model = tiny.build_model(kind, tied=False)
    prompts = [prompt_text(tokenizer, text) for text in ("Hi?", "What is 12 plus 7?", "Anna has 3 apples and buys 4 more.")]

    def answers() -> list[Any]:
        drawn = sample_many(model, tokenizer, prompts[1], 12, 5, Decoding(1.0, 0.9, 3))
        return [generate(model, tokenizer, prompts, 12), generate_one(model, tokenizer, prompts[2], 12).ids, drawn]

    before = answers()
    assert group_queries(model) and model.config._attn_implementation == NAME
    assert answers() == before and group_queries(model)


def test_queries_of_a_model_with_plain_attention_are_not_grouped(tiny: Any) -> None:
    model = tiny.build_model("gemma2")
    assert not group_queries(model) and model.config._attn_implementation == "eager"


@pytest.mark.parametrize("family", ["mistral", "gemma3_text", "qwen3"])
def test_windows_and_padding_are_seen_as_before(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 200, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "eos_token_id": None, "bos_token_id": None}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, sliding_window=6, **sizes, **heads)).eval()
    ids = torch.randint(1, 200, (3, 12))
    seen = torch.ones_like(ids)
    seen[0, :5] = 0

    def logits() -> torch.Tensor:
        with torch.inference_mode():
            cache = model(input_ids=ids[:, :6], attention_mask=seen[:, :6], use_cache=True).past_key_values
            made = []
            for start, end in ((6, 7), (7, 11), (11, 12)):
                out = model(input_ids=ids[:, start:end], attention_mask=seen[:, :end], past_key_values=cache, use_cache=True)
                made.append(out.logits)
        return torch.cat(made, dim=1)

    before = logits()
    assert group_queries(model)
    shapes: list[tuple[int, int]] = []
    real = functional.scaled_dot_product_attention

    def counted(q: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        shapes.append((q.shape[1], q.shape[2]))
        return real(q, *given, **named)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", counted)
    torch.testing.assert_close(logits(), before, atol=1e-5, rtol=1e-5)
    assert shapes[3:] == 3 * [(2, 2)] + 3 * [(2, 8)] + 3 * [(2, 2)]  # two heads a key, three layers a step


@pytest.mark.parametrize(("attention", "used"), [("auto", NAME), ("sdpa", "sdpa")])
def test_a_kernel_that_the_recipe_names_stays(tiny: Any, attention: str, used: str) -> None:
    model = tiny.build_model("llama")
    settle(model, attention)
    assert model.config._attn_implementation == used
