"""Beginnings of rows in a model that is not trained: read once, by themselves, kept while there is room, never written to. What
prompts have in common is computed once, and nothing that is answered differs by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from cirf.cpu import memory
from cirf.lm.decoding import prefix_cache as prefix
from cirf.lm.decoding.generate import Decoding, generate, generate_one, sample_many
from cirf.lm.decoding.prefix_cache import PromptOpenings
from cirf.lm.prompt import encode, prompt_text, settle_template
from cirf.lm.training.batches import Row
from cirf.lm.training.finetune import finetune
from cirf.lm.training.spec import TrainingSpec
from cirf.methods.base import around_turn
from cirf.methods.soft import loss as soft_loss
from cirf.methods.soft.loss import FrozenGuideVectors, SoftObjective
from cirf.methods.soft.prompts import PromptCache, placeholder
from cirf.recipe import schema

ROWS = [[5, 6, 7, 8], [11, 12], [5, 6, 7, 8, 9]]
KINDS = [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("llama", "gpt2")), "gemma2"]


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
    model, heads = tiny.build_model(kind, tied=False).requires_grad_(False), PromptCache()
    with reading(model) as read:
        first = layers(heads.cache(model, ROWS))
        assert read == [(1, 4), (1, 2), (1, 5)]
        again = heads.cache(model, ROWS[::-1])
        assert len(read) == 3
        alone = layers(PromptCache().cache(model, ROWS[1:2]))
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
    wanted = layers(PromptCache().cache(model, ROWS))
    one_token = 2 * 2 * wanted[0][0, :, 0].nbytes  # keys and values of two layers
    for room, again in ((0, 3), (4 * one_token, 2), (6 * one_token, 1), (11 * one_token, 0)):
        heads = PromptCache(room)
        heads.cache(model, ROWS)
        with reading(model) as read:
            found = layers(heads.cache(model, ROWS))
        assert len(read) == again and all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_a_quarter_of_the_memory_that_is_left_is_room_for_all_that_share_it(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.build_model("qwen2", tied=False).requires_grad_(False)
    row = sum(part.nbytes for part in layers(PromptCache().cache(model, ROWS[1:2])))
    for left, processes, again in ((4 * row, 1, 0), (4 * row - 4, 1, 1), (8 * row, 2, 0), (4 * row, 2, 1), (None, 1, 1)):
        monkeypatch.setattr(memory, "free_memory", lambda device, left=left: left)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
        assert memory.spare("cuda:1") == (left or 0) // 4  # a GPU is one process's own
        heads = PromptCache()
        heads.cache(model, ROWS[1:2])
        with reading(model) as read:
            heads.cache(model, ROWS[1:2])
        assert len(read) == again


def test_where_a_batch_takes_no_longer_than_a_row_what_is_not_kept_is_read_together(tiny: Any) -> None:
    model = tiny.build_model("qwen2", tied=False).requires_grad_(False)
    wanted = layers(PromptCache().cache(model, ROWS))
    one_token = 2 * 2 * wanted[0][0, :, 0].nbytes
    heads = PromptCache(6 * one_token, together=True)  # room for two rows
    with reading(model) as read:
        for _ in range(2):
            for found, part in zip(layers(heads.cache(model, [*ROWS, ROWS[0]])), wanted, strict=True):
                torch.testing.assert_close(found, torch.cat([part, part[:1]]), atol=1e-5, rtol=1e-5)
    assert read == [(3, 5), (1, 5)]  # the second time the longest alone
    held = {
        part.untyped_storage().data_ptr(): part.untyped_storage().nbytes()
        for row in heads.kept.values()
        for pair in row
        for part in pair
    }
    assert sum(held.values()) == 6 * one_token  # and nothing of the batch that they came of


def drawing(tiny: Any) -> list[Any]:
    """Models in training with dropout in a module, in the attention's kernel, and as a number of the model's own."""
    import transformers as t

    outside, inside = tiny.build_model("gpt2", tied=False), tiny.build_model("llama", tied=False)
    outside.transformer.drop.p = 0.5
    for layer in inside.model.layers:
        layer.self_attn.attention_dropout = 0.5
    torch.manual_seed(0)
    config = t.OPTConfig(
        vocab_size=90, hidden_size=16, ffn_dim=32, num_hidden_layers=2, num_attention_heads=2, word_embed_proj_dim=16
    )
    assert config.dropout == 0.1
    return [model.requires_grad_(False).train() for model in (outside, inside, t.OPTForCausalLM(config))]


def test_a_model_that_draws_reads_all_rows_every_time(tiny: Any) -> None:
    for model in drawing(tiny):
        heads = PromptCache()
        heads.cache(model.eval(), ROWS)  # judged first, as a training does
        model.train()
        with reading(model) as read:
            torch.manual_seed(7)
            made = [layers(heads.cache(model, ROWS)) for _ in range(2)]
        assert read == [(1, 4), (3, 5), (3, 5)]  # one row, to see that it draws
        assert not all(torch.equal(*pair) for pair in zip(*made, strict=True))
        torch.manual_seed(7)
        later = PromptCache()  # which another training begins at once with, and draws the same
        later.cache(model, ROWS)
        assert all(torch.equal(*pair) for pair in zip(layers(later.cache(model, ROWS)), made[1], strict=True))
        with reading(model.eval()) as read:
            heads = PromptCache()
            for _ in range(2):
                heads.cache(model, ROWS)
        assert read == [(1, 4), (1, 2), (1, 5)]  # asked, and not trained, it draws nothing


def test_dropout_of_nothing_draws_nothing(tiny: Any) -> None:
    import transformers as t

    torch.manual_seed(0)
    model = t.FalconForCausalLM(
        t.FalconConfig(vocab_size=90, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, attention_dropout=0.0)
    )
    model.requires_grad_(False).train()
    heads = PromptCache()
    with reading(model) as read:
        made = [layers(heads.cache(model, ROWS)) for _ in range(2)]
    assert read == [(1, 4), (1, 4), (1, 2), (1, 5)] and all(torch.equal(*pair) for pair in zip(*made, strict=True))


def test_a_model_whose_past_slides_reads_all_rows_every_time(tiny: Any) -> None:
    model, heads = tiny.build_model("gemma2", tied=False).requires_grad_(False), PromptCache()
    with reading(model) as read:
        made = [layers(heads.cache(model, ROWS)) for _ in range(2)]
    assert read == [(1, 4), (3, 5), (3, 5)] and all(torch.equal(*pair) for pair in zip(*made, strict=True))


QUESTIONS = [
    "Hi?",
    "What is 12 plus 7?",
    "Anna has 3 apples and buys 4 more. How many?",
    "yes",
    "Bob flips the coin. Heads?",
]


def trained(tiny: Any, kind: str, room: int | None, folder: Path, killed_after: int | None = None) -> tuple[Any, Any]:
    """The map and the losses of a training before a frozen model."""
    tokenizer = tiny.build_tokenizer(tiny.CHATML)
    settle_template(tokenizer)
    holder = placeholder(tokenizer)
    tokenizer.chat_template = around_turn(tokenizer.chat_template, "", holder * 3)
    states = torch.randn(5, 3, 20, generator=torch.Generator().manual_seed(1))
    objective = SoftObjective(tokenizer.convert_tokens_to_ids(holder), FrozenGuideVectors(states, range(5), 32, 0))
    rows = [Row(prompt_text(tokenizer, text), "7", 1, given=place) for place, text in enumerate(QUESTIONS)]
    section = schema.Finetune(
        epochs=4, batch_size=2, gradient_accumulation_steps=1, learning_rate=1e-2, warmup_steps=1, bf16=False, save_steps=2
    )
    updates, make = 0, soft_loss.SoftObjective.loss

    def loss(self: Any, *args: Any) -> Any:
        nonlocal updates
        updates += 1
        if updates == killed_after:
            raise KeyboardInterrupt
        return make(self, *args)

    model = tiny.build_model(kind, tied=False)
    with mock.patch.object(soft_loss, "PromptCache", lambda: PromptCache(room)), mock.patch.object(SoftObjective, "loss", loss):
        _, history, _ = finetune(
            model, tokenizer, rows[:4], rows[2:], TrainingSpec(section, "soft", [], folder, 0, objective=objective, frozen=True)
        )
    assert objective.heads is not None and not objective.heads.kept  # let go of
    return objective.module, [row["loss"] for row in history.validation]


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_training_ends_as_an_unbroken_one_whatever_was_kept(tiny: Any, tmp_path: Path, kind: str) -> None:
    whole, losses = trained(tiny, kind, None, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        trained(tiny, kind, None, tmp_path / "killed", killed_after=6)
    for room, folder in ((None, "killed"), (0, "nothing kept")):
        module, found = trained(tiny, kind, room, tmp_path / folder)
        assert found == losses and torch.equal(module.weight, whole.weight)


OPENING = "Answer as here. " + "A coin is heads up. Bob flips the coin. Is the coin still heads up? no " * 3 + "Q:"
OTHER = "Count the apples. " + "Anna has 3 apples and buys 4 more. How many apples are there now? 7 " * 4 + "Q:"
ASKED = [
    " Hi?",
    " What is 12 plus 7?",
    " Anna has 3 apples and buys 4 more. How many?",
    " yes",
    " A coin is heads up.",
]


def prompts(tokenizer: Any, opening: str = OPENING) -> list[str]:
    return [prompt_text(tokenizer, opening + question) for question in ASKED]


def mixed(tokenizer: Any) -> list[str]:
    """Prompts of two openings of unlike length, one with none, and one that is nothing but an opening."""
    alone = prompt_text(tokenizer, "This one begins as no other does, and it is longer than the questions of the others are.")
    return [*prompts(tokenizer), *prompts(tokenizer, OTHER), alone, prompt_text(tokenizer, OPENING)]


def kept(model: Any, tokenizer: Any, **limits: int) -> PromptOpenings:
    return PromptOpenings(model, tokenizer, [prompt_text(tokenizer, opening) for opening in (OPENING, OTHER)], **limits)


@pytest.fixture
def fed(request: pytest.FixtureRequest) -> Any:
    """``fed(model)``: a list of the tokens a row that each forward pass gets."""

    def watch(model: Any) -> list[int]:
        seen: list[int] = []
        hook = model.register_forward_pre_hook(
            lambda _, __, summary: seen.append(summary["input_ids"].shape[1]), with_kwargs=True
        )
        request.addfinalizer(hook.remove)
        return seen

    return watch


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_given_without(tiny: Any, tokenizer: Any, kind: str) -> None:
    model, asked = tiny.build_model(kind, tied=False), mixed(tokenizer)
    without = generate(model, tokenizer, asked, 6, batch_size=5)
    assert len({output.ids for output in without}) > 3
    for size in (3, len(asked)):
        assert generate(model, tokenizer, asked, 6, Decoding(prefixes=kept(model, tokenizer)), batch_size=size) == without
    prefixes = kept(model, tokenizer)
    ones = [generate_one(model, tokenizer, prompt, 6, Decoding(prefixes=prefixes)) for prompt in asked]
    assert [(one.text, one.tokens) for one in ones] == [(output.text, output.tokens) for output in without]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_first_logits_are_the_same_to_a_rounding(tiny: Any, tokenizer: Any, kind: str) -> None:
    model, asked = tiny.build_model(kind, tied=False), mixed(tokenizer)
    found: list[torch.Tensor] = []
    model.register_forward_hook(lambda _, __, output: found.append(output.logits[:, -1].clone()))
    generate(model, tokenizer, asked, 1, batch_size=len(asked))
    prefixes = kept(model, tokenizer)
    prefixes.prepare(asked)
    count = len(found)
    generate(model, tokenizer, asked, 1, Decoding(prefixes=prefixes), batch_size=len(asked))
    assert len(found) == count + 1
    torch.testing.assert_close(found[-1], found[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("count", [1, 4])
def test_votes_are_those_drawn_without(tiny: Any, tokenizer: Any, kind: str, count: int) -> None:
    model = tiny.build_model(kind, tied=False)
    for prompt in (prompts(tokenizer)[2], prompt_text(tokenizer, OPENING)):
        drawn = sample_many(model, tokenizer, prompt, 6, count, Decoding(1.0, 0.9, 3))
        assert drawn == sample_many(model, tokenizer, prompt, 6, count, Decoding(1.0, 0.9, 3, prefixes=kept(model, tokenizer)))


def test_sampling_draws_the_same(tiny: Any, tokenizer: Any) -> None:
    model, asked = tiny.build_model(tied=False), prompts(tokenizer)
    without = generate(model, tokenizer, asked, 12, Decoding(1.0, 0.9, 3), batch_size=2)
    assert generate(model, tokenizer, asked, 12, Decoding(1.0, 0.9, 3, prefixes=kept(model, tokenizer)), batch_size=2) == without


def test_an_opening_is_computed_once_and_never_the_whole_prompt(tiny: Any, tokenizer: Any, fed: Any) -> None:
    model = tiny.build_model()
    seen, prefixes, asked = fed(model), kept(model, tokenizer), [*prompts(tokenizer), prompt_text(tokenizer, OPENING)]
    lengths = [len(encode(tokenizer, prompt)) for prompt in asked]
    heads = prefixes.heads([encode(tokenizer, prompt) for prompt in asked])
    assert len(set(heads[:-1])) == 1 and heads[0] >= prefix.LEAST and heads[-1] == lengths[-1] - 1
    prefixes.prepare(asked[:1])
    assert seen == heads[:1]
    for prompt, length in zip(asked[:-1], lengths[:-1], strict=True):
        seen.clear()
        generate(model, tokenizer, [prompt], 3, Decoding(prefixes=prefixes))
        assert seen == [length - heads[0], 1, 1]
    seen.clear()
    generate(model, tokenizer, asked[:-1], 3, Decoding(prefixes=prefixes), batch_size=9)
    assert seen == [max(lengths[:-1]) - heads[0], 1, 1]


def test_what_is_kept_is_not_written_to(tiny: Any, tokenizer: Any) -> None:
    model, asked = tiny.build_model(), prompts(tokenizer)
    prefixes = kept(model, tokenizer)
    prefixes.prepare(asked)
    ids = [encode(tokenizer, text) for text in asked]

    def layers() -> list[torch.Tensor]:
        begun = prefixes.begin(ids)
        assert begun is not None
        return [part.clone() for layer in begun.cache.layers for part in (layer.keys, layer.values)]

    before = layers()
    generate(model, tokenizer, asked, 5, Decoding(prefixes=prefixes))
    generate(model, tokenizer, asked[:1], 5, Decoding(prefixes=prefixes))
    sample_many(model, tokenizer, asked[0], 5, 3, Decoding(1.0, 0.9, 1, prefixes=prefixes))
    assert all(map(torch.equal, layers(), before)) and before[0].any()


def test_memory_is_bounded_and_the_newest_stays(tiny: Any, tokenizer: Any, fed: Any) -> None:
    model, asked = tiny.build_model(), mixed(tokenizer)
    seen, prefixes = fed(model), kept(model, tokenizer, most_bytes=1)
    assert generate(model, tokenizer, asked, 3, Decoding(prefixes=prefixes)) == generate(model, tokenizer, asked, 3)
    prefixes.prepare(asked[:1])
    prefixes.prepare(asked[5:6])
    seen.clear()
    prefixes.prepare(asked[5:6])
    assert seen == []
    prefixes.prepare(asked[:1])
    assert len(seen) == 1


def test_where_an_opening_ends_is_named_by_tokens(tiny: Any, tokenizer: Any) -> None:
    """Text that the tokenizer joins across the end of an opening is left to the question."""
    model = tiny.build_model()
    words = "A coin is heads up. Bob flips the coin. Is the coin still heads up? " * 4
    opening, asked = words + "Ann", [prompt_text(tokenizer, words + rest) for rest in ("Anna has 3 apples", "Anne", "Ann", "An")]
    prefixes = PromptOpenings(model, tokenizer, [prompt_text(tokenizer, opening)])
    assert generate(model, tokenizer, asked, 8, Decoding(prefixes=prefixes)) == generate(model, tokenizer, asked, 8)
    encoded = [encode(tokenizer, prompt) for prompt in asked]
    own = encode(tokenizer, prompt_text(tokenizer, opening))
    for ids, head in zip(encoded, prefixes.heads(encoded), strict=True):
        assert ids[:head] == own[:head] and head < len(ids)


def test_short_openings_and_models_that_keep_their_past_otherwise_have_none(tiny: Any, tokenizer: Any, fed: Any) -> None:
    short = PromptOpenings(tiny.build_model(), tokenizer, [prompt_text(tokenizer, "Q:")])
    asked = [encode(tokenizer, prompt_text(tokenizer, f"Q: {text}")) for text in ("Hi?", "yes")]
    assert short.heads(asked) == [0, 0] and short.begin(asked) is None
    sliding = tiny.build_model("gemma2")
    seen, prefixes = fed(sliding), kept(sliding, tokenizer)
    encoded = [encode(tokenizer, prompt) for prompt in prompts(tokenizer)]
    assert prefixes.begin(encoded) is None and len(seen) == 1
    assert prefixes.begin(encoded) is None and len(seen) == 1  # found out once
