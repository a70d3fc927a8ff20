"""The methods, by name. A new one is a file and a line here."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING

from cirf.errors import CirfError
from cirf.methods.chain_of_draft import ChainOfDraft
from cirf.methods.cirf import CirfBare, CirfFast, CirfFaster, CirfFull, CirfLean, CirfZero
from cirf.methods.cot import Cot, SftCot
from cirf.methods.direct import Direct, DirectSft
from cirf.methods.method import Method

if TYPE_CHECKING:
    from cirf.recipe import Recipe

METHODS: dict[str, Callable[[Recipe], Method]] = {
    "cirf_full": CirfFull,
    "cirf_zero": CirfZero,
    "cirf_fast": CirfFast,
    "cirf_faster": CirfFaster,
    "cirf_lean": CirfLean,
    "cirf_bare": CirfBare,
    "direct": Direct,
    "cot": Cot,
    "chain_of_draft": ChainOfDraft,
    "direct_sft": DirectSft,
    "sft_cot": SftCot,
}

__all__ = ["METHODS", "Method", "get", "names"]


def names() -> tuple[str, ...]:
    """Every method's name."""
    return tuple(METHODS)


def get(name: str, recipe: Recipe) -> Method:
    """The method of that name, set up by a recipe; ``CirfError`` if there is none."""
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, 1, 0.0)[0]
        raise CirfError(f"methods: there is no method {name!r}; the nearest is {near!r} (all: {', '.join(METHODS)})")
    return METHODS[name](recipe)
