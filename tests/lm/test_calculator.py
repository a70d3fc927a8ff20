"""A calculator while a model writes: the right number behind an equals sign, and nothing else is changed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex

from cirf.lm.decoding.calculator import Calculator, fits, is_whole
from cirf.lm.decoding.generate import Decoding, generate, generate_one, sample_many
from cirf.lm.decoding.trace_grammar import Steering, SteeringProcessor
from cirf.lm.prompt import encode, prompt_text, stop_ids
from cirf.lm.vocabulary import token_names
from cirf.text.numerals import number_text

VALUES = st.one_of(st.integers(0, 10**7).map(Fraction), st.integers(0, 10**6).map(lambda n: Fraction(n, 1000)))


class Wants:
    """Makes a model prefer a text, token by token, whatever precedes it; tokens that replace it count as well."""

    def __init__(self, tokenizer: Any, text: str, end: int) -> None:
        self.script, self.width = [*encode(tokenizer, text), end], None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.width = self.width or input_ids.shape[1]
        place = min(input_ids.shape[1] - self.width, len(self.script) - 1)
        scores = scores.clone()
        scores[:, self.script[place]] += 1e4
        return scores


def ways(value: Fraction) -> list[str]:
    """Ways of writing a value."""
    text = number_text(value)
    whole, point, decimals = text.partition(".")
    return [text, f"{int(whole):,}{point}{decimals}", text + ("00" if point else ".00")]


@given(VALUES)
def test_every_way_of_writing_a_number_may_be_begun(value: Fraction) -> None:
    for way in ways(value):
        assert all(fits(way[:end], number_text(value)) for end in range(len(way) + 1)), way


@given(VALUES, st.data())
def test_no_other_number_may_be_written(value: Fraction, data: st.DataObject) -> None:
    way = data.draw(st.sampled_from(ways(value)))
    place = data.draw(st.integers(0, len(way)))
    cut = data.draw(st.integers(place, len(way)))
    other = way[:place] + data.draw(st.text("0123456789.,", max_size=2)) + way[cut:]
    text = number_text(value)
    whole = all(fits(other[:end], text) for end in range(len(other) + 1)) and is_whole(other, text)
    integer, _, decimals = text.partition(".")
    behind = rf"\.{decimals}0*" if decimals else r"(\.0*|,*)"
    assert whole == bool(re.fullmatch(f"({integer}|{int(integer):,}){behind}", other))


def written(tokenizer: Any, text: str, processors: Sequence[Any] = (), count: int = 24, seed: int = 0) -> str:
    """What comes behind ``text``, an answer's beginning, where digits are liked better than all else, and which at random."""
    draw = torch.Generator().manual_seed(len(text) + seed)
    calculator, prompt = Calculator(tokenizer), encode(tokenizer, "What is 1 + 1 = ")
    size = len(tokenizer)
    calculator(torch.tensor([prompt]), torch.zeros(1, size))
    own = encode(tokenizer, text)
    start = len(own)
    figures = [token for token in range(size) if re.fullmatch(" ?[0-9]+", tokenizer.decode([token]))]
    while len(own) < start + count:
        scores = torch.rand(1, size, generator=draw)
        scores[0, figures] += 5
        for processor in (*processors, calculator):
            scores = processor(torch.tensor([prompt + own]), scores)
        own.append(int(scores.argmax()))
    return str(tokenizer.decode(own[start:]))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16*7=", "112"),
        ("so she pays 3 pens * $4 each = $", "12"),
        ("24 + 48 clips =", "72"),
        ("600*2=", "1200"),
        ("0.5*5=", "2.5"),
        ("20 * 50 =", "1000"),
        ("5*\n100 ÷ 5 = ", "20"),
        ("9 apples.\n(2+3)*4 =", "20"),
        ("7-7=", "0"),
    ],
)
def test_what_is_behind_an_equals_sign_is_worked_out(tokenizer: Any, text: str, value: str) -> None:
    found = re.match(r"\s*\$?\s*(\d[\d,]*(?:\.\d+)?)(?!\d)", written(tokenizer, text))
    assert found and Fraction(found[1].replace(",", "")) == Fraction(value), found


def test_digits_in_threes_and_digits_behind_a_blank() -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [chr(code) for code in range(33, 127)] + ["Ġ", "Ċ", *map(str, range(10, 1000)), *(f"Ġ{n}" for n in range(100))]
    core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(dict.fromkeys(words))}, unk_token="!"))
    split = pre_tokenizers.Split(Regex(r"Ġ?\d{1,2}|\d{1,3}|."), "isolated")
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([bytewise, split])
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=False)
    for text, value in (("600*2=", "1200"), ("16*7 =", "112"), ("1.25*2=", "2.5")):
        for seed in range(4):
            found = re.match(r"\s*(\d[\d,]*(?:\.\d+)?)(?!\d)", written(tokenizer, text, seed=seed))
            assert found and Fraction(found[1].replace(",", "")) == Fraction(value), (text, found)


