"""Which method to use, for the report (`evaluation.verdict`), and its comparison with prose trained on the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cirf.analysis.names import BASELINE, base
from cirf.analysis.traces import is_functional
from cirf.evaluation.harness import Row, compare_rows
from cirf.evaluation.verdict import most_frequent, verdict
from cirf.methods import METHODS
from cirf.report.data.scores import ratios

Tables = Mapping[str, Sequence[Row]]

_DIRECT = ("direct_sft", "direct")
_INSTEAD = ("cot", "direct_sft", "direct")
"""The comparison of a method if no prose was trained on the same rows."""


def read_verdict(
    recipe: Mapping[str, Any],
    rows: Mapping[str, Tables],
    methods: Mapping[str, Mapping[str, Any]],
    training: Sequence[Mapping[str, Any]],
) -> dict[str, Any] | None:
    """The verdict on the methods that answered the same questions; ``training`` are the training problems.

    ``against`` is the comparison of the method to use with ``method`` (`opponent`); ``None`` where there is none.
    """
    variants = recipe.get("variants", {})
    asked = {name: tables for name, tables in rows.items() if methods[name]["same_questions"]}
    traced = {name for name in asked if methods[name]["functional"]}
    direct = {name for name in asked if base(name, variants) in _DIRECT}
    found = verdict(asked, traced, direct, most_frequent(training))
    if found is None:
        return None
    summary = found.to_dict() | {"against": None}
    other = opponent(found.use, found.traced, list(asked), variants, methods)
    if found.use is not None and other is not None:
        pair = compare_rows(asked[found.use], asked[other])
        assert pair is not None  # they answered the same questions
        summary["against"] = {"method": other, **pair.to_dict(), **ratios(methods[found.use], methods[other])}
    return summary


def opponent(
    use: str | None,
    traced: str | None,
    names: Sequence[str],
    variants: Mapping[str, Mapping[str, Any]],
    methods: Mapping[str, Mapping[str, Any]],
) -> str | None:
    """The comparison of the method to use: prose trained on the same rows, with a calculator if the method has one.

    Where that is itself the one to use, the most accurate with functional tokens; where the run has none, untrained prose, else
    direct answers, else the most accurate other method.
    """
    others = [name for name in names if name != use]
    if use is None or not others:
        return None
    prose = [name for name in names if base(name, variants) == BASELINE]
    if use in prose:
        return traced or _most_accurate(others, methods)

    def helped(name: str) -> bool:
        return bool((variants.get(name, {}).get("settings") or {}).get("calculator"))

    ranked = sorted(prose, key=lambda name: (helped(name) != helped(use), name != BASELINE))
    instead = [name for wanted in _INSTEAD for name in others if base(name, variants) == wanted]
    return next(iter([*ranked, *instead]), None) or _most_accurate(others, methods)


def _most_accurate(names: Sequence[str], methods: Mapping[str, Mapping[str, Any]]) -> str:
    return max(names, key=lambda name: float(methods[name]["accuracy"]))


def writes_tokens(name: str, variants: Mapping[str, Mapping[str, Any]], tables: Tables) -> bool:
    """Whether a method writes functional tokens; for a user's own method by its answers."""
    method = base(name, variants)
    if method in METHODS:
        return METHODS[method].functional
    return any(is_functional(row["output"]) for table in tables.values() for row in table)
