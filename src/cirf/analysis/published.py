"""The paper's own values, for comparison with ours: facts of its tables, each marked as theirs wherever it is shown.

``published.json`` holds a list of rows a table: ``statistics`` (dataset statistics), ``main`` (main results, accuracy in
percent, seconds an answer, standard deviations over three runs), ``representation`` and ``initialisation`` (accuracy in percent
by task), ``geometry`` (functional token geometry), ``clustering`` (intrinsic clustering, K = 128).
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

PAPER = "paper"
"""The source of rows from the paper."""


@cache
def _tables() -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, list[dict[str, Any]]] = json.loads((files("cirf.analysis") / "published.json").read_text(encoding="utf-8"))
    return tables


def published(table: str) -> list[dict[str, Any]]:
    """The rows of one of the paper's tables, each with ``source`` set to ``paper``."""
    return [{"source": PAPER, **row} for row in _tables()[table]]
