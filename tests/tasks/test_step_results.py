"""What a step produced: tables of steps in many styles, and what holds for any step."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from cirf.rationales.results import working
from cirf.records import Problem
from cirf.tasks import get
from cirf.tasks.steps import (
    calculated,
    calculated_or_stated,
    coin_state,
    concluded,
    option_discussed,
    produced,
    strip_annotations,
)

SUM = Problem(id="p", task="t", question="How many?", answer="13")
COIN = Problem(id="p", task="t", question="Is the coin still heads up?", answer="no")
PICK = Problem(
    id="p", task="t", question="Where?", answer="C", choices=("roof", "room", "floor", "apartment", "neighbor's house")
)

ARITHMETIC = [
    ("Tom had 48/2 = <<48/2=24>>24 clips in May.", "24"),
    ("It costs 12/60 = $<<12/60=0.2>>0.2 a minute.", "0.2"),
    ("First 2+3 = <<2+3=5>>5, then 5*4 = <<5*4=20>>20.", "20"),
    ("Step 1: She eats three, so 16 - 3 = 13 apples are left.", "13"),
    ("Step 2: Subtracting 7 from 12 leaves 12 - 7 = 5.", "5"),
    ("The cost is 5 × 8 = $40.", "40"),
    (r"\[ \text{Total} = 5 \times 8 = \$40 \]", "40"),
    (r"\text{Bags} = \frac{35}{5} = 7", "7"),
    (r"The share is 1 - \frac{1}{4} = \frac{3}{4}", "0.75"),
    ("a = b = 3 + 4 = 7", "7"),
    ("3 x 400 = 1,200 pages", "1200"),
    ("30 / 50 = 0.6 = 60%", "60%"),
    ("The temperature is 5 - 8 = -3 degrees", "-3"),
    ("2 * 3.50 = 7.00 dollars", "7"),
    ("The rest is 32 - 28 = 4 million dollars.", "4 million"),
    ("From 6:00 + 3 hours = 9:00 on", "9:00"),
    ("Then 2x + x = 3x", "3x"),
    ("11 * 31 is 341.", "341"),
    ("4/10 = 0.4, which is 40%.", "40%"),
    ("9/21 * 100 = 42.86, which rounds up to 43", "43"),
    ("So 4 more birds came.", "4"),
    ("Thus, the final answer is **18 dollars**.", "18"),
    ("Taking 7 off leaves 5.", "5"),
    ("#### 72", "72"),
    ("Karen has 4 fewer than Kim, so she has 12 - 4. Therefore, Karen has 8 pens.", "8"),
    ("The van leaves at 5. It holds 3 boxes and 4 bags. So there are 7 things in it.", "7"),
    ("He eats with 3 friends, so he buys 4 meals each time.", "4"),
    ("Each of these 6 players got one card, so the number of cards is 6.", "6"),
    # nothing was produced yet
    ("In 2006 it was 2/3 of that, so it was (2/3) * (x/2).", ""),
    ("Daytona has 9, so that Cape May has 2D - 8.", ""),
    ("He has 7 of them, so we need 3 times as many.", ""),
    ("He types 90 a minute, so time needed = total words / rate = 4500 / 90.", ""),
    ("They share it equally, so each pays half of 40 dollars.", ""),
    ("Flo wrote x of them, so Zig wrote 4x books.", ""),
    ("So she has some. She eats 4 of her 12 pies.", ""),
    ("First we need the price of one egg.", ""),
    ("Price = rate × hours", ""),
    (r"\text{Bags} = \frac{35}{5}", ""),
    ("The total is found as 6 × 3", ""),
    ("Revenue = 6 × 3", ""),
    ("Kate has 2 red and 4 blue balloons.", ""),
    ("So she earns 28 + 939 dollars every week.", ""),
    ("T = 2(3K) + 20 = 6K + 20", ""),
    ("", ""),
]


@each_row(("segment", "expected"), ARITHMETIC)
def test_arithmetic(segment: str, expected: str) -> None:
    assert calculated(segment, SUM, ()) == expected


@each_row(
    ("segment", "expected"),
    [
        ("5 * 2,5 = 12,5 Euro", ""), ("2 * 3 = 6, and 6 * 2,5 = 15,5", ""), ("That leaves 12,5.", ""), ("So it is 1.996,25.", ""),
        ("5 * 2,5 = <<5*2,5=12,5>>12,5", ""), ("3 * 450 = 1 350 EUR", "1350"), ("3 * 450 = 1'350 francs", "1350"),
        ("3 * 45000 = 1,35,000 rupees", "135000"), ("3 * 450000 = 1.350.000 Euro", "1350000"), ("3 * 450 = 1\u202f350", "1350"),
        ("1 / 3 = 0,333...", ""), ("1 / 8 = 0,125 kg", ""),
        ("3 * 450 = 1,350.5", "1350.5"), ("E = 3.2E5 J", "320000"), ("8 has 1,2,4,8, so 1+2+4+8 = 15", "15"),
    ],
)  # fmt: skip
def test_a_number_is_read_whole_or_not_at_all(segment: str, expected: str) -> None:
    assert calculated(segment, SUM, ()) == produced(segment, SUM, ()) == expected


@given(st.integers(2, 9), st.integers(1000, 9999), st.sampled_from(["'", "\u2009", "_", ","]))
def test_the_working_of_grouped_numbers_is_kept(factor: int, value: int, separator: str) -> None:
    step = f"Then {factor} * {value:,} = {factor * value:,} in all".replace(",", separator)
    assert working(calculated(step, SUM, ()), step) == f"{factor}*{value}="


def test_a_conclusion_says_the_last_result_again() -> None:
    text = "Conclusion:\nRobin has a total of 59 cakes after selling 22 and making 39 more."
    assert calculated(text, SUM, ("20", "59")) == "59"
    assert calculated("Final answer: 2 boxes hold the remaining 16 games.", SUM, ("16", "2")) == "2"


def test_a_term_of_a_sum_is_no_result() -> None:
    assert calculated("So the team has 25 + players.", SUM, ("25",)) == ""
    assert calculated("So they bake 12 * 25 rolls a day.", SUM, ("12", "25")) == ""
    for dot in ("·", " · ", "⋅", " • "):
        assert calculated(f"60 = 12{dot}5", SUM, ()) == calculated(f"It is 12{dot}5 cm", SUM, ()) == ""
        assert calculated(f"12{dot}5 = 60", SUM, ()) == "60"


STATED = [
    ("Lena started with 17 marbles.", "17"),
    ("She gave 9 marbles away, so 17 - 9 = 8 are left.", "8"),
    ("So he has 21 * 30 marbles.", "630"),
    ("So the number of boys is 905 - 1,000.", "-95"),
    ("Each row holds 45/5", "9"),
    ("They share 7 / 3 cakes.", "7/3"),
    ("He has 6 red and 4 blue marbles.", ""),
    ("So that is 2 + 3 + 4 marbles.", ""),
    ("The rest are blue.", ""),
]


@each_row(("segment", "expected"), STATED)
def test_amounts_of_a_problem_of_one_operation(segment: str, expected: str) -> None:
    assert calculated_or_stated(segment, SUM, ()) == expected
    assert get("svamp").result(segment, SUM, ()) == expected


COINS = [
    ("The coin starts heads up.", "heads"),
    ("Initial State: The coin is heads up.", "heads"),
    ("2. **Rikko flips the coin**: it changes from heads up to tails up.", "tails"),
    ("Flipping changes its state from tails up back to heads up.", "heads"),
    ("Since the coin was heads up, it is now tails up.", "tails"),
    ("It shows tails now; it was heads before.", "tails"),
    ("A flip puts tails on top instead of heads.", "tails"),
    ("At the end the coin is tails up.\nThus the answer to whether the coin is still heads up is no.", "tails"),
    ("The coin is not heads up.", "tails"),
    ("The coin is no longer tails up.", "heads"),
    ("Is the coin still heads up? It is tails up.", "tails"),
    ("Let's track the coin.", ""),
    ("Anna turns her head.", ""),
]


@each_row(("segment", "expected"), COINS)
def test_coin(segment: str, expected: str) -> None:
    assert coin_state(segment, COIN, ()) == expected


def test_coin_that_stays_as_it_was() -> None:
    assert coin_state("Mia does nothing, so the state remains the same.", COIN, ("heads", "tails", "")) == "tails"
    assert coin_state("Mia does nothing, so the state remains the same.", COIN, ()) == ""


def test_a_long_line_without_a_question_stalls_nothing() -> None:
    started = time.process_time()
    assert coin_state("The coin is heads up" + "\0" * 100_000, COIN, ()) == "heads"
    assert time.process_time() - started < 10  # it takes under one


@pytest.mark.parametrize(("start", "piece"), [("Total", "$5"), ("So it is", " + 5"), ("", "half of 5, ")])
@pytest.mark.parametrize("length", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_step_of_many_numbers_stalls_nothing(start: str, piece: str, length: int) -> None:
    words = start + piece * (length // len(piece))
    started = time.process_time()
    calculated_or_stated(words, SUM, ())
    calculated(words, SUM, ())
    assert time.process_time() - started < 12  # each takes under four; one that grows with the square twice that and more


PICKS = [
    ("A. **roof** - nobody keeps chairs there, unlike on the floor.", "A"),
    ("**Room**: a space, not a surface like the floor.", "B"),
    ("Floor (C): chairs stand on it.", "C"),
    ("Option D - a flat with a floor.", "D"),
    ("Of the above choices, only floors carry furniture.", "C"),
    ("After all that, the most fitting answer is **C. floor**.", "C"),
    ("The answer must be a flat thing.", ""),
    ("Both the roof and the floor are flat.", ""),
    ("A person needs a flat thing.", ""),
]


@each_row(("segment", "expected"), PICKS)
def test_options(segment: str, expected: str) -> None:
    assert option_discussed(segment, PICK, ()) == expected


def test_yes_no_and_text_take_what_is_said_outright() -> None:
    assert concluded("So the answer is yes.", Problem(id="p", task="t", question="?", answer="no"), ()) == "yes"
    assert concluded("Paris lies in France.", Problem(id="p", task="t", question="?", answer="Paris"), ()) == ""


@each_row(
    ("segment", "result"),
    [
        ("So yes.", "yes"),
        ("Therefore, it is not prime: no.", "no"),
        ("Thus the statement is true.", "yes"),
        ("17 is odd. Hence no.", "no"),
        ("No, 9 is divisible by 3.", "no"),
        ("3. So it is false.", "no"),
        ("Is it yes or no?", ""),
        ("So there are no apples left over.", ""),
        ("9 / 3 = 3, with no remainder.", ""),
    ],
)
def test_yes_and_no_without_an_anchor(segment: str, result: str) -> None:
    assert concluded(segment, Problem(id="p", task="t", question="?", answer="no"), ()) == result


def test_annotations_go() -> None:
    assert strip_annotations("48/2 = <<48/2=24>>24 clips, $<<2*3=6>>6") == "48/2 = 24 clips, $6"


@given(
    st.text(max_size=200), st.lists(st.text(max_size=8), max_size=3), st.sampled_from(["gsm8k", "coin_flip", "commonsense_qa"])
)
def test_a_result_is_one_line_and_never_the_step(segment: str, previous: list[str], name: str) -> None:
    task = get(name)
    problem = {"gsm8k": SUM, "coin_flip": COIN, "commonsense_qa": PICK}[name]
    result = task.result(segment, problem, tuple(previous))
    assert "\n" not in result
    assert result == result.strip()
    assert not result or result != segment.strip() or any(map(str.isdecimal, result))


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.sampled_from(
        ["{a} + {b} = {c}", "so {a}+{b}=${c:,}.", r"\({a} + {b} = {c}\) dollars", "a total of {a} + {b} = **{c}** eggs"]
    ),
)
def test_any_worked_sum(a: int, b: int, frame: str) -> None:
    assert calculated(frame.format(a=a, b=b, c=a + b), SUM, ()) == str(a + b)
