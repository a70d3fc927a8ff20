"""Codebooks with few training segments per code, marked in every table with K."""

from __future__ import annotations

from cirf.pictures.table import Column

FEW = 10
"""Codebooks with fewer training segments a code than this are marked."""

COLUMN = Column("few", "Few segments")
NOTE = f"Marked as of few segments: codebooks with fewer than {FEW} training segments a code."


def mark(segments: int, size: int) -> str:
    """The value of the column: ``few`` where M / K is under `FEW`, else nothing."""
    return "few" if segments < FEW * size else ""
