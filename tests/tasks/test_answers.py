"""Reading answers: a golden list of awkward outputs, and what holds for any text."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from cirf.records import AnswerKind, Problem
from cirf.store.jsonl import read_rows
from cirf.tasks import get
from cirf.tasks.loading.targets import split_answer
from cirf.tasks.parsing.answers import anchors, equal_answers, mentions, normalise_text, number_value, parse_answer
from cirf.text.numerals import find_numbers, number_text, plain

NUMBERS = [
    ("72", "72"),
    (" 72.\n", "72"),
    ("72.0", "72"),
    ("0.50", "0.5"),
    (".5", "0.5"),
    ("1/2", "0.5"),
    ("1 1/2", "1.5"),
    ("½", "0.5"),
    ("2½ cups", "2.5"),
    ("1/3", "1/3"),
    ("2/6", "1/3"),
    ("$1,234.50", "1234.5"),
    ("1,234,567", "1234567"),
    ("1{,}234", "1234"),
    ("-3", "-3"),
    ("−3", "-3"),
    ("minus 3", "-3"),
    ("-$5", "-5"),
    ("$-5", "-5"),
    ("x = -4", "-4"),
    ("50%", "50"),
    ("€20", "20"),
    ("12 apples", "12"),
    ("5km", "5"),
    ("5 million", "5000000"),
    ("3 × 10^4", "30000"),
    ("1e3", "1000"),
    ("seven", "7"),
    ("The answer is twenty-one.", "21"),
    ("two hundred and five", "205"),
    ("five six", None),
    ("12k", "12000"),
    ("所以，答案是84。", "84"),
    ("Respuesta: 84", "84"),
    ("Die richtige Antwort lautet 5.", "5"),
    ("Ответ: 12 рублей", "12"),
    ("٥٨", "58"),
    ("The answer is negative three.", "-3"),
    ("Minus twenty-one", "-21"),
    ("The answer is $1.5M.", "1500000"),
    ("The answer is 7, by model-12k.", "7"),
    ("5m", "5"),
    (r"2\frac12", "2.5"),
    ("√2", None),
    ("The answer is 2π.", None),
    ("**72**", "72"),
    (r"\frac{1}{2}", "0.5"),
    (r"-\frac{3}{4}", "-0.75"),
    (r"1\frac{1}{2}", "1.5"),
    (r"\boxed{\frac{3}{8}}", "0.375"),
    (r"\boxed{72}", "72"),
    (r"\boxed{\text{72 dollars}}", "72"),
    (r"The total is \(48 + 24 = 72\).", "72"),
    ("#### 72", "72"),
    ("#### $1,000 dollars", "1000"),
    ("She has 5 apples and 3 pears.\n#### 8", "8"),
    ("#### 7\nThe end of 9 steps", "7"),
    ("The answer is 72. I used 3 steps.", "72"),
    ("The answer is **72**.", "72"),
    ("The answer is: 72 apples for 3 people", "72"),
    ("Answer: 40 + 2 = 42", "42"),
    ("answer: 3.5 hours", "3.5"),
    ("The final answer is approximately 12.5", "12.5"),
    ("The answer is that after 3 days he has 5", "5"),
    ("The answer is 4. No wait, the answer is 6.", "6"),
    ("The answer is 6. I hope the answer is clear.", "6"),
    ("Final Answer:\n\n72", "72"),
    ("#### Step 3: add\n4 + 4 = 8 apples in 2 days", "8"),
    ("18 x 4 = 72 sacks in 4 weeks.", "72"),
    ("So she can make **7 baggies** of 5 cookies.", "7"),
    ("- 17 pictures", "17"),
    ("5-3", "3"),
    ("on the 5th day he had 9", "9"),
    ("he had 9 on the 15th", "9"),
    ("CO2 and cirf_016", None),
    ("no idea", None),
    ("", None),
    ("#### I do not know", None),
    ("1/0", None),
]


@each_row(("text", "expected"), NUMBERS)
def test_numbers(text: str, expected: str | None) -> None:
    assert parse_answer("number", text) == expected


CHOICES = ("roof", "room", "floor", "apartment", "neighbor's house")
FRUIT = ("apple", "a pear", "New York", "individual")
OPTIONS = [
    ("C", CHOICES, "C"),
    ("c", CHOICES, "C"),
    ("(C)", CHOICES, "C"),
    ("(c)", CHOICES, "C"),
    ("C.", CHOICES, "C"),
    ("**C**", CHOICES, "C"),
    ("C. floor", CHOICES, "C"),
    ("C) floor", CHOICES, "C"),
    ("C floor", CHOICES, "C"),
    ("floor", CHOICES, "C"),
    ("The floor.", CHOICES, "C"),
    ("the neighbor's house", CHOICES, "E"),
    ("C. because furniture stands there", CHOICES, "C"),
    ("The answer is C", CHOICES, "C"),
    ("The answer is (C).", CHOICES, "C"),
    ("The answer is **C. floor**, since it is level.", CHOICES, "C"),
    ("the answer is the floor", CHOICES, "C"),
    ("Answer: C) floor", CHOICES, "C"),
    ("#### C", CHOICES, "C"),
    (r"\boxed{C}", CHOICES, "C"),
    (r"\boxed{\text{C}}", CHOICES, "C"),
    ("The answer is A because it fits.", CHOICES, "A"),
    ("A is wrong and B is wrong, so I choose C.", CHOICES, "C"),
    ("Option C is the best answer.", CHOICES, "C"),
    ("(C) is the correct choice.", CHOICES, "C"),
    ("Also ist Antwort C richtig.", CHOICES, "C"),
    ("La opción correcta es la C.", CHOICES, "C"),
    ("L'option C est correcte.", CHOICES, "C"),
    ("A resposta é a letra C.", CHOICES, "C"),
    ("A. roof - no.\nB. room - no.\n\nThus the answer is C.", CHOICES, "C"),
    (
        "To find the answer to the question, let's look:\n\nA. roof - no.\n\nThe best choice that fits is:\n\n**C. floor**",
        CHOICES,
        "C",
    ),
    ("Of the above, only floors carry furniture.", CHOICES, "C"),
    ("It stands in the neighbor's house", CHOICES, "E"),
    ("The answer is B. Later the answer is D.", CHOICES, "D"),
    # no letter inside a word, and no article, is an option
    ("apple", ("pear", "plum"), None),
    ("A place to sleep", CHOICES, None),
    ("A car needs fuel.", CHOICES, None),
    ("I think so", tuple("xyzuvwabcd"), None),
    ("The answer is a mystery", CHOICES, None),
    ("The answer is A place where people sleep", CHOICES, None),
    ("vitamin C", CHOICES, None),
    ("because", CHOICES, None),
    ("", CHOICES, None),
    ("F", CHOICES, None),
    ("(Z)", CHOICES, None),
    ("The answer is not C.", CHOICES, None),
    ("We cannot say that A must be true", CHOICES, None),
    ("Neither A nor B must be true", CHOICES, None),
    ("It is not the floor.", CHOICES, None),
    ("It could be the roof or the floor.", CHOICES, None),
    ("A. roof - while one can stand there", CHOICES, "A"),
    ("The answer is B) 12.", ("12", "18"), None),
    ("The answer is B) 18.", ("12", "18"), "B"),
    ("\u56e0\u6b64\u9009B\u3002", ("\u7532", "\u4e59"), "B"),
    ("\u6240\u4ee5\u662f\u4e59\u3002", ("\u7532", "\u4e59"), "B"),
    ("First A. roof is looked at, then B. room", CHOICES, None),
    ("A", FRUIT, "A"),
    ("an apple", FRUIT, "A"),
    ("pear", FRUIT, "B"),
    ("new york", FRUIT, "C"),
    ("pineapple", FRUIT, None),
    ("New Yorkers", ("York", "Leeds"), None),
]


@each_row(("text", "choices", "expected"), OPTIONS)
def test_options(text: str, choices: tuple[str, ...], expected: str | None) -> None:
    assert parse_answer("option", text, choices) == expected


def test_options_without_choices_are_letters() -> None:
    assert parse_answer("option", "The answer is (Q).") == "Q"
    assert parse_answer("option", "The answer is unclear.") is None


YES_NO = [
    ("yes", "yes"),
    ("No", "no"),
    ("no.", "no"),
    ("no, the coin is tails up", "no"),
    ("No the coin is not", "no"),
    ("Yes, it is still heads up.", "yes"),
    ("True", "yes"),
    ("False.", "no"),
    ("#### no", "no"),
    ("The answer is **yes**.", "yes"),
    ("the answer is no because it was flipped", "no"),
    ("The answer is no longer known", None),
    ("Therefore, the answer to whether the coin is still heads up is **no**.", "no"),
    ("Final answer: **no** (the coin is not still heads up).", "no"),
    ("There is no flip, so yes.", "yes"),
    ("The coin is no longer heads up.", None),
    ("No one flips it.", None),
    ("Is it yes or no? We do not know", None),
    ("There is no. 4 here", None),
    ("That is not true.", None),
    ("nothing yesterday", None),
    ("Maybe yes. On reflection, no.", "no"),
    ("", None),
]


@each_row(("text", "expected"), YES_NO)
def test_yes_no(text: str, expected: str | None) -> None:
    assert parse_answer("yesno", text) == expected


TEXTS = [
    ("Paris", "Paris"),
    ("The answer is Paris.", "Paris"),
    ("Thinking about France.\n#### Paris", "Paris"),
    ("So we look.\nIt is Paris.", "It is Paris"),
    (r"\boxed{\text{Paris}}", "Paris"),
    ("**Paris**", "Paris"),
    (" \n ", None),
]


@each_row(("text", "expected"), TEXTS)
def test_texts(text: str, expected: str | None) -> None:
    assert parse_answer("text", text) == expected


@each_row(
    ("said", "expected"),
    [
        *((said, said) for said in ("just in time", "just war", "just desserts", "then and there", "clearly and simply")),
        *((said, said) for said in ("equal to B", "exactly one of them", "just a dream", "just I", "Simply Red", "just he/she")),
        *((said, "100") for said in ("simply 100", "equal to 100", "exactly equal to 100", "therefore 100", "then 100")),
        *((said, "x + 1") for said in ("simply x + 1", "thus x + 1")),
        ("simply B", "B"),
        ("just seven", "seven"),
        ("therefore Paris", "Paris"),
        ("hence, clearly, Paris", "Paris"),
    ],
)
def test_words_that_lead_to_an_answer_are_no_part_of_it(said: str, expected: str) -> None:
    for text in (f"The answer is {said}.", f"We look.\n#### {said}"):
        assert parse_answer("text", text) == expected


@each_row(
    ("kind", "one", "other", "same"),
    [
        ("number", "0.5", "1/2", True),
        ("number", "72", "72.0000001", True),
        ("number", "72", "72.01", False),
        ("number", "1000000", "1000000.5", True),
        ("number", "0.000001", "0.000002", True),
        ("number", "1/3", "0.333", False),
        ("number", "-3", "3", False),
        ("number", "x", "3", False),
        ("option", "A", "A", True),
        ("option", "a", "A", False),
        ("yesno", "yes", "no", False),
        ("text", "New  York!", "new york", True),
        ("text", "alpha, beta", "alpha beta", True),
        ("text", "17", "17 cups", True),
        ("text", "2650.5", "2'650.50 CHF", True),
        ("text", "seven cups", "7 cups", True),
        ("text", "seven cups", "8 cups", False),
        ("text", r"\text{red}", "red", True),
        ("text", "17 cups", "17", True),
        ("text", "17 cup", "17 cups", True),
        ("text", "1200", "1,200 beads", True),
        ("text", "17.0", "17 km/h", True),
        ("text", "$17", "17 dollars", True),
        ("text", "Rs. 17", "17", True),
        ("text", "-17", "17 cups", False),
        ("text", "17 mugs", "17 cups", False),
        ("text", "18", "17 cups", False),
        ("text", "12", "12 Angry Men", False),
        ("text", "3.0*10^5 J", "3.0 × 10^5 J", True),
        ("text", "300000", "3.0 × 10^5 J", True),
        ("text", "3.0 × 10^4 J", "3.0 × 10^5 J", False),
        ("text", "9", "9 (apples)", True),
        ("text", "8", "9 (apples)", False),
        ("text", "3,14", "2,71", False),
        ("text", "€3,50", "€4,50", False),
        ("text", "1,5 kg", "1,5", True),
        ("text", "11:35am", "11:35 a.m.", True),
        ("text", "11:35 pm", "11:35 a.m.", False),
        ("text", "5/2/2021", "05/02/2021", True),
        ("text", "5/20/2021", "05/02/2021", False),
        ("text", "5", "May 5", False),
        ("text", "3", "3 hours 20 minutes", False),
        ("text", "neighbor's", "neighbors", True),
        ("text", "[ ]", "[ ]", True),
        ("text", "[ ]", "( )", False),
        ("text", "Paris", "Rome", False),
    ],
)
def test_equality(kind: str, one: str, other: str, same: bool) -> None:
    assert equal_answers(kind, one, other) is same  # type: ignore[arg-type]


def test_last_anchor_comes_last() -> None:
    assert [said for _, said in anchors(r"answer: 1 \boxed{2} here" + "\n#### 3")] == [r"1 \boxed{2} here", "2", "3"]


def test_longer_option_hides_the_shorter_inside_it() -> None:
    assert {index for _, _, index in mentions("in the neighbor's house", ("house", "neighbor's house"))} == {1}


@given(
    st.fractions(max_denominator=10**6),
    st.sampled_from(["{}", "#### {}", "The answer is {}.", "**{}**", r"\boxed{{{}}}", "so it is {}"]),
)
def test_a_written_value_is_read_back(value: Fraction, frame: str) -> None:
    text = number_text(value)
    assert parse_answer("number", frame.format(text)) == text
    assert number_value(text) == value


@given(st.integers(-(10**12), 10**12))
def test_commas_currency_and_zeros_do_not_matter(value: int) -> None:
    for written in (f"{value:,}", f"{value}.00", f"{value} dollars", f"{value}%", f"{'-' if value < 0 else ''}${abs(value):,}"):
        assert parse_answer("number", written) == str(value)


@pytest.mark.parametrize(
    ("kind", "answer", "form"),
    [
        ("number", "42", r"-?\d+([./]\d+)?"),
        ("option", "B", "[A-E]"),
        ("yesno", "no", "yes|no"),
        ("text", "a roof", r"\S.*"),
    ],
)
@given(data=st.data())
def test_any_text_is_read_without_a_fault_and_to_a_canonical_answer(
    kind: AnswerKind, answer: str, form: str, data: st.DataObject
) -> None:
    pieces = [answer, f" {answer}\n", "\n#### ", "not ", ", ", "$", "\\boxed{", "}", "The answer is ", ". ", "?\n", " = ", "7"]
    mixed = st.lists(st.sampled_from(pieces) | st.text(max_size=3), max_size=12).map("".join)
    found = parse_answer(kind, data.draw(st.text(max_size=300) | mixed), CHOICES)
    read = answer if found is None else found
    assert re.fullmatch(form, read) and equal_answers(kind, read, read)
    assert parse_answer(kind, read, CHOICES) == read


@given(
    st.lists(
        st.sampled_from(["cat", "bed", "fade", "decade", "abacus", "cab", "bead", "face", "ad", "ace"]), min_size=1, max_size=12
    )
)
def test_words_full_of_option_letters_name_no_option(words: list[str]) -> None:
    assert parse_answer("option", " ".join(words), CHOICES) is None


@given(
    st.sampled_from("ABCDE"),
    st.sampled_from(["{}", "({})", "{}.", "**{}**", "#### {}", "The answer is {}.", "Answer: ({})", "I choose {}."]),
)
def test_a_letter_of_its_own_is_the_option(letter: str, frame: str) -> None:
    assert parse_answer("option", frame.format(letter), CHOICES) == letter


ENDS = (
    "</s>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>\n",
    "<end_of_turn>",
    "<|im_end|>\n<|im_start|>user\nIs the answer 7, A or no?",
)
ANCHORS = st.sampled_from(
    ["#### {}", "The answer is {}", "The answer is {}.", "Answer: {}", r"\boxed{{{}}}", "<answer>{}</answer>"]
)


@given(st.sampled_from(ENDS), ANCHORS | st.just("{}"))
def test_what_ends_a_turn_is_no_part_of_the_answer(end: str, frame: str) -> None:
    for kind, answer in (("number", "72"), ("option", "C"), ("yesno", "no"), ("text", "Paris")):
        assert parse_answer(kind, frame.format(answer) + end, CHOICES) == answer  # type: ignore[arg-type]


@given(
    st.integers(0, 999), st.integers(0, 999), st.sampled_from(["{} or {}", "{}, {}", "{} and {}", "${} and then ${}"]), ANCHORS
)
def test_of_two_numbers_offered_none_is_the_answer(one: int, other: int, pair: str, frame: str) -> None:
    read = parse_answer("number", "It is 5.\nThe answer is 5.\n" + frame.format(pair.format(one, other)))
    assert read == (str(one) if one == other else None)


@given(
    st.permutations("ABCDE"), st.sampled_from(["{} or {}", "{}, {}", "{} and {}", "{}/{}", "({}) or ({})", "{}) or {})"]), ANCHORS
)
def test_of_two_letters_offered_none_is_the_answer(letters: list[str], pair: str, frame: str) -> None:
    assert parse_answer("option", "The answer is E.\n" + frame.format(pair.format(*letters[:2])), CHOICES) is None


@given(
    st.integers(0, 999),
    st.sampled_from(["is not", "isn't", "cannot be", "must not be"]),
    st.sampled_from(["", " but 1234", ", it is 1234"]),
)
def test_a_denied_number_is_not_the_answer(value: int, denies: str, instead: str) -> None:
    assert parse_answer("number", f"The answer {denies} {value}{instead}.") == ("1234" if instead else None)


@given(
    st.integers(0, 99),
    st.integers(0, 9),
    st.sampled_from(["{}^{}", "{}**{}", "{} ** {}", "{}^{{{}}}", "{} ^ {}"]),
    ANCHORS | st.just("{}"),
)
def test_a_plain_power_is_worked_out(base: int, exponent: int, power: str, frame: str) -> None:
    assert parse_answer("number", frame.format(power.format(base, exponent))) == str(base**exponent)


@given(st.integers(1000, 10**12), st.sampled_from([" ", "\u2009", "\u00a0", "\u202f"]), ANCHORS | st.just("{}"))
def test_spaces_between_thousands_do_not_matter(value: int, space: str, frame: str) -> None:
    assert parse_answer("number", frame.format(f"{value:,}".replace(",", space))) == str(value)


RUN_ON = [
    ("number", "So 20 - 3 is 17.\n#### 17\n\nQuestion: Ann has 5 cups. How many?\nAnswer: 5+4=9\n#### 9", "17"),
    ("number", "The answer is 17.\n\nQ: Ann has 5 cups. How many?\nA: The answer is 9.", "17"),
    ("number", "She has 17 left.\n\nQ: Ann has 5 cups. How many?\nA: The answer is 9.", "17"),
    ("number", "#### 17\n\n### Problem 2:\n#### 9", "17"),
    ("number", "17\n\nHuman: And 5 + 4?\nAssistant: 9", "17"),
    ("number", "The answer is 17.\n\nWord problem: Ann has 5 cups.\nThe answer is 9.", "17"),
    ("number", "The answer is 17.\n\nHere is another problem: Ann has 5 cups.\nThe answer is 9.", "17"),
    ("number", "The answer is 17.\n\nQuery: Ann has 5 cups.\nThe answer is 9.", "17"),
    ("number", "The answer is 17.\n\n2. Ann has 5 cups and buys 4. How many has she?\nThe answer is 9.", "17"),
    ("number", "The answer is 17.\n---\nAnn has 5 cups and buys 4. How many has she?\n#### 9", "17"),
    ("number", "The answer is 17.\n\nHow many are left?\nThe answer is 9.", "9"),
    ("number", "#### 17\n#### 9", "17"),
    ("number", "#### 17\nWait, that is wrong.\n#### 9", "9"),
    ("number", "#### Step 1\n5 + 4 = 9\n#### 9", "9"),
    ("number", "Question: 3 boxes?\nAnswer: 17\nQuestion: 5 cups?\nAnswer: 9", "17"),
    ("number", "The answer is 17 or 18.\n\nQ: 5 cups?\nA: The answer is 9.", None),
    ("number", "Let me restate it.\n\n**Question:** 3 boxes of 4?\n\n**Answer:** 12", "12"),
    ("number", "Given: 3 boxes\nQuestion: How many?\nAnswer: 12", "12"),
    ("number", "She has 18 left.\n\nCheck: 18 + 2 = 20.", "18"),
    ("number", "She has 18 left. Check: 18 + 2 = 20.", "18"),
    ("number", "She has 18 left.\n\n**Verification:**\n18 + 2 = 20", "18"),
    ("number", "She has 18 left.\n\nNote: 5 of them are red.", "18"),
    ("number", "She has 18 left.\n\nP.S. She had 20 before.", "18"),
    ("number", "She has 18 left.\n\nTip: Always take away 2.", "18"),
    ("number", "The meal is $40.\nTip: $6.\nThe answer is 46.", "46"),
    ("number", "The meal is $40.\n\nTip: 15% of $40 is $6, which makes $46", "46"),
    ("number", "The meal is $40. Tip: the waiter gets $6. In total $46", "46"),
    ("number", "The answer is 17.\nNote: Without these 3 the answer would be 14.", "17"),
    ("number", "First 18.\nCheck: 18 + 2 = 20, one too many.\n\nSo she has 17.", "17"),
    ("number", "Check: 18 + 2 = 20.", "20"),
    ("option", "The answer is C\nQ: What else? A: The answer is A", "C"),
    ("option", "C\n\nQuestion: What else?\nAnswer: A", "C"),
    ("option", "The answer is C.\n\nNote: Option A would be right for birds.", "C"),
    ("yesno", "So the answer is no.\n\nQ: Is it?\nA: yes", "no"),
    ("validity", "Hence it is valid.\n\nQ: And this?\nA: invalid", "valid"),
    ("text", "Paris\n\nQuestion: The capital of Spain?\nAnswer: Madrid", "Paris"),
    ("latex", "The answer is $x+1$.\n\nProblem: Another\nThe answer is $y$.", "x+1"),
]


@each_row(("kind", "text", "expected"), RUN_ON)
def test_what_follows_an_answer_is_not_read(kind: str, text: str, expected: str | None) -> None:
    assert parse_answer(kind, text, CHOICES if kind == "option" else None) == expected


def test_a_question_said_again_ends_nothing() -> None:
    asked = "Tom has 5 boxes of 4 pens. How many pens has he?"
    said = "Tom has 5 boxes of 4 pens.\nQuestion: How many pens has he?\nAnswer: 20"
    assert parse_answer("number", said, question=asked) == "20"


def indian(value: int) -> str:
    head, last = divmod(value, 1000)
    pairs = []
    while head > 99:
        head, pair = divmod(head, 100)
        pairs.insert(0, f"{pair:02}")
    return ",".join([str(head), *pairs, f"{last:03}"])


@given(
    st.integers(100_000, 10**12), st.sampled_from(["1'350", "1’350", "1_350", "1,35,000", "1.350.000"]), ANCHORS | st.just("{}")
)
def test_other_groupings_are_read_whole(value: int, style: str, frame: str) -> None:
    separator = "." if style == "1.350.000" else style[1]
    written = indian(value) if style == "1,35,000" else f"{max(value, 10**6):,}".replace(",", separator)
    expected = value if style == "1,35,000" else max(value, 10**6)
    assert parse_answer("number", frame.format(written)) == str(expected)
    assert equal_answers("number", written, f"{expected:,}")


@given(
    st.integers(0, 10**7),
    st.sampled_from(["", "5", "25", "4567"]),
    st.sampled_from([".", "'", " ", "", "\u202f"]),
    st.sampled_from(
        [
            "The 3 boxes hold 4.\n{}",
            "{} Euro",
            "Die Antwort ist {}.",
            "#### {}",
            "5 + 7 = {} Euro",
            "Es sind {}.",
            "The answer is 18 = {}",
        ]
    ),
)
def test_of_a_number_with_a_decimal_comma_no_part_is_read(whole: int, decimals: str, separator: str, frame: str) -> None:
    written = f"{whole:,}".replace(",", separator) + f",{decimals or 75}"
    assert parse_answer("number", frame.format(written)) is None
    assert not equal_answers("number", written, str(whole))


@each_row(
    ("text", "expected"),
    [
        ("The answer is 1,996.25.", "1996.25"), ("The answer is 12'000.50", "12000.5"), ("The answer is 3.2E5.", "320000"),
        ("The answer is Rs. 1,25,000.", "125000"), ("Il reste 1 350 euros.", None), ("The date is 12.05.2024", None),
        ("The answer is 12·5.", None), ("#### 12 ⋅ 5", None), ("The answer is 12•5 = 60.", "60"),
        ("The answer is 1,2,3.", None), ("They pay Rs1,000", "1000"), ("So 3 * 450 = 1 350 EUR.", "1350"),
    ],
)  # fmt: skip
def test_a_number_is_read_whole_or_not_at_all(text: str, expected: str | None) -> None:
    assert parse_answer("number", text) == expected


@given(
    st.sampled_from("ABCDE"),
    st.sampled_from(
        [
            "Therefore, {}",
            "So {}.",
            "It is definitely {}",
            "The best choice would be {}.",
            "I'd say ({}).",
            "My choice is **{}**.",
        ]
    ),
)
def test_a_verdict_names_its_letter(letter: str, frame: str) -> None:
    assert parse_answer("option", "A roof is high, a floor is flat.\n" + frame.format(letter), CHOICES) == letter


@each_row(
    ("ours", "theirs"),
    [
        ("C++", "C"), ("C#", "C"), ("x + 1", "x - 1"), ("-5 degrees", "5 degrees"), ("$5", "5%"), ("3.5", "3 5"), ("a-b", "a+b"),
        ("} >", "> )"), ("1/2", "1 2"), ("x", "-x"), ("A", "A, C"), ("Bo, Ann", "Ann, Bo"), ("12", "12 Angry Men"),
        ("It is Rome or Paris", "Paris"), ("It is not Paris", "Paris"), ("It is Rome, it is Paris", "Paris"), ("x^2", "2x"),
        ("A > B > C", "C > B > A"), ("b, a", "a, b"), ("A, C, B", "B, A, C"), ("2 : 3", "3"), ("No one is here", "here"),
        ("If it rains, it is on", "on"), ("$10^5$", "105"), ("$x^2$", "$x_2$"), ("in time", "on time"), ("minor", "A minor"),
    ],
)  # fmt: skip
def test_signs_that_mean_something_distinguish_texts(ours: str, theirs: str) -> None:
    assert not equal_answers("text", ours, theirs)


@each_row(
    ("ours", "theirs"),
    [
        ("The well-known", "the well known."), ("x + 1", "x+1"), ("x - 1", "x\u22121"), ("O\u2019Brien", "O'Brien"),
        ("The due date is May 1, 2023.", "May 1, 2023"), ("E = 5.1 \u00d7 10^-9 J", "5.1e-9 J"), ("map", "the map"),
        (r"$567\pi\text{ cm}^3$", "567\u03c0 cm\u00b3"), ("120km\u3067\u3059", "120km"),
        ("In Turin", "Turin"), ("Ann > Bo", "Ann, Bo"),
        ("A and C", "A, C"), ("C, A", "A, C"), ("salt and pepper", "salt, pepper"), ("6", "6\u652f"), ("3/4", "3/4 cup"),
        ("1,000 people", "1000 people"), ("**Paris**", "paris"), ("red, blue", "red blue"), ("\u201cParis\u201d", "Paris"),
    ],
)  # fmt: skip
def test_punctuation_of_sentences_does_not_count_in_texts(ours: str, theirs: str) -> None:
    assert equal_answers("text", ours, theirs)


@given(st.text(max_size=100))
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise_text(text)
    assert normalise_text(once) == once


@given(st.text(alphabet="0123456789.,/-$%e ×^{}\\frac thmilon", max_size=80))
def test_numbers_are_where_they_say(text: str) -> None:
    text = f"{plain(text)} so 12"
    numbers = find_numbers(text)
    assert numbers[-1].value == 12 and numbers[-1].end == len(text)
    assert all(one.end <= two.start for one, two in pairwise(numbers))
    assert all(0 <= number.start < number.end and not text[number.start].isspace() for number in numbers)


@each_row(
    "text",
    [
        "9" * 5_000,
        "1" + ",000" * 1_250,
        "#### " * 1_000,
        "answer to " * 500,
        r"\boxed{" * 300,
        "- " * 2_500,
        "yes or no " * 500,
        "1/" * 2_000,
        "2^" * 2_000,
        "2**" * 2_000,
        "1 000" + " 000" * 1_250,
        "so, it is " * 750,
        "A or B, " * 1_000,
        "<answer>" * 750,
        "x\n" + "\n" * 5_000,
        "<|im_end|>" * 750,
        r"\boxed{1} or " * 500,
        "not " * 1_250,
        "17\n" + "Q: 5\n" * 1_250,
        "17. Check: " * 1_250,
        "17\n\n" + "Check: 5\n\n" * 1_250,
        "Q: x\n" * 1_250,
        "Problem: x\n\n" * 1_250,
        "1,2" * 2_500,
        "the answer" + " " * 10_000 + "x",
        "#### not a" + " " * 10_000 + "b",
        "#### not a" + "-" * 10_000 + "b",
        "a" + "." * 10_000,
        "<answer>" + "." * 10_000,
        "<answer>x" + r"\." * 5_000,
        "a" + "* " * 5_000 + "b",
        "3 + 4 = 7.\n" + "1+1=" * 2_500 + "2.",
        "3 + 4 = 7.\n" + "x = 1 and " * 1_000 + "y = 2.",
        "a = 1\nb = " + "c * " * 2_500,
        "x\n\n✅ **" + "y 😊 " * 2_500,
    ],
)
def test_hostile_texts_do_not_stall(text: str) -> None:
    started = time.process_time()
    for kind in ("number", "option", "yesno", "text", "latex"):
        parse_answer(kind, text, CHOICES)  # type: ignore[arg-type]
    split_answer(text)
    assert time.process_time() - started < 1  # each takes under a quarter; a pattern that backtracks takes longer by far


def test_of_a_text_that_says_one_thing_over_and_over_the_end_counts() -> None:
    """What a model in a loop wrote is read in a time that grows with its length, not with its square."""
    said = anchors("The answer is 7. " * 5000 + "The answer is 9.")
    assert len(said) == 200 and all(len(each) <= 2000 for _, each in said) and said[-1] == ("phrase", "9.")
    assert parse_answer("number", "The answer is not " * 5000 + "5") is None
    assert parse_answer("latex", "The answer is (C) " * 5000 + "$x$. The answer is $y$.") == "y"


# Awkward outputs of every benchmark, each read as a careful person would, a row an output

GOLDEN = read_rows(Path(__file__).with_name("golden.jsonl"))
NINE = ("gsm8k", "svamp", "multiarith", "coin_flip", "commonsense_qa", "math500", "bbh", "strategyqa", "scienceqa")


def rows(name: str) -> list[dict[str, Any]]:
    return [row for row in GOLDEN if row["task"] == name]


def problem(name: str, row: dict[str, Any]) -> Problem:
    choices = tuple(row["choices"]) if "choices" in row else None
    return Problem("p", name, row.get("question", "?"), "", choices, subset=row.get("subset"))


@each_row("name", NINE)
def test_awkward_outputs_are_read_as_a_person_would(name: str) -> None:
    task, misread = get(name), []
    for row in rows(name):
        asked = problem(name, row)
        read = task.parse(row["output"], asked)
        if row["expected"] is None or read is None:
            fine = read is row["expected"]
        else:  # and what was read can be read again
            fine = task.equal(read, replace(asked, answer=row["expected"])) and task.parse(read, asked) is not None
        if not fine:
            misread.append(f"{row['output']!r} is read as {read!r}, not as {row['expected']!r}: {row['why']}")
    assert not misread


@each_row("name", NINE)
def test_there_are_thirty_of_each_task_and_they_differ(name: str) -> None:
    found = rows(name)
    assert len(found) >= 30
    assert len({json.dumps({**row, "why": ""}, sort_keys=True) for row in found}) == len(found)
    assert all(row["why"] for row in found)
    assert any(row["expected"] is None for row in found)


def test_every_kind_of_bbh_is_there() -> None:
    kinds = {get("bbh").kind(problem("bbh", row)) for row in rows("bbh")}
    assert kinds == set(get("bbh").all_kinds)
