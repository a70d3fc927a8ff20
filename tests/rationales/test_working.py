"""The calculation behind a number, read from the step that does it. Steps of several equations: where they are parted, and that
nothing is lost. What a number counts, read from the step that states it.
"""

from __future__ import annotations

import re
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from cirf.lm.decoding.calculator import closing
from cirf.rationales.results import with_unit, working
from cirf.rationales.segmentation import cut, split_equations
from cirf.recipe import schema
from cirf.records import Problem, Rationale

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
    ("0.25", "P(HH) = 1/2 * 1/2 = 1/4.", "1/2*1/2="),  # 1/4 is the value itself
    ("125000", "₹1,00,000 + ₹25,000 = ₹1,25,000", "100000+25000="),
    ("32", "That makes 2^5 = 32 paths.", "2^5="),
    ("24", "So 3 \u00d7 2\u00b3 = 24", "3*2^3="),
    ("9", "(-3)**2 = 9", "(-3)^2="),
    ("13", "c = \u221a(5\u00b2 + 12\u00b2) = 13", "\u221a(5^2+12^2)="),
    ("1.41", "\u221a2 = 1.41", "\u221a2="),
    ("4", "Since 2^8 = 2^2x, x = 4.", ""),
    ("9", "Its area is 9 m^2.", ""),
    ("14", "0.5x - 10 = 14.50", ""),
    ("15", "The sum is -3 + 8 + 10 = 15.", "-3+8+10="),
    ("-175", "Now it is -$250 + $75 = -$175.", "-250+75="),
    ("12", "The gain is $92 -$80 = $12.", "92-80="),
    ("8", "Then -1 + 9 = 8.", "-1+9="),
    ("8", "3 - 4 = -1, and -1 + 9 = 8.", "-1+9="),
    ("-12", "So 3 times -4 = -12.", "3*-4="),
    ("9", "12 pens -3 pens = 9", "12-3="),  # here it is a sign
    ("134.5 million", "It is $1,234.5 million - $1,100.0 million = $134.5 million.", "1234.5-1100.0="),
    ("100", "35° + 65° = 100°", "35+65="),
    ("14", "It is 14 miles (10 miles skated + 4 miles walked).", "(10+4)="),
    ("4", "Points = (16 pounds)/4 = 4 points", "(16)/4="),
    ("34", "Perimeter = 2(12 + 5) = 34 cm.", "2*(12+5)="),
    ("18", "9 (choices for the first) x 2 (choices for the second) = 18", "9*2="),
    ("15", "P = 5 W/m^2 * 3 m^2 = 15 W", "5*3="),  # powers of units are none of the calculation
    ("2*10^3", "It takes 2 * 10^3 s.", ""),
    ("", "There are 3 pens.", ""),
    ("24", "96 : 4 = 24 Äpfel", "96/4="),
    ("3", "The ratio 2 : 3 is 3.", ""),
]


@each_row(("number", "step", "expected"), STEPS)
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


def test_a_share_has_its_working_and_a_quotient_is_none_of_itself() -> None:
    assert working("60%", "The share of boys is 36/60 * 100% = 60%.") == "36/60*100%="
    assert working("54/9", "The number of bags is 54/9.") == ""


def test_brackets_within_thousands_of_brackets_are_left() -> None:
    for depth, expected in ((20, True), (3000, False)):
        step = f"{'(' * depth}1 + 1{')' * depth} = 2"
        assert bool(working("2", step)) is expected


def test_what_is_found_is_worked_out_right() -> None:
    chance, found = Random(0), []
    noise = [*map(str, range(13)), "+", " - ", "*", "/", "(", ")", ".5", "%", " = ", "$", " of ", " pens ", ", so "]
    for _ in range(1000):
        inner = f"{chance.randint(1, 12)} {chance.choice('+-*')} {chance.randint(1, 12)}"
        before, behind = ("".join(chance.choices(noise, k=chance.randint(0, 4))) for _ in range(2))
        made = working(str(eval(inner)), f"{before}{inner}{behind}")
        found += [(eval(inner), made)] if made else []
    assert len(found) > 100
    for number, made in found:
        assert re.fullmatch(r"[\d.+*/()%-]+=", made), made
        expression = re.sub(r"\b0+(?=\d)", "", re.sub(r"([\d.]+)%", r"(\1/100)", made[:-1]))
        assert eval(expression) == pytest.approx(number, abs=1e-6)


# The calculation that a text closes with: read where there is no doubt, and left where there is

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


@each_row("text", READ)
def test_what_is_plain_is_read(text: str) -> None:
    assert closing(text)[:1] == [Fraction(READ[text])]


@each_row("text", LEFT)
def test_what_may_be_something_else_is_left(text: str) -> None:
    assert closing(text) == []


