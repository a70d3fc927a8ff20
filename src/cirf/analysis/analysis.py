"""Analyses by name: tables and figures of the paper and beyond it, from runs. A new one is a file here and a line in `_NAMES`."""

from __future__ import annotations

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
    """One table or figure.

    ``title`` and ``summary`` are shown above it; ``paper``: its place in the paper, ``None`` if it goes beyond it; ``needs``:
    what the runs must hold, in words; ``make`` raises `MissingInputError` where they do not.
    """

    name: str
    title: str
    summary: str
    needs: str
    make: Callable[[Source], AnalysisResult]
    paper: str | None = None


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
