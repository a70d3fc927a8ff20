"""Prompts with thoughts as vectors: fed at once they are answered as they are by the loop, in transformers and in vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.errors import CirfError
from cirf.lm.decoding.generate import generate
from cirf.lm.decoding.prefix_cache import Begun
from cirf.lm.prompt import encode, prompt_text, stop_ids
from cirf.lm.vocabulary import add_tokens
from cirf.methods.base import at_head_of_answer
from cirf.methods.latent.decode import Latent, Thinking, given, prefill, prompt_embeddings

LATENT = Latent("<latent>", "</latent>", 3)
ASKED = ["Hi?", "What is 12 plus 7?", "Anna has 3 apples and buys 4 more. How many?", "yes", "A coin is heads up."]
CAP = 6


def prepared(tiny: Any, kind: str, **shape: int) -> tuple[Any, Any, list[str]]:
    model, tokenizer = tiny.build_model(kind, tied=False, **shape), tiny.build_tokenizer()
    add_tokens(model, tokenizer, [LATENT.begin, LATENT.end])
    tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, LATENT.begin)
    return model, tokenizer, [prompt_text(tokenizer, text) for text in ASKED]


def plainly(model: Any, tokenizer: Any, vectors: torch.Tensor) -> tuple[int, ...]:
    """What anyone's ``generate`` answers to these vectors, up to its end token."""
    stops = stop_ids(model, tokenizer)
    how = {"max_new_tokens": CAP, "do_sample": False, "eos_token_id": stops, "pad_token_id": stops[0]}
    made = model.generate(inputs_embeds=vectors[None], **how)
    return tuple(made[0].tolist())


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "gemma2"])
@pytest.mark.parametrize("size", [1, 5])
def test_plain_generate_answers_the_vectors_as_the_loop_does(tiny: Any, kind: str, size: int) -> None:
    model, tokenizer, prompts = prepared(tiny, kind)
    thinking = Thinking(model, tokenizer, LATENT)
    made = prompt_embeddings(model, tokenizer, prompts, thinking, batch_size=size)
    wanted = generate(model, tokenizer, prompts, CAP, prefixes=thinking)
    assert [tuple(vectors.shape) for vectors in made] == [(len(encode(tokenizer, text)) + 4, 32) for text in prompts]
    assert [plainly(model, tokenizer, vectors) for vectors in made] == [output.ids for output in wanted]
    without = prompt_embeddings(model, tokenizer, prompts, None)
    assert [plainly(model, tokenizer, vectors) for vectors in without] == [
        o.ids for o in generate(model, tokenizer, prompts, CAP)
    ]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_they_are_the_thoughts_between_the_tokens(tiny: Any, kind: str) -> None:
    model, tokenizer, prompts = prepared(tiny, kind)
    ids = [encode(tokenizer, text) for text in prompts]
    rows = given(model, Thinking(model, tokenizer, LATENT), ids)
    embed, end = model.get_input_embeddings(), tokenizer.convert_tokens_to_ids(LATENT.end)
    for row, tokens in zip(rows, ids, strict=True):
        assert row.own.nonzero()[:, 0].tolist() == [len(tokens), len(tokens) + 1, len(tokens) + 2]
        feed = embed(torch.tensor([tokens]))
        with torch.no_grad():
            for _ in range(LATENT.count):
                state = model(inputs_embeds=feed, output_hidden_states=True, use_cache=False).hidden_states[-1][:, -1:]
                feed = torch.cat([feed, state], dim=1)
        feed = torch.cat([feed, embed(torch.tensor([[end]]))], dim=1)[0]
        torch.testing.assert_close(row.vectors, feed, atol=2e-4, rtol=2e-4)
        assert torch.equal(row.vectors[: len(tokens)], feed[: len(tokens)])
    begun = prefill(model, rows)
    assert begun.prompts == [row.ids for row in rows] and begun.heads == [len(row.ids) - 1 for row in rows]


class Soft:
    """Another kind of beginning: vectors of a row's own in the places of a token of the prompt, all fed at once, and one of them
    at its very beginning."""

    def __init__(self, model: Any, place: int) -> None:
        self.model, self.place = model, place
        self.made = torch.nn.Linear(4, 32)

    def prepare(self, prompts: Sequence[str]) -> None: ...

    def begin(self, prompts: Sequence[list[int]]) -> Begun:
        from cirf.methods.latent.loop import padded_left

        ids, mask = padded_left([row[:-1] for row in prompts], self.place)
        vectors = self.model.get_input_embeddings()(ids)
        soft = (ids == self.place) & mask.bool()
        vectors[soft] = self.made(torch.arange(int(soft.sum()) * 4).reshape(-1, 4).float().sin())
        places = (mask.cumsum(dim=1) - 1).clamp(min=0)
        self.model.get_input_embeddings()(ids)
        cache = self.model(inputs_embeds=vectors, attention_mask=mask, position_ids=places, use_cache=True).past_key_values
        self.model(input_ids=ids)  # whatever else it computes is no part of the prompt
        return Begun(list(prompts), [len(row) - 1 for row in prompts], cache)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_nothing_is_needed_but_how_prompts_begin(tiny: Any, kind: str) -> None:
    model, _, _ = prepared(tiny, kind)
    soft = Soft(model, 90)
    prompts = [[90, 5, 9, 90, 90, 30, 41], [7, 90, 91], [60, 61, 62]]
    with torch.no_grad():
        rows = given(model, soft, prompts)
    assert [row.own.tolist() for row in rows] == [[token == 90 for token in ids] for ids in prompts]
    assert [row.ids for row in rows] == prompts


def test_a_cache_from_elsewhere_is_no_vectors(tiny: Any) -> None:
    model, _, _ = prepared(tiny, "llama")

    class Elsewhere(Soft):
        def begin(self, prompts: Sequence[list[int]]) -> Begun:
            import copy

            made = super().begin(prompts)
            return Begun(made.prompts, made.heads, copy.deepcopy(made.cache))

    with torch.no_grad(), pytest.raises(CirfError, match="was computed elsewhere"):
        given(model, Elsewhere(model, 90), [[5, 90, 7]])


@pytest.mark.engine
def test_vllm_answers_the_vectors_as_the_loop_does(tiny: Any, tmp_path: Path) -> None:
    """With heads as wide as its kernels want them."""
    vllm = pytest.importorskip("vllm")
    model, tokenizer, prompts = prepared(tiny, "llama", width=128)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    thinking = Thinking(model, tokenizer, LATENT)
    wanted = [output.ids for output in generate(model, tokenizer, prompts, CAP, prefixes=thinking)]
    vectors = prompt_embeddings(model, tokenizer, prompts, thinking)
    engine = vllm.LLM(str(tmp_path), enable_prompt_embeds=True, dtype="float32", enforce_eager=True, max_model_len=128)
    stops = stop_ids(model, tokenizer)
    how = vllm.SamplingParams(temperature=0.0, max_tokens=CAP, stop_token_ids=stops)
    made = engine.generate([{"prompt_embeds": rows} for rows in vectors], how)
    assert [tuple(one.outputs[0].token_ids) for one in made] == wanted
    without = engine.generate([{"prompt_token_ids": encode(tokenizer, prompt)} for prompt in prompts], how)
    assert [tuple(one.outputs[0].token_ids) for one in without] != wanted
