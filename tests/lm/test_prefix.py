"""What prompts have in common is computed once, and nothing that is answered differs by it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cirf.lm.decoding import prefix_cache as prefix
from cirf.lm.decoding.generate import generate, generate_one, sample_many
from cirf.lm.decoding.prefix_cache import Prefixes
from cirf.lm.prompt import encode, prompt_text

OPENING = "Answer as here. " + "A coin is heads up. Bob flips the coin. Is the coin still heads up? no " * 3 + "Q:"
OTHER = "Count the apples. " + "Anna has 3 apples and buys 4 more. How many apples are there now? 7 " * 4 + "Q:"
QUESTIONS = [" Hi?", " What is 12 plus 7?", " Anna has 3 apples and buys 4 more. How many?", " yes", " A coin is heads up."]


def prompts(tokenizer: Any, opening: str = OPENING) -> list[str]:
    return [prompt_text(tokenizer, opening + question) for question in QUESTIONS]


def mixed(tokenizer: Any) -> list[str]:
    """Prompts of two openings of unlike length, one with none, and one that is nothing but an opening."""
    alone = prompt_text(tokenizer, "This one begins as no other does, and it is longer than the questions of the others are.")
    return [*prompts(tokenizer), *prompts(tokenizer, OTHER), alone, prompt_text(tokenizer, OPENING)]


def kept(model: Any, tokenizer: Any, **limits: int) -> Prefixes:
    return Prefixes(model, tokenizer, [prompt_text(tokenizer, opening) for opening in (OPENING, OTHER)], **limits)


@pytest.fixture
def fed(request: pytest.FixtureRequest) -> Any:
    """``fed(model)``: a list that is told how many tokens a row each forward pass is given."""

    def watch(model: Any) -> list[int]:
        seen: list[int] = []
        hook = model.register_forward_pre_hook(
            lambda _, __, summary: seen.append(summary["input_ids"].shape[1]), with_kwargs=True
        )
        request.addfinalizer(hook.remove)
        return seen

    return watch


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2"])
def test_answers_are_those_given_without(tiny: Any, tokenizer: Any, kind: str) -> None:
    model, asked = tiny.build_model(kind, tied=False), mixed(tokenizer)
    without = generate(model, tokenizer, asked, 6, batch_size=5)
    assert len({output.ids for output in without}) > 3
    for size in (3, len(asked)):
        assert generate(model, tokenizer, asked, 6, batch_size=size, prefixes=kept(model, tokenizer)) == without
    prefixes = kept(model, tokenizer)
    ones = [generate_one(model, tokenizer, prompt, 6, prefixes=prefixes) for prompt in asked]
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
    generate(model, tokenizer, asked, 1, batch_size=len(asked), prefixes=prefixes)
    assert len(found) == count + 1
    torch.testing.assert_close(found[-1], found[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("count", [1, 4])
def test_votes_are_those_drawn_without(tiny: Any, tokenizer: Any, kind: str, count: int) -> None:
    model = tiny.build_model(kind, tied=False)
    for prompt in (prompts(tokenizer)[2], prompt_text(tokenizer, OPENING)):
        drawn = sample_many(model, tokenizer, prompt, 6, count, 1.0, 0.9, seed=3)
        assert drawn == sample_many(model, tokenizer, prompt, 6, count, 1.0, 0.9, seed=3, prefixes=kept(model, tokenizer))


def test_sampling_draws_the_same(tiny: Any, tokenizer: Any) -> None:
    model, asked = tiny.build_model(tied=False), prompts(tokenizer)
    without = generate(model, tokenizer, asked, 12, 1.0, 0.9, 3, 2)
    assert generate(model, tokenizer, asked, 12, 1.0, 0.9, 3, 2, prefixes=kept(model, tokenizer)) == without


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
        generate(model, tokenizer, [prompt], 3, prefixes=prefixes)
        assert seen == [length - heads[0], 1, 1]
    seen.clear()
    generate(model, tokenizer, asked[:-1], 3, batch_size=9, prefixes=prefixes)
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
    generate(model, tokenizer, asked, 5, prefixes=prefixes)
    generate(model, tokenizer, asked[:1], 5, prefixes=prefixes)
    sample_many(model, tokenizer, asked[0], 5, 3, 1.0, 0.9, seed=1, prefixes=prefixes)
    assert all(map(torch.equal, layers(), before)) and before[0].any()


def test_memory_is_bounded_and_the_newest_stays(tiny: Any, tokenizer: Any, fed: Any) -> None:
    model, asked = tiny.build_model(), mixed(tokenizer)
    seen, prefixes = fed(model), kept(model, tokenizer, most_bytes=1)
    assert generate(model, tokenizer, asked, 3, prefixes=prefixes) == generate(model, tokenizer, asked, 3)
    prefixes.prepare(asked[:1])
    prefixes.prepare(asked[5:6])
    seen.clear()
    prefixes.prepare(asked[5:6])
    assert seen == []
    prefixes.prepare(asked[:1])
    assert len(seen) == 1


def test_where_an_opening_ends_is_told_by_tokens(tiny: Any, tokenizer: Any) -> None:
    """Text that the tokenizer joins across the end of an opening is left to the question."""
    model = tiny.build_model()
    words = "A coin is heads up. Bob flips the coin. Is the coin still heads up? " * 4
    opening, asked = words + "Ann", [prompt_text(tokenizer, words + rest) for rest in ("Anna has 3 apples", "Anne", "Ann", "An")]
    prefixes = Prefixes(model, tokenizer, [prompt_text(tokenizer, opening)])
    assert generate(model, tokenizer, asked, 8, prefixes=prefixes) == generate(model, tokenizer, asked, 8)
    encoded = [encode(tokenizer, prompt) for prompt in asked]
    own = encode(tokenizer, prompt_text(tokenizer, opening))
    for ids, head in zip(encoded, prefixes.heads(encoded), strict=True):
        assert ids[:head] == own[:head] and head < len(ids)


def test_short_openings_and_models_that_keep_their_past_otherwise_have_none(tiny: Any, tokenizer: Any, fed: Any) -> None:
    short = Prefixes(tiny.build_model(), tokenizer, [prompt_text(tokenizer, "Q:")])
    asked = [encode(tokenizer, prompt_text(tokenizer, f"Q: {text}")) for text in ("Hi?", "yes")]
    assert short.heads(asked) == [0, 0] and short.begin(asked) is None
    sliding = tiny.build_model("gemma2")
    seen, prefixes = fed(sliding), kept(sliding, tokenizer)
    encoded = [encode(tokenizer, prompt) for prompt in prompts(tokenizer)]
    assert prefixes.begin(encoded) is None and len(seen) == 1
    assert prefixes.begin(encoded) is None and len(seen) == 1  # found out once
