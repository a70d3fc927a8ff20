"""Whom or what a step is about, in the words of its question."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.text.subjects import subjects, with_next_subject

COIN = "A coin is heads up. mundt flips the coin. o'neil does not flip the coin. Is the coin still heads up?"
AGES = "Freyja is 10 years old, and Eli is 9. Sarah is twice as old as Eli. How old are Sarah and Freyja in total?"

FOUND = [
    (COIN, ["Initially, the coin is heads up.", "Mundt flips it: tails.", "O'Neil does not."], ("", "mundt", "o'neil")),
    (COIN, ["The coin is heads up.", "Then Mundt's turn: tails.", "Action: O'Neil waits."], ("", "mundt", "o'neil")),
    (COIN, ["Action by Mundt: Mundt flips it.", "Action by O'Neil: O'Neil waits."], ("mundt", "o'neil")),
    (AGES, ["Sarah is 2 * 9 = 18.", "So Freyja is 10.", "In total 18 + 10 = 28."], ("Sarah", "Freyja", "")),
    # all of one, or none: nothing tells how far a list has come
    (AGES, ["Sarah is 2 * 9 = 18.", "Sarah is 18.", "In total 28."], ("", "", "")),
    (AGES, ["2 * 9 = 18.", "18 + 10 = 28."], ("", "")),
    # common words and numbers name nothing, and what is no word of the question is nobody of it
    (AGES, ["How old is Sarah?", "Is Eli 9?", "10 + 18 = 28."], ("", "", "")),
    (AGES, ["Anna is 9.", "Sar is 18.", "Eli is 9.", "Sarah is 18."], ("", "", "Eli", "Sarah")),
    ("Will has 5 pens and Mark 3.", ["Will has 5.", "And then Mark has 3."], ("Will", "Mark")),
    ("O’Neil has 5 and Jose\u0301 3.", ["O'Neil has 5.", "Jos\u00e9 has 3."], ("O’Neil", "Jos\u00e9")),
    ("Of A, B and C which is it?", ["A. It is red.", "B. It is blue.", "C. It is green."], ("", "", "")),
    (AGES, ["", "Sarah is 18.", "***", "Eli is 9."], ("", "Sarah", "", "Eli")),
]


@pytest.mark.parametrize(("question", "steps", "expected"), FOUND)
def test_a_step_is_about_the_word_it_opens_with(question: str, steps: list[str], expected: tuple[str, ...]) -> None:
    assert subjects(steps, question) == expected


WORDS = st.lists(st.sampled_from(["Ann", "bob", "Bob's", "the", "So", "12", "has", "\n", ":", "Ünal", "李", ""]), max_size=6)


@given(st.lists(WORDS.map(" ".join), max_size=5), WORDS.map(" ".join))
def test_a_subject_is_a_word_of_the_question(steps: list[str], question: str) -> None:
    made = subjects(steps, question)
    assert len(made) == len(steps)
    assert all(re.search(rf"\b{re.escape(subject)}\b", question) for subject in made if subject)
    assert len({subject for subject in made if subject}) != 1


@given(st.lists(st.tuples(st.text(max_size=4), st.sampled_from(["", "ann", "bob"])), max_size=5))
def test_it_stands_before_the_step_behind_the_result_before(steps: list[tuple[str, str]]) -> None:
    results, summary = [result for result, _ in steps], [subject for _, subject in steps]
    made = with_next_subject(results, summary)
    assert len(made) == len(results)
    for place, (new, old) in enumerate(zip(made, results, strict=True)):
        after = summary[place + 1] if place + 1 < len(summary) else ""
        assert new == (f"{old} {after}" if after else old)
