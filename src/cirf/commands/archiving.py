"""``archive``: a run's numbers for a repository."""

from __future__ import annotations

import json
from pathlib import Path

from cirf.commands.running import open_run
from cirf.commands.standing import up_to_date
from cirf.errors import CirfError
from cirf.store import RunFolder


def archive(folder: Path, out: Path, as_json: bool) -> None:
    """Write the archive of all that the run's recipe asks for and that is done, and say what is in it."""
    from cirf.archive import archive as write
    from cirf.run import plans
    from cirf.stages.context import Context

    done = up_to_date(folder)
    if done is None:
        raise CirfError(f"{folder}: whether its stages are up to date cannot be told here (see `cirf status {folder}`)")
    asked = plans(Context(open_run(folder), RunFolder(folder)))
    made = write(folder, out, [plan.name for plan in asked if plan.name in done])
    if as_json:
        print(json.dumps({"folder": str(out), "stages": made.stages, "kept": made.kept, "bytes": made.bytes}, indent=2))
        return
    print(f"{out}: {len(made.stages)} stages, {made.bytes / 1e6:,.1f} MB")
    if made.kept:
        print(f"kept from before: {', '.join(made.kept)}")
    print(f"cirf report {out}  # or go on in a copy: cp -r {out} DIR; cirf run RECIPE --out DIR")
