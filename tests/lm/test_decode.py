"""Batched decoding gives what decoding alone gives, in order, with honest counts. Rows that are finished leave their batch, and
nothing else changes.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from cirf.lm.decoding import rounds
from cirf.lm.decoding.generate import Decoding, continue_generation, generate, generate_one, sample_many
from cirf.lm.decoding.prefix_cache import PrefilledPrompts
from cirf.lm.prompt import encode, end_token, prompt_text

KINDS = ["llama", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("qwen2", "gpt2")), "gemma2"]


def _prompts(tokenizer: Any) -> list[str]:
    questions = ["Hi?", "What is 12 plus 7?", "Anna has 3 apples and buys 4 more. How many?", "yes", "A coin is heads up."]
    return [prompt_text(tokenizer, question) for question in questions]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "gemma2"])
def test_padded_batches_equal_single_prompts(tiny: Any, tokenizer: Any, kind: str) -> None:
    model = tiny.build_model(kind, tied=False)
    prompts = _prompts(tokenizer)
    together = generate(model, tokenizer, prompts, 12, batch_size=5)
    alone = [generate(model, tokenizer, [prompt], 12)[0] for prompt in prompts]
    assert together == alone == generate(model, tokenizer, prompts, 12, batch_size=2)
    assert len({output.ids for output in together}) > 1


def test_greedy_is_the_argmax_without_a_cache_whatever_the_models_own_settings_say(tiny: Any, tokenizer: Any) -> None:
    model = tiny.build_model()
    own = model.generation_config
    own.repetition_penalty, own.do_sample, own.temperature, own.top_k, own.no_repeat_ngram_size = 1.9, True, 0.3, 3, 2
    prompt = _prompts(tokenizer)[1]
    ids = encode(tokenizer, prompt)
    for _ in range(10):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    assert list(generate(model, tokenizer, [prompt], 10)[0].ids) == ids[-10:]
    assert model.generation_config is own


def test_the_end_token_is_counted_cut_off_and_its_absence_reported(tiny: Any, tokenizer: Any) -> None:
    model = tiny.build_model()
    prompt = _prompts(tokenizer)[0]
    free = generate(model, tokenizer, [prompt], 6)[0]
    assert free.truncated and free.tokens == 6
    wanted = [*encode(tokenizer, "19"), end_token(tokenizer)]
    _force(model, wanted, len(encode(tokenizer, prompt)))
    output = generate(model, tokenizer, [prompt], 6)[0]
    assert (output.text, output.tokens, output.truncated, output.ids) == ("19", len(wanted), False, tuple(wanted))
    assert not generate(model, tokenizer, [prompt], len(wanted))[0].truncated
    assert generate(model, tokenizer, [prompt], len(wanted) - 1)[0].truncated


def _force(model: Any, wanted: list[int], start: int) -> None:
    """Make a model write ``wanted`` after a prompt of ``start`` tokens."""

    def forward(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        past = kwargs["past_key_values"].get_seq_length()
        place = past - start
        output.logits[:, -1, :] = -1.0
        output.logits[:, -1, wanted[min(place, len(wanted) - 1)]] = 1.0
        return output

    model.register_forward_hook(forward, with_kwargs=True)


def test_sampling_follows_the_seed_and_leaves_global_randomness_alone(tiny: Any, tokenizer: Any) -> None:
    model, prompts = tiny.build_model(tied=False), _prompts(tokenizer)
    state = torch.random.get_rng_state()
    first, again, other = (generate(model, tokenizer, prompts, 12, Decoding(1.0, 0.9, seed), batch_size=2) for seed in (3, 3, 4))
    assert first == again != other
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("top_p", [0.9, pytest.param(1.0, marks=pytest.mark.slow)])
def test_a_sampled_answer_is_the_same_in_every_batch_and_alone(tiny: Any, tokenizer: Any, top_p: float) -> None:
    """In float32, see below."""
    model, prompts = tiny.build_model(tied=False).float(), _prompts(tokenizer)
    twice = [*prompts, prompts[1]]
    wanted = [generate(model, tokenizer, [prompt], 12, Decoding(1.0, top_p, 3))[0] for prompt in twice]
    assert wanted[1] == wanted[-1] and wanted[1] != sample_many(model, tokenizer, prompts[1], 12, 1, Decoding(1.0, top_p, 3))[0]
    for size in (2, 7):
        assert generate(model, tokenizer, twice, 12, Decoding(1.0, top_p, 3), batch_size=size) == wanted
    other = generate(model, tokenizer, twice, 12, Decoding(1.0, top_p), batch_size=3, seeds=[3] * len(prompts) + [4])
    assert other[:-1] == wanted[:-1] and other[-1] != wanted[-1]
    timed = generate_one(model, tokenizer, prompts[1], 12, Decoding(1.0, top_p, 3))
    assert (timed.text, timed.ids) == (wanted[1].text, wanted[1].ids)


def test_one_answer_is_timed_shown_and_the_same(tiny: Any, tokenizer: Any) -> None:
    model, prompt = tiny.build_model(), _prompts(tokenizer)[2]
    shown: list[str] = []
    timed = generate_one(model, tokenizer, prompt, 9, on_text=shown.append)
    output = generate(model, tokenizer, [prompt], 9)[0]
    assert (timed.text, timed.tokens, timed.truncated) == (output.text, output.tokens, output.truncated)
    assert len(shown) == 9 and shown[-1] == output.text
    assert timed.first_token_seconds is not None and 0 < timed.first_token_seconds <= timed.seconds


def test_an_answer_depends_neither_on_the_batch_nor_on_the_order_of_questions(tiny: Any, tokenizer: Any) -> None:
    """In float32; in 16 bits a padded row may round otherwise, and a close call between two tokens end differently."""
    model, prompts, draw = tiny.build_model(tied=False).float(), _prompts(tokenizer), random.Random(0)
    wanted = dict(zip(prompts, generate(model, tokenizer, prompts, 12, batch_size=1), strict=True))
    for size in (2, 3, 5):
        mixed = draw.sample(prompts, len(prompts))
        assert dict(zip(mixed, generate(model, tokenizer, mixed, 12, batch_size=size), strict=True)) == wanted


def test_a_model_with_so_many_positions_writes_what_is_left_of_them(tiny: Any, tokenizer: Any) -> None:
    """GPT-2 and its like have a vector for each position, and an index error beyond the last."""
    model, prompts = tiny.build_model("gpt2"), [prompt_text(tokenizer, "hi " * count) for count in (3, 72, 90)]
    first, second, third = (len(encode(tokenizer, prompt)) for prompt in prompts)
    assert first + 14 < 256 < second + 14 < third
    tokens = [14, 257 - second, 1]
    outputs = generate(model, tokenizer, prompts, 14)
    assert [output.tokens for output in outputs] == tokens and all(output.truncated for output in outputs)
    assert outputs == [generate(model, tokenizer, [prompt], 14)[0] for prompt in prompts]
    assert [generate_one(model, tokenizer, prompt, 14).tokens for prompt in prompts] == tokens
    assert [len(output.ids) for output in sample_many(model, tokenizer, prompts[1], 14, 2, Decoding(1.0))] == tokens[1:2] * 2


def test_what_is_continued_ends_where_the_positions_do(tiny: Any, tokenizer: Any) -> None:
    begun = PrefilledPrompts([[5] * 250], [0], None)
    assert [output.tokens for output in continue_generation(tiny.build_model("gpt2"), tokenizer, begun, 14, [[]])] == [7]


@pytest.mark.parametrize("cap", [rounds.ROUND - 1, rounds.ROUND, rounds.ROUND + 1])
def test_a_given_cache_that_cannot_be_cut_is_used_to_the_end(tiny: Any, monkeypatch: pytest.MonkeyPatch, cap: int) -> None:
    """Although rows end before: it may hold more than the ids."""
    from transformers import GenerationConfig

    model = tiny.build_model()
    ids = torch.randint(10, 60, (4, 6), generator=torch.Generator().manual_seed(1))
    settings: Any = {"do_sample": False, "max_new_tokens": cap, "pad_token_id": 0}
    free = model.generate(input_ids=ids, generation_config=GenerationConfig(**settings, eos_token_id=None))[:, 6:]
    caches: list[Any] = []
    plain = model.generate
    monkeypatch.setattr(rounds, "is_movable", lambda cache: False)
    monkeypatch.setattr(model, "generate", lambda **given: caches.append(given.get("past_key_values")) or plain(**given))
    with torch.no_grad():
        cache = model(ids[:, :-1], use_cache=True).past_key_values
    end = int(free[0, 2])  # the first row ends after at most three tokens
    rounds.generate_in_rounds(model, ids, torch.ones_like(ids), GenerationConfig(**settings, eos_token_id=[end]), (), cache)
    assert caches == [cache]


def test_no_prompts_have_no_outputs(tiny: Any, tokenizer: Any) -> None:
    assert generate(tiny.build_model(), tokenizer, [], 2) == []


def test_the_prompt_is_computed_once_however_many_answers(tiny: Any, tokenizer: Any) -> None:
    model, prompt = tiny.build_model(), _prompts(tokenizer)[2]
    fed: list[int] = []
    model.register_forward_pre_hook(lambda _, __, kwargs: fed.append(kwargs["input_ids"].numel()), with_kwargs=True)
    sample_many(model, tokenizer, prompt, 3, 4, Decoding(1.0, 1.0, 0))
    assert fed[:2] == [len(encode(tokenizer, prompt)) - 1, 4] and set(fed[2:]) <= {4}


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_the_same_however_many_are_drawn_with_it(tiny: Any, tokenizer: Any, kind: str) -> None:
    model, prompt = tiny.build_model(kind, tied=False), _prompts(tokenizer)[2]
    eight = sample_many(model, tokenizer, prompt, 12, 8, Decoding(1.0, 0.9, 3))
    assert eight != sample_many(model, tokenizer, prompt, 12, 8, Decoding(1.0, 0.9, 4))
    assert sample_many(model, tokenizer, prompt, 12, 3, Decoding(1.0, 0.9, 3)) == eight[:3]
    assert sample_many(model, tokenizer, prompt, 12, 5, Decoding(1.0, 0.9, 3), first=3) == eight[3:]
    alone = [sample_many(model, tokenizer, prompt, 12, 1, Decoding(1.0, 0.9, 3), first=place)[0] for place in range(8)]
    assert alone == eight and len({output.ids for output in eight}) > 4


def test_without_temperature_all_answers_are_the_greedy_one(tiny: Any, tokenizer: Any) -> None:
    model = tiny.build_model(tied=False)
    for prompt in _prompts(tokenizer):
        (greedy,) = generate(model, tokenizer, [prompt], 12)
        assert sample_many(model, tokenizer, prompt, 12, 4, Decoding(0.0, 1.0, 3)) == [greedy] * 4


def test_answers_are_drawn_from_the_models_own_probabilities(tiny: Any, tokenizer: Any) -> None:
    model, prompt = tiny.build_model(scale=4.0), _prompts(tokenizer)[1]
    with torch.no_grad():
        logits = model(torch.tensor([encode(tokenizer, prompt)])).logits[0, -1].double()
    chances = (logits / 0.7).softmax(-1)
    ordered = chances.sort(descending=True)
    inside = ordered.indices[: int((ordered.values.cumsum(-1) < 0.8).sum()) + 1]
    expected = torch.zeros_like(chances).index_copy(0, inside, chances[inside] / chances[inside].sum())
    count = 4000
    drawn = [output.ids[0] for output in sample_many(model, tokenizer, prompt, 1, count, Decoding(0.7, 0.8, 5))]
    seen = torch.bincount(torch.tensor(drawn), minlength=len(chances)).double() / count
    assert set(drawn) <= set(inside.tolist())
    assert len(set(drawn)) > 1 and float((seen - expected).abs().max()) < 4 * (0.25 / count) ** 0.5


CAP = 40


def _prompts_of_rounds(tokenizer: Any) -> list[str]:
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


@pytest.mark.parametrize("kind", KINDS)
def test_rows_leave_when_they_are_done_and_the_others_go_on(
    tiny: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(rounds, "ROUND", 4)
    model, prompts, sizes = tiny.build_model(kind, tied=False, scale=6.0), _prompts_of_rounds(tokenizer), []
    alone = _ending_at_different_places(model, tokenizer, prompts)
    assert len({(output.tokens - 1) // 4 for output in alone}) > 1  # they do end in different rounds
    model.register_forward_pre_hook(lambda module, args, kwargs: sizes.append(len(kwargs["input_ids"])), with_kwargs=True)
    assert generate(model, tokenizer, prompts, CAP, batch_size=5) == alone
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 5 and len(set(sizes)) > 1
    assert len(sizes) <= max(output.tokens for output in alone) + 3  # the last round may run on past the last end


def test_a_round_ends_when_an_eighth_of_its_rows_have_ended(tiny: Any, tokenizer: Any) -> None:
    model, prompts, sizes = tiny.build_model(tied=False, scale=6.0), _prompts_of_rounds(tokenizer), []
    alone = _ending_at_different_places(model, tokenizer, prompts)
    model.register_forward_pre_hook(lambda module, args, kwargs: sizes.append(len(kwargs["input_ids"])), with_kwargs=True)
    assert generate(model, tokenizer, prompts, CAP) == alone
    lengths = [output.tokens for output in alone]
    assert sizes == [sum(length > done for length in lengths) for done in range(max(lengths))]  # no pass for one that ended
    assert len(set(sizes)) > 2


@pytest.mark.parametrize("cap", [1, 3, 4, 5, 8])
def test_the_cap_is_kept_at_every_boundary(tiny: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch, cap: int) -> None:
    monkeypatch.setattr(rounds, "ROUND", 4)
    model, prompts = tiny.build_model(), _prompts_of_rounds(tokenizer)
    together = generate(model, tokenizer, prompts, cap)
    assert together == [generate(model, tokenizer, [prompt], cap)[0] for prompt in prompts]
    assert all(output.tokens == cap and output.truncated for output in together)


def test_every_drawn_answer_keeps_its_own_random_numbers(tiny: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "ROUND", 4)
    model, prompts = tiny.build_model(scale=12.0), _prompts_of_rounds(tokenizer)
    _ending_at_different_places(model, tokenizer, prompts)
    many = sample_many(model, tokenizer, prompts[1], CAP, 6, Decoding(1.0, 1.0, 3))
    one_by_one = [sample_many(model, tokenizer, prompts[1], CAP, 1, Decoding(1.0, 1.0, 3), first=place)[0] for place in range(6)]
    assert many == one_by_one and len({output.tokens for output in many}) > 1