@each_row(
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


SPLIT = [
    (
        "Shirts cost 2 * 8 = $16. Bags cost 2 * 10 = $20. Nothing else is bought.",
        ["Shirts cost 2 * 8 = $16.", "Bags cost 2 * 10 = $20. Nothing else is bought."],
    ),
    ("Look at the shirts first. They cost 2 * 8 = $16.", ["Look at the shirts first. They cost 2 * 8 = $16."]),
    ("She has 3 + 4 = 7. So the total = 7.", ["She has 3 + 4 = 7. So the total = 7."]),  # said again
    ("Pens: 3 + 4 = 7 and pads: 5 + 6 = 11.", ["Pens: 3 + 4 = 7 and pads: 5 + 6 = 11."]),  # one sentence
    ("Add up:\n3 + 4 = 7\nThen take 2 off:\n7 - 2 = 5", ["Add up: 3 + 4 = 7", "Then take 2 off: 7 - 2 = 5"]),
    ("It is 3.5 + 1 = 4.5 in. A box holds 2 of them.", ["It is 3.5 + 1 = 4.5 in. A box holds 2 of them."]),
    ("", [""]),
]


@each_row(("step", "expected"), SPLIT)
def test_a_step_is_cut_after_each_number_that_it_works_out(step: str, expected: list[str]) -> None:
    assert [plain for plain, _ in split_equations([(step, step)])] == expected


def test_what_introduces_the_next_equation_goes_with_it() -> None:
    step = "He saves half of it: 80 / 2 = 40. The other half is spent on three toys. Each costs 40 / 8 = 5."
    found = [plain for plain, _ in split_equations([(step, step)])]
    assert found == ["He saves half of it: 80 / 2 = 40.", "The other half is spent on three toys. Each costs 40 / 8 = 5."]


def test_calculator_notes_count_and_stay_with_the_annotated_step() -> None:
    noted = "He has 2*8=<<2*8=16>>16 pens. She has 5*2=<<5*2=10>>10 pens."
    assert split_equations([("any", noted)]) == [
        ("He has 2*8=16 pens.", "He has 2*8=<<2*8=16>>16 pens."),
        ("She has 5*2=10 pens.", "She has 5*2=<<5*2=10>>10 pens."),
    ]


@given(st.lists(st.lists(st.tuples(st.integers(2, 99), st.integers(2, 99)), min_size=1, max_size=3), min_size=1, max_size=4))
def test_no_word_is_lost_and_order_is_kept(sums: list[list[tuple[int, int]]]) -> None:
    steps = [" ".join(f"We add {a} + {b} = {a + b} pens." for a, b in step) for step in sums]
    found = split_equations([(step, step) for step in steps])
    assert " ".join(plain for plain, _ in found) == " ".join(steps)
    assert len(found) == sum(len({a + b for a, b in step}) for step in sums)


def test_the_key_of_the_recipe_decides() -> None:
    problem = Problem("p", "t", "How many?", "5")
    rationale = Rationale("p", 0, "Step 1: 3 + 4 = 7. Then 7 - 3 = 4.\nStep 2: 4 + 1 = 5.", "dataset", True)
    for equations, count in (("keep", 2), ("split", 3)):
        made = cut([rationale], schema.Segments(equations=equations), [problem])  # type: ignore[arg-type]
        assert len(made.steps[0].segments) == len(made.annotated[0].segments) == count
    with pytest.raises(Exception, match="too many steps"):
        cut([rationale], schema.Segments(equations="split", maximum=2), [problem])


STEPS_UNITS = [
    ("24", "Natalia sold 48/2 = <<48/2=24>>24 clips in May.", "24 clips"),
    ("160", "She has 617 - 457 = 160 more crayons than pens.", "160 more crayons"),
    ("40", "It costs 5 * 8 = $40.", "$40"),
    ("40", "So 40 are left, out of 50.", "40"),
    ("7", "Of the 7 boys 3 go: 7 - 3 = 4, and 7 stay in all.", "7 stay"),
    ("7", "There are 7 in the box.", "7"),
    ("5", "They walk 5 miles per hour.", "5 miles"),
    ("24", "So the speed is 48 / 2 = 24 km/h.", "24 km/h"),
    ("8", "It gains 2 * 4 = 8 m/s² in all.", "8 m/s²"),
    ("1200", "That makes 1,200 pages.", "1200 pages"),
    ("0.5", "Each gets 1/2 of it, 1/2 cup.", "0.5 cup"),
    ("9", "The step says something else.", "9"),
    ("", "There are 3 pens.", ""),
]


@each_row(("number", "step", "expected"), STEPS_UNITS)
def test_units(number: str, step: str, expected: str) -> None:
    assert with_unit(number, step) == expected


@given(st.integers(0, 10**6), st.text(max_size=60))
def test_the_number_itself_is_never_changed(number: int, step: str) -> None:
    found = with_unit(str(number), f"{step} {number} {step}")
    assert found.lstrip("$").split(" ")[0] == str(number) and len(found.split(" ")) <= 3


def test_a_negative_number_may_come_first() -> None:
    assert working("1", "Adding 4: -3 + 4 = 1.") == "-3+4="
    assert working("-6", "So 3 * -2 = -6.") == "3*-2="
    assert working("9", "12 -3 = 9") == "12-3="
    assert working("43", "共31＋12＝43个") == "31+12="


def test_a_rate_is_one_unit() -> None:
    assert working("310", "Dose = 10 mg/kg * 31 kg = 310 mg.") == "10*31="
    assert working("21", "F = 7 kg · 3 m/s² = 21 N") == "7*3="
