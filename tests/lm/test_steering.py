"""Steered answers: always in the form of traces and within the dials, and otherwise what they were."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.lm.decoding.calculator import Calculator
from cirf.lm.decoding.generate import Decoding, generate, generate_one, sample_many
from cirf.lm.decoding.trace_grammar import Steering, SteeringProcessor, expression, limited
from cirf.lm.prompt import encode, end_token, prompt_text, stop_ids
from cirf.lm.vocabulary import extend, token_names
from cirf.recipe import schema

SIZE = 4
NAMES = token_names(SIZE)
TEXT = r"(?:(?!</?cirf(?:_\d{3})?>).)*"  # what holds none of the tokens; a sign < by itself is text
FORM = re.compile(rf"<cirf>((?:<cirf_\d{{3}}>{TEXT})*)</cirf>({TEXT})", re.DOTALL)

steerings = st.builds(
    Steering,
    budget=st.one_of(st.none(), st.integers(0, 3)),
    results=st.booleans(),
    result_tokens=st.one_of(st.none(), st.integers(0, 3)),
    result_cost=st.sampled_from([0.0, 2.0]),
    at_most=st.dictionaries(st.integers(0, SIZE - 1), st.integers(0, 2)).map(lambda found: tuple(sorted(found.items()))),
)


@pytest.fixture(scope="module")
def made(tiny: Any) -> tuple[Any, Any]:
    """A model with functional tokens that writes anything, and its tokenizer."""
    from cirf.lm.prompt import settle_template

    tokenizer, model = tiny.build_tokenizer(), tiny.build_model("llama", False, seed=3)
    settle_template(tokenizer)
    extend(model, tokenizer, None, schema.Vocabulary(alpha=1.0), SIZE, 0)
    return model, tokenizer


def steered(how: Steering, model: Any, tokenizer: Any) -> Any:
    return lambda: (SteeringProcessor(how, NAMES, tokenizer, stop_ids(model, tokenizer)),)


def check(ids: list[int], how: Steering, tokenizer: Any, ended: bool) -> None:
    """The ids written by a steered model are a trace in form, or the beginning of one."""
    text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    opening, closing, *codes = tokenizer.convert_tokens_to_ids(list(NAMES.all))
    assert ids[0] == opening and ids.count(opening) == 1 and ids.count(closing) <= 1
    span = ids[1 : ids.index(closing)] if closing in ids else ids[1:]
    assert not span or span[0] in codes
    used = [token for token in span if token in codes]
    assert how.budget is None or len(used) <= how.budget
    assert all(used.count(codes[code]) <= most for code, most in how.at_most)
    longest = run = 0
    for token in span:
        run = 0 if token in codes else run + 1
        longest = max(longest, run)
    assert how.results or not longest
    assert how.result_tokens is None or longest <= how.result_tokens
    if ended:
        assert FORM.fullmatch(text), text


@given(steerings, st.integers(0, 2**31), st.booleans())
@settings(max_examples=30)
def test_whatever_the_logits_the_answer_is_in_form(made: tuple[Any, Any], how: Steering, seed: int, opened: bool) -> None:
    model, tokenizer = made
    opening = tokenizer.convert_tokens_to_ids(NAMES.start)
    processor = steered(how, model, tokenizer)()[0]
    draw = torch.Generator().manual_seed(seed)
    ids = torch.tensor([[5, 6, opening if opened else 7]] * 3)
    for _ in range(24):
        scores = processor(ids, 8 * torch.randn(3, model.config.vocab_size, generator=draw))
        assert not torch.isneginf(scores).all(dim=1).any(), "something may always come next"
        ids = torch.cat([ids, scores.argmax(dim=1, keepdim=True)], dim=1)
    stops = set(stop_ids(model, tokenizer))
    for row in ids[:, 3:].tolist():
        end = next((place for place, token in enumerate(row) if token in stops), None)
        check([opening] * opened + row[:end], how, tokenizer, end is not None)
        assert max(row) < len(tokenizer), "no row of the head that is no token"


@given(steerings, st.lists(st.text("ocab4=/", max_size=5), min_size=2, max_size=4), st.integers(0, 2**31))
def test_rows_of_different_lengths_are_steered_as_if_alone(
    made: tuple[Any, Any], how: Steering, rows: list[str], seed: int
) -> None:
    model, tokenizer = made
    spelled = {"o": "<cirf>", "c": "</cirf>", "a": "<cirf_000>", "b": "<cirf_002>", "/": "4*5="}
    written = [[token for letter in row for token in encode(tokenizer, spelled.get(letter, letter))] for row in rows]
    opening = tokenizer.convert_tokens_to_ids(NAMES.start)
    last = [opening if place % 2 else 9 for place in range(len(rows))]
    scores = 8 * torch.randn(len(rows), model.config.vocab_size, generator=torch.Generator().manual_seed(seed))
    for make in (steered(how, model, tokenizer), lambda: (Calculator(tokenizer),)):
        together = make()[0].ragged(last, written, scores)
        for place, own in enumerate(written):
            alone = make()[0]
            alone(torch.tensor([[last[place]]]), scores[:1])
            assert torch.equal(alone(torch.tensor([[last[place], *own]]), scores[place : place + 1])[0], together[place])


@pytest.mark.parametrize("opened", [False, True])
def test_what_is_in_form_stays_as_it_is(made: tuple[Any, Any], opened: bool) -> None:
    model, tokenizer = made
    opening, *rest = [*encode(tokenizer, "<cirf><cirf_002>48<cirf_001>7</cirf>55"), end_token(tokenizer)]
    prompt, wanted = ([9, opening], rest) if opened else ([9, 9], [opening, *rest])
    processor = steered(Steering(), model, tokenizer)()[0]
    ids = torch.tensor([prompt])
    for token in wanted:
        scores = torch.randn(1, model.config.vocab_size)
        held = processor(ids, scores)
        assert held[0, token] == scores[0, token]
        kept = ~torch.isneginf(held)
        assert torch.equal(held[kept], scores[kept])
        ids = torch.cat([ids, torch.tensor([[token]])], dim=1)


def test_a_trace_is_closed_where_the_model_would_go_on_beyond_the_budget(made: tuple[Any, Any]) -> None:
    model, tokenizer = made
    first, digit, closing, code = encode(tokenizer, "<cirf><cirf_001>4</cirf><cirf_002>")[1:]
    processor = steered(Steering(budget=1), model, tokenizer)()[0]
    processor(torch.tensor([[9]]), torch.zeros(1, model.config.vocab_size))
    ids = torch.tensor([[9, *encode(tokenizer, "<cirf>"), first, digit]])
    scores = torch.zeros(1, model.config.vocab_size)
    scores[0, digit] = 1.0
    assert int(processor(ids, scores).argmax()) == digit, "the result goes on as the model likes"
    scores[0, code] = 2.0
    assert int(processor(ids, scores).argmax()) == closing


def test_a_cost_is_taken_off_the_start_of_a_result_alone(made: tuple[Any, Any]) -> None:
    model, tokenizer = made
    digit = encode(tokenizer, "4")[0]
    processor = steered(Steering(result_cost=3.0), model, tokenizer)()[0]
    processor(torch.tensor([[9]]), torch.zeros(1, model.config.vocab_size))
    for text, cost in (("<cirf><cirf_001>", 3.0), ("<cirf><cirf_001>4", 0.0), ("<cirf><cirf_001>4</cirf>", 0.0)):
        scores = processor(torch.tensor([[9, *encode(tokenizer, text)]]), torch.zeros(1, model.config.vocab_size))
        assert float(scores[0, digit]) == -cost


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(Steering(), marks=pytest.mark.slow),
        pytest.param(Steering(budget=2), marks=pytest.mark.slow),
        pytest.param(Steering(results=False), marks=pytest.mark.slow),
        pytest.param(Steering(budget=3, result_tokens=2), marks=pytest.mark.slow),
        Steering(result_tokens=2, at_most=((0, 0), (2, 1))),
    ],
)
def test_batches_and_votes_are_steered_as_single_answers_are(made: tuple[Any, Any], how: Steering) -> None:
    model, tokenizer = made
    prompts = [prompt_text(tokenizer, text) for text in ("Hi?", "What is 12 plus 7, and then some?", "yes", "A coin is up.")]
    steer = steered(how, model, tokenizer)
    together = generate(model, tokenizer, prompts, 40, Decoding(steer=steer), batch_size=4)  # more than a round
    for prompt, output in zip(prompts, together, strict=True):
        alone = generate_one(model, tokenizer, prompt, 40, Decoding(steer=steer))
        assert (alone.text, alone.tokens) == (output.text, output.tokens)
        check(list(output.ids) if output.truncated else list(output.ids[:-1]), how, tokenizer, not output.truncated)
    for output in sample_many(model, tokenizer, prompts[1], 40, 3, Decoding(1.0, 0.9, 5, steer=steer)):
        check(list(output.ids) if output.truncated else list(output.ids[:-1]), how, tokenizer, not output.truncated)
    drawn = generate(model, tokenizer, prompts, 40, Decoding(1.0, 0.5, 7, steer=steer))
    assert all(output.text.startswith("<cirf>") for output in drawn)
    assert any(not output.text.startswith("<cirf>") for output in generate(model, tokenizer, prompts, 40))


def test_limits_of_codes_bite_and_the_lower_of_two_counts(made: tuple[Any, Any]) -> None:
    model, tokenizer = made
    prompts = [prompt_text(tokenizer, text) for text in ("Hi?", "What is 12 plus 7?", "yes", "A coin is up.")]
    codes = tokenizer.convert_tokens_to_ids(list(NAMES.codes))

    def drawn(how: Steering) -> list[tuple[int, ...]]:
        outputs = generate(model, tokenizer, prompts, 40, Decoding(1.0, 1.0, 7, steer=steered(how, model, tokenizer)))
        return [output.ids for output in outputs]

    free = drawn(Steering(results=False))
    counts = [max(ids.count(code) for ids in free) for code in codes]
    forbidden, rationed = sorted(range(SIZE), key=lambda code: -counts[code])[:2]
    assert counts[forbidden] and counts[rationed] > 1
    held = drawn(limited(Steering(results=False, at_most=((rationed, 3),)), {forbidden: 0, rationed: 1}))
    assert all(ids.count(codes[forbidden]) == 0 and ids.count(codes[rationed]) <= 1 for ids in held)
    both = limited(Steering(results=False, together=(((0, 1, 2, 3), 3),)), {}, [((forbidden, rationed), 1)])
    held = drawn(both)
    assert all(ids.count(codes[forbidden]) + ids.count(codes[rationed]) <= 1 for ids in held)
    assert all(sum(ids.count(code) for code in codes) <= 3 for ids in held)
    assert any(ids.count(codes[forbidden]) + ids.count(codes[rationed]) for ids in held)
    assert limited(Steering(at_most=((1, 1),)), {1: 5, 2: 0}).at_most == ((1, 1), (2, 0))
    with pytest.raises(CirfError, match=r"no functional token 5;"):
        SteeringProcessor(Steering(together=(((1, 5), 2),)), NAMES, tokenizer, [0])
    with pytest.raises(CirfError, match=r"no functional token 4; the model has <cirf_000> to <cirf_003>"):
        SteeringProcessor(Steering(at_most=((4, 0),)), NAMES, tokenizer, [0])


@given(st.lists(st.tuples(st.integers(0, SIZE - 1), st.sampled_from(["", "48", "3 + 4"])), max_size=6), st.integers(1, 2))
def test_an_expression_matches_the_traces_within_its_limits(steps: list[tuple[int, str]], most: int) -> None:
    text = "".join(NAMES.codes[code] + result for code, result in steps) + "</cirf>7"
    used = [code for code, _ in steps]
    wanted = used.count(2) <= most and 1 not in used
    for opened in (True, False):
        head = "" if opened else "<cirf>"
        limits = {
            Steering(at_most=((1, 0), (2, most))): wanted,
            Steering(): True,
            Steering(budget=most): len(steps) <= most,
            Steering(budget=most, results=False): len(steps) <= most and not any(result for _, result in steps),
            Steering(budget=most, at_most=((3, 0),)): len(steps) <= most and 3 not in used,
            Steering(together=(((1, 2), most),)): used.count(1) + used.count(2) <= most,
            Steering(at_most=((1, 0),), together=(((1, 2), most),)): wanted,
            Steering(at_most=((0, 0), (3, 0)), together=(((1, 2), most),)): {*used} <= {1, 2} and len(used) <= most,
            Steering(at_most=((1, 0), (2, 0)), together=(((1, 2), most),)): not {*used} & {1, 2},
        }
        for how, fits in limits.items():
            assert (re.fullmatch(expression(how, NAMES, opened), head + text) is not None) == fits, how
    only = Steering(at_most=((0, 0), (1, 0), (2, 1), (3, 0)))
    assert re.fullmatch(expression(only, NAMES, True), "<cirf_002>4</cirf>4")


@pytest.mark.parametrize(
    "how",
    [
        Steering(at_most=((1, 1), (2, 1))),
        Steering(3, at_most=((1, 1),)),
        Steering(at_most=((1, 1),), together=(((1, 2), 3),)),
        Steering(3, together=(((1, 2), 2),)),
        Steering(result_tokens=2),
        Steering(result_cost=1.0),
    ],
)
def test_what_no_expression_says_is_refused(how: Steering) -> None:
    with pytest.raises(CirfError, match="a regular expression"):
        expression(how, NAMES, True)


def test_a_budget_of_nothing_is_an_empty_span(made: tuple[Any, Any]) -> None:
    model, tokenizer = made
    output = generate_one(
        model, tokenizer, prompt_text(tokenizer, "Hi?"), 12, Decoding(steer=steered(Steering(budget=0), model, tokenizer))
    )
    assert output.text.startswith("<cirf></cirf>")


def test_added_blanks_are_text_and_added_marks_are_not(tiny: Any) -> None:
    tokenizer, model = tiny.build_tokenizer(), tiny.build_model("llama", False, seed=3)
    tokenizer.add_tokens(["    ", "<tool>"])
    extend(model, tokenizer, None, schema.Vocabulary(alpha=1.0), SIZE, 0)
    processor = SteeringProcessor(Steering(), NAMES, tokenizer, [tokenizer.eos_token_id])
    processor(torch.tensor([[9]]), torch.zeros(1, model.config.vocab_size))
    scores = processor(torch.tensor([[9, *encode(tokenizer, "<cirf><cirf_001>4")]]), torch.zeros(1, model.config.vocab_size))
    blanks, mark = tokenizer.convert_tokens_to_ids(["    ", "<tool>"])
    assert float(scores[0, blanks]) == 0.0 and torch.isneginf(scores[0, mark])


def test_names_of_more_codes_than_the_model_has_are_refused_with_its_size(made: tuple[Any, Any]) -> None:
    said = r"has no token <cirf_004>, so its traces cannot be steered; its codebook has 4 codes: use token_names\(4\)"
    with pytest.raises(CirfError, match=said):
        SteeringProcessor(Steering(), token_names(32), made[1], [0])


def test_a_model_without_the_tokens_cannot_be_steered(tiny: Any) -> None:
    with pytest.raises(CirfError, match="has no token <cirf>"):
        SteeringProcessor(Steering(), NAMES, tiny.build_tokenizer(), [0])
