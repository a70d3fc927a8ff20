"""Analyses by name: tables and figures of the paper and beyond it. A new one is a file here and a line in `_PLACES`."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from cirf.analysis.source import Source
from cirf.errors import CirfError
from cirf.pictures.table import Table


class MissingInputError(CirfError):
    """The runs lack something an analysis needs; the message says what."""


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """The results of an analysis. ``pictures``: SVG elements by name; ``notes``: sentences for the reader."""

    tables: Sequence[Table] = ()
    pictures: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without the pictures, which are separate files."""
        return {"tables": [table.to_dict() for table in self.tables], "pictures": list(self.pictures), "notes": list(self.notes)}


@dataclass(frozen=True, slots=True)
class Analysis:
    """One table or figure. ``title`` and ``summary`` are shown above it; ``paper``: its place in the paper, ``None`` if it goes
    beyond it; ``needs``: what the runs must hold, in words; ``make`` raises `MissingInputError` where they do not."""

    name: str
    title: str
    summary: str
    needs: str
    make: Callable[[Source], AnalysisResult]
    paper: str | None = None


_PLACES = {
    "pareto": "pareto:ANALYSIS",
    "pairs": "pairs:ANALYSIS",
    "difficulty": "difficulty:ANALYSIS",
    "semantics": "run_tables:SEMANTICS",
    "statistics": "run_tables:STATISTICS",
    "hyperparameters": "run_tables:HYPERPARAMETERS",
    "codebook_size": "codebook_size:ANALYSIS",
    "geometry": "geometry:ANALYSIS",
    "clustering": "clustering:ANALYSIS",
    "representation": "ablation:REPRESENTATION",
    "initialisation": "ablation:INITIALISATION",
    "scaling": "backbones:SCALING",
    "variants": "backbones:VARIANTS",
    "scaling_law": "scaling_law:ANALYSIS",
}
"""Module and variable of each, in the order in which they are made."""


def names() -> tuple[str, ...]:
    return tuple(_PLACES)


def get(name: str) -> Analysis:
    """An analysis by its name; ``CirfError`` if there is none such."""
    if name not in _PLACES:
        near = difflib.get_close_matches(name, _PLACES, 1)
        raise CirfError(f"{name}: no such analysis{f'; did you mean {near[0]}?' if near else ''} (see `cirf analyze --list`)")
    module, _, variable = _PLACES[name].partition(":")
    found: Analysis = getattr(import_module(f"cirf.analysis.{module}"), variable)
    return found
