"""Steps of several equations: where they are parted, and that nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.rationales.equations import split_equations
from cirf.rationales.segmentation import cut
from cirf.recipe import schema
from cirf.records import Problem, Rationale

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


@pytest.mark.parametrize(("step", "expected"), SPLIT)
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
