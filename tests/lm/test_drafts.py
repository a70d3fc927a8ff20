"""What is guessed of an answer: learnt tokens, numbers from where they came before, and sums worked out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf.lm.drafts import MOST, Drafts
from cirf.lm.prompt import encode, end_token, prompt_text


@pytest.fixture
def functional(tokenizer: Any) -> Any:
    """With delimiters and four functional tokens."""
    tokenizer.add_tokens(["<cirf>", "</cirf>", *(f"<cirf_{code:03d}>" for code in range(4))])
    return tokenizer


def _learnt(tokenizer: Any, rows: list[tuple[str, str]]) -> Drafts:
    drafts = Drafts(tokenizer)
    for question, answer in rows:
        prompt = encode(tokenizer, prompt_text(tokenizer, question))
        drafts.learn(prompt, [*encode(tokenizer, answer), end_token(tokenizer)])
    return drafts


def _guess(drafts: Drafts, tokenizer: Any, question: str, written: str, count: int) -> str:
    guessed = drafts.guess(encode(tokenizer, prompt_text(tokenizer, question)), encode(tokenizer, written), count)
    return str(tokenizer.decode(guessed))


ROWS = [
    ("Ann has 12 pens and buys 5.", "<cirf><cirf_001>12+5=17</cirf>17"),
    ("Bob has 30 nuts and finds 8.", "<cirf><cirf_001>30+8=38</cirf>38"),
    ("Eve has 41 cups and gets 9.", "<cirf><cirf_001>41+9=50</cirf>50"),
]


def test_an_answer_of_other_numbers_is_guessed_whole(functional: Any) -> None:
    drafts = _learnt(functional, ROWS)
    whole = "<cirf><cirf_001>26+7=33</cirf>33<|im_end|>"
    assert _guess(drafts, functional, "Zoe has 26 eggs and buys 7.", "", 99) == whole
    assert _guess(drafts, functional, "Zoe has 1,026 eggs and buys 7.", "<cirf>", 12) == "<cirf_001>1026+7=1033"
    for end in range(len(encode(functional, whole))):  # wherever it goes on from
        ids = encode(functional, whole)
        rest = drafts.guess(encode(functional, prompt_text(functional, "Zoe has 26 eggs and buys 7.")), ids[:end], 99)
        assert rest == [*ids[end:]]


def test_sums_need_no_learning(functional: Any) -> None:
    drafts = Drafts(functional)
    assert _guess(drafts, functional, "Hi?", "<cirf><cirf_002>12*12=", 3) == "144"
    assert _guess(drafts, functional, "Hi?", "<cirf><cirf_002>12*12=1", 2) == "44"
    assert _guess(drafts, functional, "Hi?", "<cirf><cirf_002>7/2=", 3) == "3.5"
    for written in ("<cirf><cirf_002>7/0=", "<cirf><cirf_002>1/3=", "<cirf><cirf_002>2-9=", "<cirf>=", "<cirf_002>"):
        assert _guess(drafts, functional, "Hi?", written, 3) == ""


def test_a_number_that_is_being_written_is_finished(functional: Any) -> None:
    drafts = Drafts(functional)
    assert _guess(drafts, functional, "There are 250 and 34 in 2 rooms.", "<cirf><cirf_001>3", 1) == "4"
    assert _guess(drafts, functional, "There are 250 and 34 in 2 rooms.", "<cirf><cirf_001>25", 1) == "0"
    assert _guess(drafts, functional, "There are 250 and 34 in 2 rooms.", "<cirf><cirf_001>9", 1) == ""


def test_numbers_of_the_system_message_are_not_the_questions(functional: Any) -> None:
    prompt = "<|im_start|>system\nIt is 1999.<|im_end|>\n<|im_start|>user\nHe has 45.<|im_end|>\n<|im_start|>assistant\n"
    drafts = _learnt(functional, ROWS)
    assert functional.decode(drafts.guess(encode(functional, prompt), encode(functional, "<cirf><cirf_001>"), 2)) == "45"


@given(st.lists(st.integers(0, 420), max_size=40), st.lists(st.integers(0, 420), max_size=40), st.integers(0, 8))
@settings(max_examples=150, deadline=None)
def test_any_tokens_may_be_given(tiny: Any, prompt: list[int], written: list[int], count: int) -> None:
    drafts = Drafts(tiny.build_tokenizer())
    drafts.learn(prompt, written)
    guessed = drafts.guess(prompt, written, count)
    assert len(guessed) <= count and all(token >= 0 for token in guessed)
    assert drafts.guess(prompt, written, count) == guessed


def test_it_stops_learning(functional: Any) -> None:
    drafts = Drafts(functional)
    for start in range(0, 3 * MOST, 500):
        drafts.learn([], [(start + place * place) % 400 for place in range(500)])
    held = len(drafts._after)
    drafts.learn([], list(range(300, 0, -1)))
    assert len(drafts._after) == held
