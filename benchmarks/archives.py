"""What runs and archives hold, read in one place: the verdicts of evaluations, and what an archive measured."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.export.archive import ArchivedRun, find
from cirf.store.jsonl import read_rows

FIELDS = ("id", "correct", "tokens", "truncated", "unparsed")


@cache
def archived(run: Path) -> ArchivedRun:
    """The run that ``ARCHIVE`` or ``ARCHIVE/RUN`` names; read once a process. ``CirfError`` where there is none."""
    found = find(run)
    if found is None:
        raise CirfError(f"{run}: no archive")
    return found


@cache
def answers(run: Path, method: str, task: str) -> list[dict[str, Any]]:
    """The rows of one method on one task, with the ``FIELDS`` that they have; read once a process.

    ``run``: a run, or its archive. ``CirfError`` where there is no such evaluation.
    """
    if (run / "evaluation").is_dir():
        rows = read_rows(run / "evaluation" / method / f"{task}.jsonl")
    elif task not in (tables := archived(run).answers(method)):
        raise CirfError(f"{run}: {method} was not evaluated on {task}")
    else:
        rows = list(tables[task])
    return [{key: row[key] for key in FIELDS if key in row} for row in rows]


def training(run: Path, method: str) -> dict[str, Any]:
    """An archive's training of a method, as its report has it (`cirf.report.data.measures`)."""
    found: dict[str, Any] = archived(run).data["training"][method]
    return found
