"""An analysis: a name, its requirements, and a function from runs to tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cirf.analysis.source import Source
from cirf.errors import CirfError
from cirf.pictures.table import Table


class Lacking(CirfError):
    """The runs lack something an analysis needs; the message says what."""


@dataclass(frozen=True, slots=True)
class Found:
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
    what the runs must hold, in words; ``make`` raises `Lacking` where they do not.
    """

    name: str
    title: str
    summary: str
    needs: str
    make: Callable[[Source], Found]
    paper: str | None = None