@pytest.mark.parametrize(
    "text", ["2x + 3 = ", "x = ", "2^3 + 4 = ", "10/3=", "3-5=", "4/0=", "16*7", "- 2*3 = ", "16*7 is ", "7 // 2 = ", "30/8="]
)
def test_everything_else_is_left_to_the_model(tokenizer: Any, text: str) -> None:
    calculator, prompt = Calculator(tokenizer), encode(tokenizer, "Hi?")
    scores = torch.rand(1, len(tokenizer))
    assert calculator(torch.tensor([prompt]), scores) is scores
    assert calculator(torch.tensor([prompt + encode(tokenizer, text)]), scores) is scores


def test_the_question_is_not_gone_on_with(tokenizer: Any) -> None:
    scores = torch.rand(1, len(tokenizer))
    assert Calculator(tokenizer)(torch.tensor([encode(tokenizer, "16*7=")]), scores) is scores


def test_rows_are_each_as_alone(tokenizer: Any) -> None:
    texts = ["16*7=", "16*7=1", "nothing", "16*7=112", "0.5*5=2"]
    rows = [encode(tokenizer, text) for text in texts]
    longest = max(map(len, rows))
    filled = torch.tensor([encode(tokenizer, "\n")[:1] * (longest - len(row)) + row for row in rows])
    scores = torch.rand(len(rows), len(tokenizer))

    def summary(ids: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        calculator = Calculator(tokenizer)
        calculator(ids[:, :0], values)
        return calculator(ids, values)

    together = summary(filled, scores)
    alone = torch.cat([summary(filled[row : row + 1], scores[row : row + 1]) for row in range(len(rows))])
    assert together.equal(alone) and together[2].equal(scores[2])
    assert not torch.isinf(scores).any()  # what it was given stays


@pytest.mark.parametrize(
    ("wanted", "gets"),
    [
        ("so 16*7=999; 999", "so 16*7=112; 999"),
        ("16*7=112.00", "16*7=112.00"),
        ("4*125-2 = 500 - 2 = 498", "4*125-2 = 500 - 2 = 498"),  # a chain is gone on with
        ("30 + 2*20 = 30 + 40 = 90", "30 + 2*20 = 30 + 40 = 70"),
        ("4*125-2 = 999", "4*125-2 = 498"),
        ("1+4*2 = 9", "1+4*2 = 9"),
        ("3+3*0.25 = 3.7.", "3+3*0.25 = 3.75"),
    ],
)
def test_models_write_so_however_they_are_asked(tiny: Any, tokenizer: Any, wanted: str, gets: str) -> None:
    model = tiny.build_model("llama")
    prompts = [prompt_text(tokenizer, text) for text in ("How many?", "How many are 3 and 4?")]
    end = stop_ids(model, tokenizer)[0]

    def steer() -> tuple[Any, ...]:
        return Wants(tokenizer, wanted, end), Calculator(tokenizer)

    assert [one.text for one in generate(model, tokenizer, prompts, 40, Decoding(steer=steer))] == [gets, gets]
    assert generate_one(model, tokenizer, prompts[0], 40, Decoding(steer=steer)).text == gets
    assert {one.text for one in sample_many(model, tokenizer, prompts[0], 40, 3, Decoding(0.7, 0.9, 1, steer=steer))} == {gets}


def test_the_result_of_a_functional_token_is_no_chain(tokenizer: Any) -> None:
    tokenizer.add_tokens(["<cirf_000>"])
    assert re.match(r"\s?498(?!\d)", written(tokenizer, "<cirf_000>4*125-2="))
    assert re.match(r"\s?126(?!\d)", written(tokenizer, "<cirf_000>" + " + ".join(["10.5"] * 12) + " = $"))  # however long


def test_where_another_dial_ends_a_result_it_stays_ended(tiny: Any, tokenizer: Any) -> None:
    from cirf.lm.vocabulary import extend
    from cirf.recipe import schema

    model = tiny.build_model("llama", False)
    names = token_names(2)
    extend(model, tokenizer, None, schema.Vocabulary(alpha=1.0), 2, 0)
    text = "<cirf><cirf_000>600*2="
    held = SteeringProcessor(
        Steering(result_tokens=len(encode(tokenizer, "600*2=")) + 1), names, tokenizer, stop_ids(model, tokenizer)
    )
    held(torch.tensor([encode(tokenizer, "What is 1 + 1 = ")]), torch.zeros(1, len(tokenizer)))
    found = written(tokenizer, text, [held], count=2)
    assert re.match(r"\s?\d{1,4}<", found) and "1200".startswith(found[: found.index("<")].strip())


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct"])
def test_real_tokenizers(name: str) -> None:
    from transformers import AutoTokenizer

    from cirf.assets import resolve

    tokenizer = AutoTokenizer.from_pretrained(resolve(f"bundled:{name}"))
    for text, value in (("16*7=", 112), ("1,250 * 8 = $", 10000), ("0.5*5 =", 2.5)):
        found = re.match(r"\s*\$?\s*(\d[\d,]*(?:\.\d+)?)(?!\d)", written(tokenizer, text))
        assert found and math.isclose(float(found[1].replace(",", "")), value), (text, found)
