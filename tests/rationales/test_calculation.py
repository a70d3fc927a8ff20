"""The calculation that a text closes with: read where there is no doubt, and left where there is."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.rationales.calculation import closing

READ = {
    "16*7": 112,
    "so 3 boxes * 12 pens per box": 36,
    "24 people / 4 people per boat": 6,
    "She has 5 apples + 3 apples": 8,
    "each day 5 * 3": 15,
    "(2+3)*4": 20,
    "(5 + 4) apples * 2": 18,
    "23786 - (8417 + 9092)": 6277,
    "1,200 * 2": 2400,
    "20% of 50": 10,
    "20% of 50 + 3": 13,
    "5 inches + 6 inches": 11,
    "2^3 = 8, so 8 + 1": 9,
    "1/2 of 8": 4,
    "(3/4) * 84": 63,
    "40 ÷ (1/4)": 160,
    "100 ÷ 5 * 2": 40,
    "so she pays $4 * 3": 12,
    "$5.00 * 3": 15,
    "2 × $20": 40,
    "16 clips x 2": 32,
    "3 times 4": 12,
    "20 plus 5": 25,
    "12 − 5": 7,
    "7-7": 0,
    "3-8": -5,
    "1. 5+3": 8,
    "Total: 5 + 3 apples": 8,
    r"\text{Total} = 5 \times 8": 40,
    r"\frac{1}{2} \times 8": 4,
    "2*3 = 6, and 6+2": 8,
    "2+10/5 = 2+2": 4,
}

LEFT = [
    "",
    "5",
    "2*3-",
    "4/0",
    "5*3 apples are x",  # x is named, not multiplied with
    "x - 5*3",
    "-5+8",
    "- 5 + 3",
    "2x + 3",
    "2 x + 3",
    "2x3",
    "(2 + 3",
    "3 + 4)",
    "7 // 2",
    "3 ++ 4",
    "a[3] + 4",
    # brackets behind numbers, functions, roots, powers
    "2(3+4)",
    "3(24) + 6",
    "f(3+4)",
    "P = 2(225 + 125)",
    "sqrt(16) + 2",
    r"\sqrt{16} + 2",
    "√9 + 16",
    "log 5 + 3",
    "2^3 + 4",
    "2^(3+4)",
    "2**3 + 4",
    "12 squared + 3",
    "4² + 3",
    "5! + 3",
    r"\frac{x}{3} + 5",
    r"\frac{7 \times 6}{3 \times 2}",
    # words that change a number, and labels
    "half of 8",
    "3 of 4",
    "twice 5 + 3",
    "one third of 24 / 2",
    "10 mod 3 + 1",
    "2 million + 500,000",
    "3 dozen + 4",
    "2 hours + 30 minutes",
    "5 km + 500 meters",
    "Step 2 - 5+3",
    # percentages that nothing is taken of, what a division leaves, mixed numbers
    "100% - 25%",
    "(5/20) × 100%",
    "100 - 20%",
    "17 % 5 + 1",
    "6/8",
    "30/8",
    "1/2 + 1/4",
    "1 1/2 * 8",
    "1½ * 8",
    "20% * 2",
    "20% off 50 * 2",
    "10% tax on $50 * 3",
    "2 and 1/2 * 8",
    "6 ÷ 1/2",
    r"6 \div \frac{1}{2}",
    "8 / ½",
    "16 ÷ 4 ÷ 1/2",
    "60/5 groups of 5",
    # signs, numbers and words further ahead
    "30 + another 4 * 5",
    "3 * the 5 + 2",
    "20% of the 50 * 2",
    "5 times the sum 3 + 4",
    "5 feet 6 inches + 4 inches",
    "so 5 and 16+2",
    "half the 6 * 4",
    "negative 5 + 3",
    "10 over 2 + 3",
    "3 y + 5 * 2",
    # units
    "25 cents * 8",
    "$2 + 50 cents",
    "4 quarters + 2 dimes",
    "2 hrs + 30 mins",
    "5 ft + 3 inches",
    "3 tens + 4 ones",
    "2 dozens + 3",
    "10 am + 5 hours",
    "4 factorial * 2",
    # code and other notation
    "y ** 2 + 5",
    "16 >> 2 + 1",
    "12 : 3 * 2",
    "1, 250 * 4",
    "3.14159265 * 2",
    # numbers of other kinds
    "10:30 + 2",
    "1e3 + 5",
    "0x10 + 5",
    "1 000 + 5",
    "1.200,50 + 3",
    "1,00 + 5",
    "2020-10-05",
    "In 2020 5*3",
    # as long or deep as nobody writes
    "(" * 400 + "5+3" + ")" * 400,
    "1+" * 140 + "1",
    "(" * 40 + "5+3" + ")" * 40,
    "1," * 200 + "+5",
    "9" * 200 + "+1",
]


@pytest.mark.parametrize("text", READ)
def test_what_is_plain_is_read(text: str) -> None:
    assert closing(text)[:1] == [Fraction(READ[text])]


@pytest.mark.parametrize("text", LEFT)
def test_what_may_be_something_else_is_left(text: str) -> None:
    assert closing(text) == []


@pytest.mark.parametrize(
    ("text", "anew"),
    [
        ("16*7", []),
        ("4 * 125 - 2", [4, 500]),
        ("2+10/5", [2]),  # 2+10 is not worked out first
        ("(2+3)*4-1", [5, 20]),
        ("30 + 2 * 20", [30]),
        ("60% of 30", [60, Fraction(3, 5)]),
    ],
)
def test_numbers_with_which_it_may_be_written_anew(text: str, anew: list[Fraction]) -> None:
    assert closing(text)[1:] == anew


@given(
    st.lists(st.tuples(st.integers(0, 999), st.sampled_from("+-*")), min_size=2, max_size=6),
    st.sampled_from(["", " pens", " bags of rice"[:5]]),
    st.sampled_from(["", "$"]),
    st.sampled_from(["", "So there are ", "That is: ", "= ", "3. "]),
)
def test_sums_and_products_of_any_numbers(terms: list[tuple[int, str]], noun: str, money: str, before: str) -> None:
    written = " ".join(f"{money}{number}{noun} {sign}" for number, sign in terms)[:-2]
    assert closing(before + written)[0] == eval("".join(f"{number}{sign}" for number, sign in terms)[:-1])


@given(st.text("0123456789+-*/().,:%=x$ ofab\n\\{}^√½¼dozen", max_size=60))
def test_whatever_is_written_nothing_is_raised(text: str) -> None:
    assert all(isinstance(value, Fraction) for value in closing(text))
