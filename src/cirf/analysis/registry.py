"""Tables and figures of the paper and beyond it, from runs. A new one is a file here and a line in `_NAMES`."""

from __future__ import annotations

import difflib
from importlib import import_module

from cirf.analysis.analysis import Analysis
from cirf.errors import CirfError

_NAMES = (
    "pareto",
    "pairs",
    "difficulty",
    "semantics",
    "transitions",
    "predictability",
    "statistics",
    "hyperparameters",
    "codebook_size",
    "geometry",
    "clustering",
    "representation",
    "initialisation",
    "scaling",
    "variants",
    "scaling_law",
)


def names() -> tuple[str, ...]:
    """All analyses, in the order in which they are made."""
    return _NAMES


def get(name: str) -> Analysis:
    """An analysis by its name; ``CirfError`` if there is none such."""
    if name not in _NAMES:
        near = difflib.get_close_matches(name, _NAMES, 1)
        raise CirfError(f"{name}: no such analysis{f'; did you mean {near[0]}?' if near else ''} (see `cirf analyze --list`)")
    found: Analysis = import_module(f"cirf.analysis.{name}").ANALYSIS
    return found
