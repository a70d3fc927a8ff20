"""A setting of methods that write functional tokens or prose: a calculator while they answer (`cirf.lm.decoding.calculator`)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from cirf.recipe.schema import Section, key

if TYPE_CHECKING:
    from cirf.lm.decoding.calculator import Calculator
    from cirf.lm.decoding.generate import Steer


class CalculatorSettings(Section):
    """A model needs no training for it."""

    calculator: bool = key(
        False,
        "The number after a calculation and its equals sign is computed where it is unambiguous. It is for "
        "rationales and results that hold calculations (results.working: keep).",
    )


def calculates(settings: Section) -> bool:
    """Whether settings, a user's own ones perhaps, ask for a calculator."""
    return bool(getattr(settings, "calculator", False))


def calculating(tokenizer: Any) -> Steer:
    """What makes the calculator of a batch."""
    calculator = _of(tokenizer, len(tokenizer))
    return lambda: (calculator.fresh(),)


@functools.lru_cache(maxsize=4)
def _of(tokenizer: Any, words: int) -> Calculator:
    """The calculator of a tokenizer of this vocabulary size, which is scanned once."""
    from cirf.lm.decoding.calculator import Calculator

    return Calculator(tokenizer)
