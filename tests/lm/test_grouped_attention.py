"""Grouped queries: the same answers, whatever stands in the mask, and only where it may be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from cirf.lm import grouped_attention
from cirf.lm.decode import generate, generate_one, sample_many
from cirf.lm.grouped_attention import FEW, NAME, group_queries
from cirf.lm.prompt import prompt_text


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
        drawn = sample_many(model, tokenizer, prompts[1], 12, 5, 1.0, 0.9, 3)
        return [generate(model, tokenizer, prompts, 12), generate_one(model, tokenizer, prompts[2], 12).ids, drawn]

    before = answers()
    assert group_queries(model) and model.config._attn_implementation == NAME
    assert answers() == before and group_queries(model)


def test_a_model_with_plain_attention_keeps_it(tiny: Any) -> None:
    model = tiny.build_model("gemma2")
    assert not group_queries(model) and model.config._attn_implementation == "eager"
