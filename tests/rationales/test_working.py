"""The calculation behind a number, read from the step that does it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.rationales.working import working

STEPS = [
    ("6", "She has 63 games - 57 games = 6 games more.", "63-57="),
    ("24", "Natalia sold 48/2 = <<48/2=24>>24 clips in May.", "48/2="),
    ("40", r"\text{Total} = 5 \times 8 = \$40", "5*8="),
    ("54", "So he has 3 * 18 pens.", "3*18="),
    ("14", "(3 + 4) x 2 apples = 14 apples", "(3+4)*2="),
    ("10", "20% of 50 is 10.", "20%*50="),
    ("9", "That is 45 nuts divided by 5 boys, so 9 each.", "45/5="),
    ("0.33", "Each gets 1 / 3 = 0.33 of it.", "1/3="),
    ("1200", "In all (1,000 + 200 = 1,200) pages.", "1000+200="),
    ("8", "First 2 + 3 = 5, then 5 + 3 = 8, not 9 - 1.", "9-1="),  # the last one that comes to it
    ("7", "7 bags of rice + 2 bags of flour = 9 bags", ""),
    ("9", "7 bags of rice + 2 bags of flour = 9 bags", "7+2="),
    ("5", "There are 5 pens in a 3-digit box, room 4/0.", ""),
    ("5", "It comes to 5.", ""),
    ("5:30", "At 5:00 + 30 = 5:30.", ""),
    ("14.5", "0.5x - 10 = 14.50", "0.5x-10="),  # by value, not by how it is written
    ("14", "0.5x - 10 = 14.50", ""),
    ("", "There are 3 pens.", ""),
]


@pytest.mark.parametrize(("number", "step", "expected"), STEPS)
def test_working(number: str, step: str, expected: str) -> None:
    assert working(number, step) == expected


@given(
    st.lists(st.tuples(st.integers(1, 999), st.sampled_from("+-*")), min_size=2, max_size=5),
    st.sampled_from(["", " pens", " bags of rice"]),
    st.sampled_from(["", "$"]),
)
def test_a_sum_of_any_numbers_is_found_whatever_they_count(terms: list[tuple[int, str]], noun: str, money: str) -> None:
    written = " ".join(f"{money}{number}{noun} {sign}" for number, sign in terms)[:-2]
    bare = "".join(f"{number}{sign}" for number, sign in terms)[:-1]
    assert working(str(eval(bare)), f"So there are {written} = {eval(bare)} left.") == f"{bare}="


@given(st.integers(-50, 50), st.text("0123456789+-*/().%= x$ofminus", max_size=40))
def test_what_is_found_is_worked_out_right(number: int, step: str) -> None:
    found = working(str(number), step)
    if found:
        assert re.fullmatch(r"[\d.+*/()%-]+=", found)
        expression = re.sub(r"\b0+(?=\d)", "", re.sub(r"([\d.]+)%", r"(\1/100)", found[:-1]))
        assert eval(expression) == pytest.approx(number, abs=1e-6)
