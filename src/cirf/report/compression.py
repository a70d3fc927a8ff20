"""What pruning left of the results (paper 3.4): for every threshold, and for every method whose traces are pruned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cirf.analysis.shown import Shown
from cirf.compression.search import Path as Removals
from cirf.files import load_object
from cirf.rows import read_rows

_POINTS = 60  # of the drawn curve


def read_compression(run: Shown, recipe: Mapping[str, Any]) -> dict[str, Any] | None:
    """The γ curve and the methods' traces; ``None`` where a run prunes nothing.

    ``thresholds``: a row a threshold of the recipe: ``gamma``, share of ``results`` kept, mean result ``tokens`` of a trace,
    share of traces left with functional tokens alone (``bare``). ``curve``: ``[gamma, share of results kept]``, up to where
    the search went. ``methods``: what decided each method's traces and how much is left of them.
    """
    found = {stage.partition("/")[2]: load_object(run.at(stage) / "report.json") for stage in run.each("compressed/*")}
    methods = {name: told for name, told in found.items() if told is not None}
    log = run.at("compression/greedy") / "compression.jsonl"
    if not log.exists():
        return {"thresholds": [], "curve": [], "methods": methods, "traces": None} if methods else None
    paths = [Removals.from_dict(row) for row in read_rows(log)]
    section = recipe.get("compression", {})
    asked = sorted({*section.get("gamma", ()), section.get("fast", 0.1), section.get("faster", 0.2)})
    counted = read_rows(path) if (path := run.at("traces") / "traces.jsonl").exists() else []
    results = sum(bool(result) for row in counted for result in row["results"]) or 1

    def kept(gamma: float) -> float:
        return 1 - sum(len(path.below(gamma)) for path in paths) / results

    rows = [
        {
            "gamma": gamma,
            "results": kept(gamma),
            "tokens": sum(path.tokens_without(path.below(gamma)) for path in paths) / max(1, len(paths)),
            "bare": sum(path.tokens_without(path.below(gamma)) == 0 for path in paths) / max(1, len(paths)),
        }
        for gamma in asked
    ]
    top = max(asked, default=0.0)
    curve = [[top * place / _POINTS, kept(top * place / _POINTS)] for place in range(_POINTS + 1)]
    return {
        "thresholds": rows,
        "curve": curve,
        "methods": methods,
        "traces": len(paths),
        "tokens": sum(path.tokens for path in paths) / max(1, len(paths)),
    }
