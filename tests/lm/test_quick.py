"""Several tokens a pass are the tokens of one a pass, whatever is guessed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf.lm.decode import follow, generate, generate_one, sample_many
from cirf.lm.prefix import Prefixes
from cirf.lm.prompt import encode, prompt_text, stop_ids
from cirf.lm.quick import WIDTH, write

CAP = 16


class Fixed:
    """Guesses from a list: behind n tokens, those that it has from n on."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tokens
        self.asked: list[int] = []

    def guess(self, prompt: Sequence[int], written: Sequence[int], count: int) -> list[int]:
        self.asked.append(count)
        return list(self.tokens[len(written) : len(written) + count])


def _prompt(tokenizer: Any, question: str = "Anna has 3 apples and buys 4 more. How many?") -> str:
    return prompt_text(tokenizer, question)


def _passes(model: Any) -> list[int]:
    """The tokens of every pass of a model, from now on."""
    seen: list[int] = []
    model.register_forward_pre_hook(lambda module, args, keys: seen.append(keys["input_ids"].shape[1]), with_kwargs=True)
    return seen


@given(
    guessed=st.lists(st.integers(0, 440), min_size=CAP, max_size=CAP), right=st.lists(st.booleans(), min_size=CAP, max_size=CAP)
)
@settings(max_examples=40, deadline=None)
def test_guesses_decide_nothing(tiny: Any, guessed: list[int], right: list[bool]) -> None:
    model, tokenizer = tiny.build_model("qwen2", tied=False), tiny.build_tokenizer()
    prompt = _prompt(tokenizer)
    plain = generate(model, tokenizer, [prompt], CAP)[0]
    mixed = [own if good else other for own, other, good in zip(plain.ids, guessed, right, strict=False)]
    quick = generate_one(model, tokenizer, prompt, CAP, guesses=Fixed(mixed))
    assert (quick.ids, quick.text, quick.tokens, quick.truncated) == (plain.ids, plain.text, plain.tokens, plain.truncated)


def test_right_guesses_save_passes_and_wrong_ones_cost_none(tiny: Any, tokenizer: Any) -> None:
    model = tiny.build_model()
    prompt = _prompt(tokenizer)
    own = generate(model, tokenizer, [prompt], CAP)[0].ids
    seen = _passes(model)
    generate_one(model, tokenizer, prompt, CAP, guesses=Fixed(own))
    assert seen[1:] == [4, 4, 4, 3]  # the first token comes with the prompt; no more is guessed than the cap has room for
    seen.clear()
    generate_one(model, tokenizer, prompt, CAP, guesses=Fixed([token + 1 for token in own]))
    assert len(seen) == CAP and max(seen[1:]) <= WIDTH
    seen.clear()
    generate_one(model, tokenizer, prompt, CAP, guesses=Fixed([]))
    assert seen[1:] == [1] * (CAP - 1)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2"])
def test_every_kind_of_model_answers_as_without(tiny: Any, tokenizer: Any, kind: str) -> None:
    model = tiny.build_model(kind, tied=False)
    prompt = _prompt(tokenizer)
    plain = generate(model, tokenizer, [prompt], CAP)[0]
    assert generate_one(model, tokenizer, prompt, CAP, guesses=Fixed(plain.ids)).ids == plain.ids


def test_a_past_that_cannot_be_cut_back_is_left_to_generate(tiny: Any, tokenizer: Any) -> None:
    ids = encode(tokenizer, _prompt(tokenizer))
    assert write(tiny.build_model("gemma2"), ids, 4, (), Fixed([])) is None


def test_the_end_token_ends_it_in_the_middle_of_a_pass(tiny: Any, tokenizer: Any) -> None:
    model = tiny.build_model()
    ids = encode(tokenizer, _prompt(tokenizer))
    own = write(model, ids, CAP, (), Fixed([]))
    assert own is not None
    stop = own[5]
    first = own.index(stop)
    assert write(model, ids, CAP, {stop}, Fixed(own)) == own[: first + 1]
    told: list[int] = []

    def until_three(token: int) -> bool:
        told.append(token)
        return len(told) == 3

    assert write(model, ids, CAP, (), Fixed(own), told=until_three) == own[:3] == told


def test_a_kept_beginning_is_gone_on_from(tiny: Any, tokenizer: Any) -> None:
    model = tiny.build_model()
    opening = "What is 12 plus 7? The answer is 19. " * 6
    prompt = _prompt(tokenizer, opening + "Anna has 3 apples.")
    prefixes = Prefixes(model, tokenizer, [_prompt(tokenizer, opening).partition("<|im_end|>\n<|im_start|>assistant")[0]])
    plain = generate(model, tokenizer, [prompt], CAP)[0]
    seen = _passes(model)
    for _ in range(2):  # what is kept is not written to
        assert generate_one(model, tokenizer, prompt, CAP, prefixes=prefixes, guesses=Fixed(plain.ids)).ids == plain.ids
    assert seen[1] < 64 < seen[0]


def test_steered_and_sampled_answers_are_the_same_too(tiny: Any, tokenizer: Any) -> None:
    model = tiny.build_model()
    prompt = _prompt(tokenizer)
    ids = encode(tokenizer, prompt)
    widths: list[int] = []

    def no_twice(seen: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """No token that was written already."""
        widths.append(seen.shape[1])
        return scores.scatter(1, seen[:, len(ids) :], -torch.inf)

    def steer() -> list[Any]:
        return [no_twice]

    plain = generate(model, tokenizer, [prompt], CAP, steer=steer)[0]
    assert len(set(plain.ids)) == CAP
    widths.clear()
    assert generate_one(model, tokenizer, prompt, CAP, steer=steer, guesses=Fixed(plain.ids)).ids == plain.ids
    assert widths == list(range(len(ids), len(ids) + CAP))  # once a token
    drawn = sample_many(model, tokenizer, prompt, CAP, 3, 1.5, 0.9, seed=5)
    for number, output in enumerate(drawn):
        made: list[int] = []

        def step(rows: Sequence[int], tokens: Sequence[int], made: list[int] = made) -> list[bool]:
            made.extend(tokens)
            return [tokens[0] in stop_ids(model, tokenizer)]

        guesses = Fixed([token if place % 3 else 7 for place, token in enumerate(output.ids)])
        follow(model, tokenizer, [ids], CAP, step, 1.5, 0.9, [f"5\0{prompt}\0{number}"], guesses=guesses)
        assert tuple(made) == output.ids
