"""Rationales cut down to a share of their tokens."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from faulty import Server, serve
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.methods.soft.sem_cot import shorten_by_model, shorten_by_rule
from cirf.methods.token_skip.scorers import Rules
from cirf.methods.token_skip.shorten import ForcedWords, Shortened, Solution, Word, shorten, word_spans
from cirf.recipe import schema
from cirf.records import Problem, Steps
from cirf.store.files import RowLog

TOKENIZER = tinyrun.builders().build_tokenizer()
RATIOS = (0.9, 0.8, 0.7, 0.6, 0.5)


def count(text: str) -> int:
    return len(TOKENIZER(text, add_special_tokens=False).input_ids)


def weighed(text: str, importances: list[float]) -> list[Word]:
    return [Word(*span, importance) for span, importance in zip(word_spans(text), importances, strict=True)]


def drawn(text: str, seed: int = 0, levels: int = 5) -> list[Word]:
    """Importances of few different values: many words weigh the same."""
    draw = random.Random(seed)
    return [Word(*span, float(draw.randrange(levels))) for span in word_spans(text)]


def words_in(text: str) -> int:
    return len(word_spans(text))


def test_the_most_important_words_stay_in_their_order() -> None:
    text = "So Mark is 15 + 7 = 22.\nIn all it is 22 years."
    words = weighed(text, [0, 2, 0, 4, 4, 4, 4, 5, 0, 1, 0, 0, 5, 2])
    assert shorten(text, words, 0.6, words_in).text == "Mark 15 + 7 = 22.\n22 years."
    found = shorten(text, words, 6.5 / 14, words_in)
    assert found == Shortened("15 + 7 = 22.\n22", (3, 4, 5, 6, 7, 12), 6, 14)
    assert found.ratio == 6 / 14 and len(found.kept) == 6  # 7 words would be as near: the shorter text is taken
    assert shorten(text, words, 0.01, words_in).text == "22."  # of equal ones the earlier; never nothing


def test_lines_stay_apart_as_long_as_they_have_words() -> None:
    text = "a b\nc d\n\ne f"
    keep = {"a": 3.0, "f": 3.0, "c": 2.0}
    words = weighed(text, [keep.get(text[start:end], 0.0) for start, end in word_spans(text)])
    assert shorten(text, words, 0.5, words_in).text == "a\nc\n\nf"
    assert shorten(text, words, 0.3, words_in).text == "a\n\nf"
    assert shorten("中文 字", weighed("中文 字", [1, 0, 1]), 0.7, lambda t: len(re.findall(r"\S", t))).text == "中 字"
    assert shorten("3个4", weighed("3个4", [1, 0, 1]), 0.7, words_in).text == "3 4"
    assert shorten("三个四", weighed("三个四", [1, 0, 1]), 0.7, words_in).text == "三四"
    assert shorten("  a b \n", weighed("  a b \n", [1, 0]), 0.5, words_in).text == "a"


@given(st.text(max_size=60), st.integers(0, 3))
def test_the_whole_is_the_same_string(text: str, seed: int) -> None:
    found = shorten(text, drawn(text, seed), 1.0, count)
    assert found.text == text and found.ratio == 1.0 and found.kept == tuple(range(len(word_spans(text))))


def odd(text: str) -> int:
    """A count that does not grow with the text."""
    return sum(map(ord, text)) % 17 + len(text) // 4 + 1


SETTINGS = st.tuples(st.sampled_from([count, words_in, len, odd]), st.integers(0, 5), st.booleans())


@given(st.text(max_size=80), SETTINGS, st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_smaller_ratio_keeps_a_part_of_the_words(
    text: str, setting: tuple[Callable[[str], int], int, bool], one: float, other: float
) -> None:
    counted, seed, digits = setting
    words = drawn(text, seed)
    less, more = (shorten(text, words, ratio, counted, ForcedWords(digits)) for ratio in sorted((one, other)))
    assert set(less.kept) <= set(more.kept)
    assert (less.tokens, less.whole) == (counted(less.text), counted(text))
    for found in (less, more):
        assert list(found.kept) == sorted(found.kept)
        assert [text[slice(*words[place][:2])] for place in found.kept] == [found.text[a:b] for a, b in word_spans(found.text)]
        assert bool(found.kept) == bool(words)


@given(st.lists(st.text(min_size=1, max_size=4), min_size=40, max_size=90), st.integers(0, 9), st.sampled_from(RATIOS))
@settings(max_examples=20)
def test_the_ratio_is_met_within_a_twentieth_on_longer_texts(parts: list[str], seed: int, ratio: float) -> None:
    text = " ".join(parts)
    whole = count(text)
    assume(whole > 150 and max((count(f" {text[a:b]}") for a, b in word_spans(text)), default=0) <= 0.08 * whole)
    found = shorten(text, drawn(text, seed), ratio, count)
    assert abs(found.ratio - ratio) <= 0.05


@given(st.text(max_size=80), st.integers(0, 9), st.floats(0.01, 1))
def test_words_that_count_alike_meet_the_ratio_to_half_a_word(text: str, seed: int, ratio: float) -> None:
    found = shorten(text, drawn(text, seed), ratio, words_in)
    assert found.tokens == min(found.whole, 1) or abs(found.tokens - ratio * found.whole) <= 0.5


def test_the_ratio_is_met_on_prose() -> None:
    rows = [row["rationale"] for row in tinyrun.sums(30, steps=8)]
    scored = Rules().score([Solution("", text, "") for text in rows])
    for text, words in zip(rows, scored, strict=True):
        assert count(text) > 150
        found = [shorten(text, words, ratio, count) for ratio in RATIOS]
        assert all(abs(each.ratio - ratio) < 0.03 for each, ratio in zip(found, RATIOS, strict=True))
        assert all(more.tokens > less.tokens for more, less in pairwise(found))


def test_few_texts_are_counted() -> None:
    text = " ".join(str(number) for number in range(1000))
    asked = []

    def counted(part: str) -> int:
        asked.append(part)
        return words_in(part)

    assert shorten(text, drawn(text), 0.5, counted).tokens == 500
    assert len(asked) <= 10 + 3


def test_forced_words_stay_whatever_they_weigh() -> None:
    text = "Step 1: She has 3 pens, ½ of them red. Steps: none.\n4 stay"
    words = weighed(text, [float(len(text[a:b]) > 3 and text[a:b].isalpha()) for a, b in word_spans(text)])
    digits = shorten(text, words, 0.3, words_in, ForcedWords(digits=True))
    assert digits.text == "1: 3 ½\n4"
    strings = ForcedWords(strings=("Step", ":", "4 st", ""))
    assert shorten(text, words, 0.01, words_in, strings).text == "Step 1: Steps:"
    assert shorten(text, words, 0.01, words_in, ForcedWords(strings=("Step",))).text == "Step"
    both = shorten(text, words, 0.1, words_in, ForcedWords(digits=True, strings=("red",)))
    assert both.text == "1: 3 ½ red.\n4" and both.ratio > 0.1
    assert shorten("1 2 3", weighed("1 2 3", [0, 0, 0]), 0.5, words_in, ForcedWords(digits=True)).text == "1 2 3"


def test_nothing_and_one_word() -> None:
    assert shorten("", [], 0.5, count) == Shortened("", (), 0, 0)
    assert shorten("", [], 0.5, count).ratio == 1.0
    assert shorten("only", weighed("only", [0]), 0.1, count).text == "only"


@pytest.mark.parametrize("ratio", [0.0, -1.0, 1.1, float("nan")])
def test_other_ratios_are_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match="not above 0 and at most 1"):
        shorten("a b", weighed("a b", [0, 0]), ratio, count)


# Rationales in a few words: by the rule, by a model, and where a model says too much or nothing

PROBLEMS = {
    name: Problem(name, "gsm8k", f"How many clips in box {name}?", answer)
    for name, answer in (("a", "72"), ("b", "9"), ("c", "4"))
}
STEPS = [
    Steps("a", 0, "line", ("48/2 = 24 clips were sold in May.", "48+24 = 72 clips were sold in all by her.")),
    Steps("b", 0, "line", ("It is 9.",)),
    Steps("c", 0, "line", ("There are 2 + 2 = 4 clips, which is all that there is to say of it.",)),
]


def test_the_rule_keeps_what_matters_most_on_one_line() -> None:
    found = shorten_by_rule(STEPS, PROBLEMS, 6)
    assert [brief.by for brief in found] == ["rule"] * 3
    assert found[0].text == "48/2 = 24 48+24 = 72" and found[1].text == "It is 9."
    assert "2 + 2 = 4" in found[2].text and len(found[2].text.split()) == 6
    assert [len(brief.text.split()) for brief in shorten_by_rule(STEPS, PROBLEMS, 2)] == [2, 2, 2]


def test_a_model_writes_is_cut_and_replaced(tmp_path: Path) -> None:
    said = {"box a": "Half of 48,\n plus 48", "box b": "  ", "box c": "Add 2 and 2 to have 4 and then say so at once"}

    def reply(body: dict[str, Any]) -> str:
        asked = body["messages"][-1]["content"]
        return next(text for name, text in said.items() if name in asked)

    log = RowLog(tmp_path / "log.jsonl")
    with serve(Server(reply)) as server:
        endpoint = schema.Endpoint(url=server.url, model="m")
        section = schema.ResultWriter(endpoints=(endpoint,), max_retries=2)
        found = shorten_by_model(STEPS, PROBLEMS, 5, section, log, 1)
        again = shorten_by_model(STEPS, PROBLEMS, 5, section, RowLog(tmp_path / "log.jsonl"), 1)
        assert len(server.asked) == 3 + 1  # what was answered is not asked again, what was empty is
        prompt = server.asked[0]["messages"][-1]["content"]
    assert "at most 5 words" in prompt and all(body["temperature"] == 0.2 for body in server.asked)
    assert found == again and [brief.by for brief in found] == ["llm", "rule", "llm, cut"]
    assert found[0].text == "Half of 48, plus 48" and found[1].text == "It is 9." and len(found[2].text.split()) == 5


def test_servers_are_needed_and_must_agree(tmp_path: Path) -> None:
    for endpoints, fault in (((), "name one server"), (("m", "n"), "all must have the same model")):
        section = schema.ResultWriter(endpoints=tuple(schema.Endpoint(url="http://x", model=name) for name in endpoints))
        with pytest.raises(CirfError, match=fault):
            shorten_by_model(STEPS, PROBLEMS, 5, section, RowLog(tmp_path / "log.jsonl"), 1)
