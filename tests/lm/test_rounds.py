"""Rows that are finished leave their batch, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest

from cirf.lm.decoding import rounds
from cirf.lm.decoding.generate import generate, sample_many
from cirf.lm.prompt import prompt_text

CAP = 40


def _prompts(tokenizer: Any) -> list[str]:
    questions = ["Hi?", "What is 12 plus 7?", "Anna has 3 apples and buys 4 more. How many?", "yes", "A coin is heads up."]
    return [prompt_text(tokenizer, question) for question in questions]


def _ending_at_different_places(model: Any, tokenizer: Any, prompts: list[str]) -> list[Any]:
    """Give the model one more end token, such that its answers to the prompts, drawn alone, end in as many rounds as can be."""
    free = [generate(model, tokenizer, [prompt], CAP)[0].ids for prompt in prompts]

    def spread(token: int) -> tuple[int, int]:
        ends = [ids.index(token) // 4 if token in ids else CAP for ids in free]
        return len(set(ends)), -token

    model.generation_config.eos_token_id = max({token for ids in free for token in ids}, key=spread)
    return [generate(model, tokenizer, [prompt], CAP)[0] for prompt in prompts]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "gemma2"])
def test_rows_leave_when_they_are_done_and_the_others_go_on(
    tiny: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(rounds, "ROUND", 4)
    model, prompts, sizes = tiny.build_model(kind, tied=False, scale=6.0), _prompts(tokenizer), []
    alone = _ending_at_different_places(model, tokenizer, prompts)
    assert len({(output.tokens - 1) // 4 for output in alone}) > 1  # they do end in different rounds
    model.register_forward_pre_hook(lambda module, args, kwargs: sizes.append(len(kwargs["input_ids"])), with_kwargs=True)
    assert generate(model, tokenizer, prompts, CAP, batch_size=5) == alone
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 5 and len(set(sizes)) > 1
    assert len(sizes) <= max(output.tokens for output in alone) + 3  # the last round may run on past the last end


@pytest.mark.parametrize("cap", [1, 3, 4, 5, 8])
def test_the_cap_is_kept_at_every_boundary(tiny: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch, cap: int) -> None:
    monkeypatch.setattr(rounds, "ROUND", 4)
    model, prompts = tiny.build_model(), _prompts(tokenizer)
    together = generate(model, tokenizer, prompts, cap)
    assert together == [generate(model, tokenizer, [prompt], cap)[0] for prompt in prompts]
    assert all(output.tokens == cap and output.truncated for output in together)


def test_every_drawn_answer_keeps_its_own_random_numbers(tiny: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "ROUND", 4)
    model, prompts = tiny.build_model(scale=12.0), _prompts(tokenizer)
    _ending_at_different_places(model, tokenizer, prompts)
    many = sample_many(model, tokenizer, prompts[1], CAP, 6, 1.0, 1.0, seed=3)
    one_by_one = [sample_many(model, tokenizer, prompts[1], CAP, 1, 1.0, 1.0, seed=3, first=place)[0] for place in range(6)]
    assert many == one_by_one and len({output.tokens for output in many}) > 1
