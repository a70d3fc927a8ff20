"""What is embedded of a step: what is about the question goes where the recipe says so, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf import recipe
from cirf.codebook.wording import WORDING, wording, wordings

CHOICES = ("bank", "department store", "New York")


def _section(**keys: str) -> recipe.Embeddings:
    return recipe.Embeddings.model_validate(keys)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("48/2 = 24 clips", "N/N = N clips"),
        ("$1,250.75 is 5% of 25,015.", "N is N of N."),
        ("€3 and £4, or 7.", "N and N, or N."),
        ("no number", "no number"),
    ],
)
def test_a_number_is_masked_whole(text: str, read: str) -> None:
    section = _section(numbers="mask")
    assert wording(text, section) == read == wording(read, section)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("A. Bank: a bank is guarded.", "it: a it is guarded."),
        ("(B) department store - too open", "it - too open"),
        ("Option C is far away", "Option it is far away"),
        ("Therefore, the answer is B. department store.", "Therefore, the answer is it."),
        ("So C. New York, the city", "So it, the city"),
        ("A bankrupt man needs vitamin D", "A bankrupt man needs vitamin D"),
        ("A big bank", "A big it"),
        ("B's worth", "B's worth"),
        ("Option A is the answer.", "Option A is the answer."),
    ],
)
def test_a_choice_is_masked_by_letter_and_by_text(text: str, read: str) -> None:
    section = _section(choices="mask")
    assert wording(text, section, CHOICES) == read
    assert wording(text, section) == text, "a question without choices has none to mask"


def test_choices_may_be_empty_or_hold_signs() -> None:
    section = _section(choices="mask")
    assert wording("B. 3+4 (or so)", section, ("", "3+4 (or so)")) == "it"
    assert wording("a word", section, ("", "")) == "a word"
    assert wording("The bank is open", section, ("bank ",)) == "The it is open"
    assert wording("12.5 km are 12, not 5", section, ("12", "5")) == "12.5 km are it, not it"
    assert wording("Ann goes to Z.", section, [f"place {n}" for n in range(40)]) == "Ann goes to it"


CLOSED = "Zoe flips the coin: tails up."


@pytest.mark.parametrize(
    "closing",
    [
        "At the end of these steps, the coin is tails up.",
        "After considering all, it is tails up.\nFinal answer: no.",
        "Therefore, the answer is no.",
        "Since neither of them flipped it, heads up.",
        "Answer: yes",
    ],
)
def test_the_lines_that_close_a_rationale_are_not_read(closing: str) -> None:
    section = _section(closing="drop")
    steps = [f"Ann waits.\n{closing}", f"{CLOSED}\n{closing}"]
    assert wordings(steps, section) == [steps[0], CLOSED], "only a last step closes"
    assert wordings([closing], section) == [closing.split("\nFinal")[0]], "a step that is nothing else stays"


def test_a_last_step_that_goes_on_is_read_whole() -> None:
    steps = ["Flip.\nCurrent state: tails up.\nSince Bo waits, it stays.\nSo it costs $56."]
    assert wordings(steps, _section(closing="drop")) == steps


@given(st.lists(st.text(max_size=40), min_size=1, max_size=4), st.lists(st.text(max_size=8), max_size=4))
def test_kept_texts_stand_as_they_are_and_changed_ones_hold_something_where_they_did(
    texts: list[str], choices: list[str]
) -> None:
    assert wordings(texts, _section(), choices) == texts
    every: dict[str, Any] = {key: "drop" if key == "closing" else "mask" for key in WORDING}
    read = wordings(texts, _section(**every), choices)
    assert [bool(text.strip()) for text in read] == [bool(text.strip()) for text in texts]
