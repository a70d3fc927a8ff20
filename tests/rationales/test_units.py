"""What a number counts, read from the step that states it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.rationales.results import with_unit

STEPS = [
    ("24", "Natalia sold 48/2 = <<48/2=24>>24 clips in May.", "24 clips"),
    ("160", "She has 617 - 457 = 160 more crayons than pens.", "160 more crayons"),
    ("40", "It costs 5 * 8 = $40.", "$40"),
    ("40", "So 40 are left, out of 50.", "40"),
    ("7", "Of the 7 boys 3 go: 7 - 3 = 4, and 7 stay in all.", "7 stay"),
    ("7", "There are 7 in the box.", "7"),
    ("5", "They walk 5 miles per hour.", "5 miles"),
    ("1200", "That makes 1,200 pages.", "1200 pages"),
    ("0.5", "Each gets 1/2 of it, 1/2 cup.", "0.5 cup"),
    ("9", "The step says something else.", "9"),
    ("", "There are 3 pens.", ""),
]


@pytest.mark.parametrize(("number", "step", "expected"), STEPS)
def test_units(number: str, step: str, expected: str) -> None:
    assert with_unit(number, step) == expected


@given(st.integers(0, 10**6), st.text(max_size=60))
def test_the_number_itself_is_never_changed(number: int, step: str) -> None:
    found = with_unit(str(number), f"{step} {number} {step}")
    assert found.lstrip("$").split(" ")[0] == str(number) and len(found.split(" ")) <= 3
