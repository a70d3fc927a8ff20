"""The scorers that ask no model: rules and chance; and all scorers by name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.methods.token_skip.scorers import Chance, Rules, Setting, get, names
from cirf.methods.token_skip.shorten import Reasoned, shorten, word_spans
from cirf.recipe import schema


def levels(text: str, answer: str = "", question: str = "") -> dict[str, int]:
    """The level of every word."""
    (words,) = Rules().score([Reasoned(question, text, answer)])
    return {text[word.start : word.end]: int(word.importance) for word in words}


def at(level: int, text: str, answer: str = "", question: str = "") -> list[str]:
    return [word for word, found in levels(text, answer, question).items() if found == level]


def test_levels_of_a_solution() -> None:
    text = "So Mark is 15 + 7 = 22 years old. In 5 years, that makes him older, not younger."
    assert levels(text, "27", "How old is Mark?") == {
        "So": 0, "Mark": 2, "is": 0, "15": 4, "+": 4, "7": 4, "=": 4, "22": 5, "years": 2, "old.": 1,
        "In": 0, "5": 3, "years,": 2, "that": 0, "makes": 1, "him": 0, "older,": 1, "not": 2, "younger.": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "working"),
    [
        ("48/2=24 and 3 stay", ["48/2=24"]),
        ("Half: 48/2 clips", ["48/2"]),
        ("pays 12 x 2 or 2 × 3 or 6 times 7", ["12", "x", "2", "×", "3", "6", "times", "7"]),
        ("the x axis, co-op, and/or (so)", []),
        ("- 13 pens\n- 4 cups\nleaves 13 - 4", ["-", "13", "4"]),
        (r"\[ \frac{1}{2} \]", [r"\[", r"\frac{1}{2}", r"\]"]),
        ("( 3 + 4 ) is it", ["(", "3", "+", "4", ")"]),
        ("one - two", ["-", "two"]),
    ],
)
def test_what_calculates(text: str, working: list[str]) -> None:
    assert at(4, text) == working


def test_numbers_negations_units_names() -> None:
    assert at(3, "She has 3 pens, four cups, ½ pie, 20% and 1,200 more on 5th") == ["3", "four", "½", "20%", "1,200", "5th"]
    assert at(2, "She didn't, can’t, never will, nor without it") == ["didn't,", "can’t,", "never", "nor", "without"]
    assert at(2, "3 pens. 4 of them cost 5 dollars more") == ["pens.", "dollars"]
    assert at(2, "Bakers sell. Ann’s NASA cap. Caps cost Bob much. (C) no; D. yes") == ["NASA", "Bob", "(C)", "no;", "D."]
    assert at(2, "Ann's cap.", question="What has Ann?") == ["Ann's"]


def test_the_answer_and_results() -> None:
    assert at(5, "2 + 2 = 4. So 4 it is, Yes.", "4") == ["4.", "4"]
    assert at(5, "The coin is tails, so no.", "no") == ["no."]
    assert at(5, "A cat fits a box, so (A) is it: A.", "A") == ["A", "(A)", "A."]
    assert at(5, "It is the end of the line.", "the line") == ["line."]
    assert at(5, "Nothing.", "") == []


def test_rarer_words_and_those_said_more_often_weigh_more() -> None:
    texts = ["pens cost money", "pens cost time", "pens pens grow apples"]
    rows = Rules().score([Reasoned("", text, "") for text in texts])
    weights = [{text[word.start : word.end]: word.importance for word in row} for text, row in zip(texts, rows, strict=True)]
    assert weights[0]["money"] > weights[0]["cost"] > weights[0]["pens"]
    assert weights[2]["pens"] > weights[1]["pens"]


def test_function_words_go_first_and_equations_stay() -> None:
    text = "So she will buy 3 of the red pens at $2, and then it is 3 * 2 = $6.\nThis means that the pens cost her 6 dollars."
    (words,) = Rules().score([Reasoned("What do the pens cost?", text, "6")])

    def length(part: str) -> int:
        return len(re.findall(r"\w+|[^\w\s]", part))

    assert shorten(text, words, 0.5, length).text == "buy 3 pens $2, 3 * 2 = $6.\npens 6 dollars."
    assert shorten(text, words, 0.25, length).text == "3 * 2 = $6.\n6"


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=60), st.text(max_size=8)), max_size=4), st.integers(0, 3))
def test_any_text_is_weighed_and_alike_each_time(rows: list[tuple[str, str, str]], seed: int) -> None:
    texts = [Reasoned(*row) for row in rows]
    for scorer in (Rules(), Chance(seed)):
        found = scorer.score(texts)
        assert [[word[:2] for word in row] for row in found] == [word_spans(text.rationale) for text in texts]
        assert found == scorer.score(texts)
        assert all(0 <= word.importance < 6 for row in found for word in row)


def test_chance_hangs_on_the_seed_and_the_row_alone() -> None:
    one, other = Reasoned("q", "a b c d e f", "1"), Reasoned("r", "a b c d e f", "1")
    both = Chance(1).score([one, other])
    assert both == [*Chance(1).score([one]), *Chance(1).score([other])]
    assert both[0] != both[1] != Chance(2).score([other])[0]


def test_scorers_are_found_by_name() -> None:
    assert names() == ("llmlingua2", "rules", "random")
    setting = Setting(schema.Backbone(), seed=3)
    text = Reasoned("q", "a b c", "1")
    assert get("random").make(setting).score([text]) == Chance(3).score([text])
    assert get("rules").make(setting).score([text]) == Rules().score([text])
    assert [get(name).asks for name in names()] == [True, False, False]
    with pytest.raises(CirfError, match=r"no scorer 'rule'; the nearest is 'rules' \(all: llmlingua2, "):
        get("rule")
