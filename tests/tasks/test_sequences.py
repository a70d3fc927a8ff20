"""Answers of the kinds that BBH brings: truth values, validity, words in order, brackets. What holds for any of them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.records import AnswerKind
from cirf.tasks.answers import equal_answers, parse_answer
from cirf.tasks.parsing.sequences import list_words

FRAMES = ("{}", "#### {}", "The answer is {}.", "Answer: {}", "So, after some thought:\n#### {}", "**{}**", "answer: `{}`")
NOISE = ("", "First I look at 3 things.\n", "Step 1: think (well).\nStep 2: done.\n\n")
WORDS = ("ant", "bee", "cat", "dog", "it&t", "eel", "o'hare", "fox-glove", "gnu", "hen")
QUESTION = f"Sort the following words alphabetically: List: {' '.join(WORDS)}"
GIVEN = "< [ ( { ( )"
BRACKETS = f"Complete the rest of the sequence. Input: {GIVEN}"

frames, noises = st.sampled_from(FRAMES), st.sampled_from(NOISE)


@given(st.sampled_from(["True", "False"]), frames, noises)
def test_a_truth_value_is_read_back(answer: str, frame: str, noise: str) -> None:
    assert parse_answer("truth", noise + frame.format(answer)) == answer


@given(st.sampled_from(["valid", "invalid"]), frames, noises)
def test_a_validity_is_read_back(answer: str, frame: str, noise: str) -> None:
    assert parse_answer("validity", noise + frame.format(answer)) == answer


@given(st.permutations(WORDS), st.integers(1, len(WORDS)), frames, noises)
def test_words_in_order_are_read_back(words: list[str], count: int, frame: str, noise: str) -> None:
    answer = " ".join(words[:count])
    text = noise + frame.format(answer)
    if "####" in frame or "nswer" in frame or count >= len(WORDS) / 2:
        assert parse_answer("list", text, question=QUESTION) == answer


@given(st.permutations(WORDS), st.sampled_from([", ", "\n", "; ", " < ", " -> "]), st.booleans())
def test_how_words_are_set_apart_does_not_matter(words: list[str], between: str, numbered: bool) -> None:
    text = between.join(f"{place}. {word}" if numbered else word for place, word in enumerate(words, 1))
    assert parse_answer("list", text, question=QUESTION) == " ".join(words)
    assert parse_answer("list", f"The answer is:\n{text}", question=QUESTION) == " ".join(words)


@given(st.lists(st.sampled_from(")]}>"), min_size=1, max_size=12), st.sampled_from([" ", "", ", "]), frames, noises)
def test_brackets_are_read_back(signs: list[str], between: str, frame: str, noise: str) -> None:
    text = noise + frame.format(between.join(signs))
    assert parse_answer("brackets", text, question=BRACKETS) == " ".join(signs)


@given(st.lists(st.sampled_from(")]}>"), min_size=1, max_size=12), frames)
def test_the_whole_sequence_said_again_counts_by_what_it_goes_on_with(signs: list[str], frame: str) -> None:
    text = frame.format(f"{GIVEN} {' '.join(signs)}")
    assert parse_answer("brackets", text, question=BRACKETS) == " ".join(signs)
    assert parse_answer("brackets", frame.format(GIVEN), question=BRACKETS) is None


@given(
    st.permutations(WORDS),
    st.sampled_from([" ", "\n", " -> ", ": ", "\nSorted: "]),
    st.sampled_from(["{}", "#### {}", "Answer: {}"]),
)
def test_the_list_said_again_before_its_order_does_not_count(words: list[str], between: str, frame: str) -> None:
    text = frame.format(" ".join(WORDS) + between + " ".join(words))
    assert parse_answer("list", text, question=QUESTION) == " ".join(words)


@given(st.permutations(WORDS), st.permutations(WORDS), st.sampled_from(["", " is a word of it", " comes next"]))
def test_words_below_an_anchored_row_add_nothing(words: list[str], others: list[str], remark: str) -> None:
    if tuple(words) != WORDS:
        text = f"#### {' '.join(words)}\n{' '.join(others[:2])}{remark}"
        assert parse_answer("list", text, question=QUESTION) == " ".join(words)


@given(st.lists(st.sampled_from(["close", "the", "open", "then", "first"]), min_size=2, max_size=6), st.sampled_from("([{<)]}>"))
def test_brackets_in_prose_are_no_answer(words: list[str], sign: str) -> None:
    text = f"We {f' {sign} '.join(words)} one"
    assert parse_answer("brackets", text, question=BRACKETS) is None


def test_equality() -> None:
    assert equal_answers("brackets", "]>", "] >")
    assert not equal_answers("brackets", "] )", ") ]")
    assert equal_answers("list", "a b", "a b")
    assert not equal_answers("list", "b a", "a b")
    assert not equal_answers("truth", "True", "False")


def test_words_without_a_question() -> None:
    assert list_words("What is it?") == ()
    for text in ("red, green and blue", "Colours: red green blue", "1. red\n2. green\n3. blue", "#### red green blue"):
        assert parse_answer("list", text) == "red green blue"


@pytest.mark.parametrize("kind", ["truth", "validity", "list", "brackets", "latex"])
@given(st.text(max_size=300))
def test_any_text_is_read_without_a_fault(kind: AnswerKind, text: str) -> None:
    answer = parse_answer(kind, text, question=BRACKETS if kind == "brackets" else "Sort: List: a b")
    allowed = {"truth": {"True", "False"}, "validity": {"valid", "invalid"}}.get(kind)
    assert answer is None or (answer.strip() and (allowed is None or answer in allowed))


@pytest.mark.parametrize(
    "text",
    [
        "#### " * 4_000, "answer to " * 2_000, r"\boxed{" * 2_000, "( [ { <" * 4_000, "not valid " * 3_000, "$" * 10_000,
        "whether it is " * 2_000, "a b " * 5_000, r"\(" * 8_000, r"\[ x " * 5_000, "{" * 20_000, "valid or " * 3_000,
        "\\" * 20_000, "<" * 20_000, "(" * 20_000, "((a)" * 5_000, "a, " * 8_000, r"\text{" * 3_000, "twenty-" * 5_000,
        "1 " * 10_000, "= 3 " * 5_000, "neither " * 3_000, "no because " * 2_000, "a -> " * 5_000, ") then " * 4_000,
    ],
    ids=lambda text: text[:8],
)  # fmt: skip
def test_hostile_texts_do_not_stall(text: str) -> None:
    started = time.process_time()
    for kind in ("number", "option", "yesno", "truth", "validity", "list", "brackets", "latex", "text"):
        parse_answer(kind, text, ("roof", "room"), BRACKETS if kind == "brackets" else "Sort: List: a b")
    assert time.process_time() - started < 5
