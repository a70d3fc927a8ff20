"""What a person must know of test questions that the models of an evaluation were trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def seen_before(overlap: Mapping[str, Any]) -> list[str]:
    """A sentence a model that was trained elsewhere, and one a task of it, from the ``overlap`` of ``problems.json``."""
    told = []
    for row in overlap.get("models", ()):
        who = ", ".join(row["methods"])
        if not row["known"]:
            told.append(f"{who}: what the model was trained on is not known, so no test question was looked for there")
        for task, found in row["tasks"].items():
            near = f"share {overlap['words']} words in a row with one that was"
            of = f"{row['questions']:,} questions of {', '.join(row['runs'])}"
            counts = f"{found['exact']:,} were trained on and {found['near']:,} {near}"
            told.append(f"{who}: of {found['test']:,} test questions of {task}, {counts} ({of})")
    return told
