"""Models that keep states beside keys and values, or in place of them, answer a batch as they answer one question; and what a
family cannot do is reported in one sentence."""

from __future__ import annotations

from typing import Any

import families
import pytest
import torch
from tables import each_row

from cirf.errors import CirfError
from cirf.lm.adapters import check_adapters, put_adapters
from cirf.lm.decoding import rounds
from cirf.lm.decoding.generate import Decoding, Output, follow, generate, generate_one, output_of, sample_many
from cirf.lm.decoding.prefix_cache import PromptOpenings
from cirf.lm.prompt import prompt_text, stop_ids
from cirf.methods.latent.loop import check_vectors
from cirf.recipe import schema

KINDS = [
    "qwen3_5",
    "qwen3_next",
    "lfm2",
    "granite_hybrid",
    "falcon_h1",
    "jamba",
    "mamba",
    "mamba2",
    "falcon_mamba",
    "recurrent_gemma",
    "rwkv",
    "minimax",
]
LIKE_OTHERS = {"qwen3_next", "granite_hybrid", "falcon_h1", "jamba", "mamba2", "falcon_mamba", "minimax", "recurrent_gemma"}
"""Families whose states are of a kind that another one has too, or made of such: they answer with ``-m slow``."""
ANSWERING = [pytest.param(kind, marks=[pytest.mark.slow] if kind in LIKE_OTHERS else []) for kind in KINDS]
CAP = 14
_SCALES = {"granite_hybrid": 8.0, "recurrent_gemma": 8.0}
"""At which answers end in different rounds."""


def _prompts(tokenizer: Any) -> list[str]:
    return [
        prompt_text(tokenizer, question) for question in ("Hi?", "What is 12 plus 7?", "yes", "Bob flips the coin, no?", "Ha?")
    ]


def _alone(model: Any, tokenizer: Any, prompts: list[str]) -> list[Output]:
    """Answers one by one, with one more end token such that they end at different places."""
    free = [generate(model, tokenizer, [prompt], CAP)[0].ids for prompt in prompts]
    tokens = sorted({token for ids in free for token in ids})
    model.generation_config.eos_token_id = max(
        tokens, key=lambda token: len({ids.index(token) if token in ids else CAP for ids in free})
    )
    return [generate(model, tokenizer, [prompt], CAP)[0] for prompt in prompts]


@pytest.mark.parametrize("kind", ANSWERING)
def test_every_way_of_answering_gives_the_answer_to_one_question(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(rounds, "ROUND", 4)
    model, prompts = families.build(kind, scale=_SCALES.get(kind, 4.0)), _prompts(tokenizer)
    alone = _alone(model, tokenizer, prompts)
    assert len({output.ids for output in alone}) > 1 and len({output.tokens for output in alone}) > 1
    assert generate(model, tokenizer, prompts, CAP) == alone
    assert generate(model, tokenizer, [prompts[1]] * 3, CAP, batch_size=3) == [alone[1]] * 3  # of equal length
    shared = PromptOpenings(model, tokenizer, ["<|im_start|>system\n<|im_end|>\n<|im_start|>user\n" + "What is " * 70])
    long = [prompt_text(tokenizer, "What is " * 70 + question) for question in ("12?", "7 plus 3?")]
    assert generate(model, tokenizer, long, 6, Decoding(prefixes=shared)) == [
        generate(model, tokenizer, [prompt], 6)[0] for prompt in long
    ]

    written: list[list[int]] = [[] for _ in prompts]
    stops = stop_ids(model, tokenizer)

    def step(rows: Any, tokens: Any) -> list[bool]:
        for row, token in zip(rows, tokens, strict=True):
            written[row].append(token)
        return [token in stops for token in tokens]

    follow(model, tokenizer, [tokenizer(prompt, add_special_tokens=False).input_ids for prompt in prompts], CAP, step)
    assert [output_of(tokenizer, ids, stops) for ids in written] == alone
    assert generate_one(model, tokenizer, prompts[1], CAP).ids == alone[1].ids


@pytest.mark.parametrize("kind", ANSWERING)
def test_a_vote_is_the_same_however_many_are_drawn(tokenizer: Any, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(rounds, "ROUND", 4)
    model, prompt = families.build(kind, scale=6.0), _prompts(tokenizer)[1]
    free = sample_many(model, tokenizer, prompt, CAP, 3, Decoding(1.0, 1.0, 3))
    model.generation_config.eos_token_id = free[0].ids[CAP // 2]  # so that they end at different places
    single = [sample_many(model, tokenizer, prompt, CAP, 1, Decoding(1.0, 1.0, 3), first=place)[0] for place in range(3)]
    assert len({output.ids for output in single}) > 1
    assert sample_many(model, tokenizer, prompt, CAP, 3, Decoding(1.0, 1.0, 3)) == single


@each_row("kind", [*KINDS, "gemma4", "gemma3n"])
def test_a_model_that_cannot_think_in_vectors_says_so(kind: str) -> None:
    with pytest.raises(CirfError) as summary:
        check_vectors(families.build(kind, scale=2.0))
    assert "\n" not in str(summary.value)


def test_models_that_can_think_in_vectors_pass(tiny: Any) -> None:
    for kind in ("llama", "gpt2", "gemma2"):
        check_vectors(tiny.build_model(kind))
    check_vectors(families.build("opt"))
    check_vectors(families.build("opt").to(torch.bfloat16))


@pytest.mark.parametrize("kind", ["mamba", "mamba2", "falcon_mamba", "falcon_h1"])
def test_adapters_on_all_layers_leave_out_those_that_can_have_none(kind: str) -> None:
    section = schema.Lora(rank=2)
    model = families.build(kind)
    check_adapters(model.config, section)
    adapted = put_adapters(model, section)
    names = {name.partition(".lora_A")[0].rpartition(".")[2] for name, _ in adapted.named_parameters() if ".lora_A" in name}
    assert "in_proj" in names and "out_proj" not in names
    ids = torch.tensor([[5, 9, 30, 41]])
    adapted(input_ids=ids, use_cache=False).logits.sum().backward()
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.grad is not None:
                parameter.sub_(1e-4 * parameter.grad)
        wanted = adapted(input_ids=ids).logits
        torch.testing.assert_close(adapted.merge_and_unload()(input_ids=ids).logits, wanted, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", ["llama4", "phimoe"])
def test_a_router_has_no_adapter_as_it_is_no_plain_layer(kind: str) -> None:
    model = families.build(kind)
    router = next(name.rpartition(".")[2] for name, layer in model.named_modules() if "Router" in type(layer).__name__)
    with pytest.raises(CirfError, match="names no layer that can have an adapter"):
        check_adapters(model.config, schema.Lora(target_modules=router))
    adapted = put_adapters(model, schema.Lora(rank=2))
    assert adapted(input_ids=torch.tensor([[5, 9, 30, 41]]), use_cache=False).logits.shape[1] == 4
    assert not any(f"{router}.lora_A" in name for name, _ in adapted.named_parameters())


@pytest.mark.parametrize(
    ("targets", "words"),
    [("in_proj,out_proj", ("out_proj", "all-linear", "adaptation: full")), ("q_proj", ("q_proj", "in_proj", "x_proj"))],
)
def test_targets_that_cannot_be_met_name_what_can(targets: str, words: tuple[str, ...]) -> None:
    config = families.build("mamba").config
    with pytest.raises(CirfError) as summary:
        check_adapters(config, schema.Lora(target_modules=targets))
    assert all(word in str(summary.value) for word in words) and "\n" not in str(summary.value)
