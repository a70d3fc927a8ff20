"""Beginnings of rows in a model that is not trained: read once, by themselves, kept while there is room, never written to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from cirf.lm import heads as heads_module
from cirf.lm.heads import Heads

ROWS = [[5, 6, 7, 8], [11, 12], [5, 6, 7, 8, 9]]


@contextlib.contextmanager
def reading(model: Any) -> Iterator[list[tuple[int, ...]]]:
    """The shapes of what the model reads within."""
    found: list[tuple[int, ...]] = []
    hook = model.get_input_embeddings().register_forward_hook(lambda module, args, made: found.append(tuple(args[0].shape)))
    yield found
    hook.remove()


def layers(cache: Any) -> list[torch.Tensor]:
    return [part.clone() for layer in cache.layers for part in (layer.keys, layer.values)]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_a_beginning_is_read_once_by_itself_and_is_the_same_in_any_batch(tiny: Any, kind: str) -> None:
    model, heads = tiny.build_model(kind, tied=False).requires_grad_(False), Heads()
    with reading(model) as read:
        first = layers(heads.cache(model, ROWS))
        assert read == [(1, 4), (1, 2), (1, 5)]
        again = heads.cache(model, ROWS[::-1])
        assert len(read) == 3
        alone = layers(Heads().cache(model, ROWS[1:2]))
    assert all(part.shape[2] == 5 for part in first) and not any(part.requires_grad for part in first)
    for one, other, own in zip(first, layers(again), alone, strict=True):
        assert torch.equal(one, other.flip(0)) and torch.equal(one[1:2, :, 3:], own)
        assert not one[1, :, :3].any()
    # A pass behind it writes into the copy that it was given.
    mask = torch.tensor([[1] * 6, [0] * 3 + [1] * 3, [0] + [1] * 5])
    places = torch.tensor([[5], [2], [4]])
    model(input_ids=torch.tensor([[1], [2], [3]]), past_key_values=again, attention_mask=mask, position_ids=places)
    assert again.get_seq_length() == 6
    assert all(torch.equal(one, other) for one, other in zip(first, layers(heads.cache(model, ROWS)), strict=True))


def test_what_does_not_fit_is_read_again_and_comes_out_the_same_to_the_bit(tiny: Any) -> None:
    model = tiny.build_model("qwen2", tied=False).requires_grad_(False)
    wanted = layers(Heads().cache(model, ROWS))
    one_token = 2 * 2 * wanted[0][0, :, 0].nbytes  # keys and values of two layers
    for room, again in ((0, 3), (4 * one_token, 2), (6 * one_token, 1), (11 * one_token, 0)):
        heads = Heads(room)
        heads.cache(model, ROWS)
        with reading(model) as read:
            found = layers(heads.cache(model, ROWS))
        assert len(read) == again and all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_a_quarter_of_the_memory_that_is_left_is_room(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.build_model("qwen2", tied=False).requires_grad_(False)
    one_token = sum(part.nbytes for part in layers(Heads().cache(model, [[5]])))
    for left, again in ((4 * 2 * one_token, 0), (4 * 2 * one_token - 4, 1), (None, 1)):
        monkeypatch.setattr(heads_module, "free_memory", lambda device, left=left: left)
        heads = Heads()
        heads.cache(model, ROWS[1:2])
        with reading(model) as read:
            heads.cache(model, ROWS[1:2])
        assert len(read) == again


def test_a_model_that_draws_or_slides_reads_all_rows_every_time(tiny: Any) -> None:
    draws, slides = tiny.build_model("gpt2", tied=False), tiny.build_model("gemma2", tied=False)
    inside = tiny.build_model("llama", tied=False)
    for layer in inside.model.layers:
        layer.self_attn.attention_dropout = 0.5  # handed to the kernel, and no module of its own
    draws.transformer.drop.p = 0.5
    for model in (draws, inside):
        model.requires_grad_(False).train()
    for model in (draws, inside, slides.requires_grad_(False)):
        heads = Heads()
        with reading(model) as read:
            made = [layers(heads.cache(model, ROWS)) for _ in range(2)]
        assert read[-2:] == [(3, 5), (3, 5)]  # one that slides is first found to
        assert all(torch.equal(*pair) for pair in zip(*made, strict=True)) == (model is slides)
    with reading(draws.eval()) as read:
        heads = Heads()
        heads.cache(draws, ROWS)
        heads.cache(draws, ROWS)
    assert read == [(1, 4), (1, 2), (1, 5)]  # asked, and not trained, it draws nothing
