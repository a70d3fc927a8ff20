"""Codes of the rationales that models are trained on, as an archive keeps them, which has no rows of the data beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.files import hash_json
from cirf.rows import read_rows

Row = dict[str, Any]

TRAINING_CODES = "training_codes.jsonl"
"""In a codebook's folder in an archive, in the place of ``codes.jsonl``."""

_KEYS = {"problem": str, "sample": int, "task": str, "codes": list}


def with_tasks(codes: Sequence[Row], tasks: Mapping[str, str]) -> list[Row]:
    """Of rows with ``problem``, ``sample`` and ``codes`` those of training problems, each with its ``task``."""
    return [row | {"task": tasks[row["problem"]]} for row in codes if row["problem"] in tasks]


def cut(steps: Sequence[str]) -> str:
    """A short hash of a rationale's steps: two runs' codes are compared where both cut it alike."""
    return hash_json(list(steps))[:16]


def read_training_codes(path: Path) -> list[Row]:
    """The rows of an archive; ``CirfError`` for one that is none."""
    rows = read_rows(path)
    for number, row in enumerate(rows, 1):
        if not all(isinstance(row.get(key), kind) for key, kind in _KEYS.items()):
            raise CirfError(f"{path}: line {number} is no rationale's codes; write the archive anew")
    return rows
