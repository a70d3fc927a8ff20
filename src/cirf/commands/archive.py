"""``archive``: a run's or a sweep's numbers for a repository."""

from __future__ import annotations

import json
from pathlib import Path

from cirf.errors import CirfError


def archive(folder: Path, out: Path, as_json: bool) -> None:
    """Write the archive of a run, or of a sweep's runs that are there, and say how large it is."""
    from cirf.commands.analyze import open_runs
    from cirf.export.archive import is_archive, write

    if is_archive(folder):
        raise CirfError(f"{folder}: already an archive; copy it")
    runs = open_runs(folder)
    size = write(runs, out)
    names = list(dict.fromkeys(run.name for run in runs))
    warnings = dict.fromkeys(f"{run.name}: {run.warning}" for run in runs if run.warning)
    if as_json:
        print(json.dumps({"folder": str(out), "runs": names, "bytes": size, "warnings": list(warnings)}, indent=2))
        return
    for line in warnings:
        print(f"warning: {line}")
    print(f"{out}: {len(names)} run{'s' if len(names) != 1 else ''}, {size / 1e6:.2f} MB")
    print(f"cirf analyze {out}")
