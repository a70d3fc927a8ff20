"""Warnings about test questions that the models of an evaluation were trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cirf.store.files import hash_json


def seen_before(overlap: Mapping[str, Any]) -> list[str]:
    """Facts about models trained elsewhere, from the ``overlap`` of ``problems.json``: a sentence per task and run for all
    methods whose models were trained there, and one for those with unknown training data."""
    summary = []
    same: dict[str, list[dict[str, Any]]] = {}
    for row in overlap.get("models", ()):
        same.setdefault(hash_json({**row, "methods": None}), []).append(row)
    for rows in same.values():
        row, who = rows[0], ", ".join(method for one in rows for method in one["methods"])
        if not row["known"]:
            summary.append(f"{who}: the model's training data are unknown, so they were not searched for test questions")
        for task, found in row["tasks"].items():
            near = f"share {overlap['words']} words in a row with one that was"
            of = f"{row['questions']:,} questions of {', '.join(row['runs'])}"
            counts = f"{found['exact']:,} were trained on and {found['near']:,} {near}"
            summary.append(f"{who}: of {found['test']:,} test questions of {task}, {counts} ({of})")
    return summary
