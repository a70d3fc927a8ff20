"""The codebooks of several sizes that a run built, side by side (paper A.2: K is chosen among several)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cirf.analysis.shown import Shown
from cirf.files import load_object

_TOLD = ("perplexity", "column_imbalance", "disagreement")


def compare_codebooks(run: Shown, recipe: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a codebook of the recipe, by size; empty where there are not two.

    ``used``: codes that stand for a step; ``least``: steps of the least used code; ``perplexity`` of the use;
    ``column_imbalance`` of the balanced assignment and its ``disagreement`` with the nearest code; ``autoencoder`` and
    ``vq``: last losses; ``trained``: whether it is the one that models were trained with.
    """
    asked = recipe.get("codebook", {})
    sizes = sorted({*asked.get("sizes", ()), asked.get("size")} - {None})
    found = {size: load_object(run.at(f"codebook-{size}") / "codebook.json") for size in sizes}
    rows = []
    for size, told in found.items():
        if told is None:
            continue
        report = told.get("report", {})
        usage = report.get("usage", [])
        losses = report.get("losses", {})
        rows.append(
            {"size": size, "used": sum(1 for count in usage if count), "least": min(usage, default=0)}
            | {name: report.get(name) for name in _TOLD}
            | {name: losses[name][-1]["total"] if losses.get(name) else None for name in ("autoencoder", "vq")}
            | {"trained": size == asked.get("size")}
        )
    return rows if len(rows) > 1 else []
