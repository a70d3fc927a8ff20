"""The setting of every method that writes calculations: a calculator while it answers (`cirf.lm.calculator`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cirf.recipe import Section, key

if TYPE_CHECKING:
    from cirf.lm.decode import Steer


class CalculatorSettings(Section):
    """A model needs no training for it."""

    calculator: bool = key(
        False,
        "What stands behind a calculation and its equals sign is worked out, and no other number can be written there. It is for "
        "rationales and results that hold calculations (results.working: keep).",
    )


def calculating(tokenizer: Any) -> Steer:
    """What makes the calculator of a batch."""
    from cirf.lm.calculator import Calculator

    calculator = Calculator(tokenizer)
    return lambda: (calculator.fresh(),)
