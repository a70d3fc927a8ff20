"""``report --picture``: the report's first picture as a file."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from cirf.errors import CirfError

DOMAINS = {"all": "all tasks", "in": "tasks trained on", "out": "tasks not trained on"}


def write_picture(folder: Path, path: Path, domain: str, without: Collection[str]) -> None:
    """Write accuracy against generated tokens of a run or an archive to ``path``, an SVG on a white ground.

    ``domain``: ``all`` counts every question alike; ``in`` and ``out`` are means of the tasks trained on or not. ``without``:
    methods to leave out. ``CirfError`` for an unknown domain or method, or if nothing is left to draw.
    """
    from cirf.analysis.pareto import domain_points, mark_fronts, picture
    from cirf.analysis.points import alike
    from cirf.analysis.tradeoff import WIDE
    from cirf.commands.analyze import open_run_of
    from cirf.report.plots import pareto_svg
    from cirf.store.files import write_atomic

    if domain not in DOMAINS:
        raise CirfError(f"--domain: expected {', '.join(DOMAINS)}, found {domain!r}")
    run = open_run_of(folder)
    unknown = [name for name in without if name not in run.methods]
    if unknown:
        raise CirfError(f"--without: {folder} has no method {unknown[0]!r} (it has: {', '.join(run.methods)})")
    if domain == "all":
        rows = {name: row for name, row in run.methods.items() if name not in without}
        svg = pareto_svg({**run.data, "methods": rows})
    else:
        kept = [point for point in domain_points(run, domain) if point["kind"] not in without and point["tokens"]]
        points = alike(kept)[0] if kept else []
        mark_fronts(points)
        svg = picture(points, "", "tokens", size=WIDE) if points else None
    if svg is None:
        raise CirfError(f"{folder}: no answers on {DOMAINS[domain]} to draw")
    write_atomic(path, svg.replace("<svg", '<svg style="background:#fff"', 1) + "\n")
    print(f"picture: {path}")
