"""Which method to use, for the report: `evaluation.verdict` told which of a run's methods reason in traces, which not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cirf.analysis.traces import is_functional
from cirf.evaluation.harness import Row
from cirf.evaluation.verdict import most_frequent, verdict
from cirf.methods import METHODS

_DIRECT = ("direct_sft", "direct")


def read_verdict(
    recipe: Mapping[str, Any],
    rows: Mapping[str, Mapping[str, Sequence[Row]]],
    methods: Mapping[str, Mapping[str, Any]],
    training: Sequence[Mapping[str, Any]],
) -> dict[str, Any] | None:
    """The verdict on the methods that answered the same questions; ``training`` are the training problems, none in an archive."""
    asked = {name: tables for name, tables in rows.items() if methods[name]["same_questions"]}
    variants: Mapping[str, Mapping[str, Any]] = recipe.get("variants", {})
    bases = {name: variants.get(name, {}).get("method") or name for name in asked}
    traced = {name for name, base in bases.items() if (METHODS[base].functional if base in METHODS else _writes(asked[name]))}
    found = verdict(asked, traced, {name for name, base in bases.items() if base in _DIRECT}, most_frequent(training))
    return None if found is None else found.to_dict()


def _writes(tables: Mapping[str, Sequence[Row]]) -> bool:
    """Whether a user's own method wrote functional tokens."""
    return any(is_functional(row["output"]) for table in tables.values() for row in table)
