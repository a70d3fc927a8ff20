"""``archive``: a run's or a sweep's numbers for a repository."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from cirf.commands.running import open_run
from cirf.commands.standing import up_to_date
from cirf.errors import CirfError
from cirf.store import RunFolder

if TYPE_CHECKING:
    from cirf.archive import Archived

_SWEEP = "sweep.json"


def archive(folder: Path, out: Path, as_json: bool) -> None:
    """Write the archive of a run, or of each run of a sweep, and say what is in it."""
    if (folder / _SWEEP).is_file():
        _archive_sweep(folder, out, as_json)
        return
    made = _archive_run(folder, out)
    if as_json:
        print(json.dumps(_told(out, made), indent=2))
        return
    _say(out, made)
    print(f"cirf report {out}  # or go on in a copy: cp -r {out} DIR; cirf run RECIPE --out DIR")


def _archive_run(folder: Path, out: Path) -> Archived:
    """The archive of all that the run's recipe asks for and that is done."""
    from cirf.archive import archive as write
    from cirf.run import plans
    from cirf.stages.context import Context

    done = up_to_date(folder)
    if done is None:
        raise CirfError(f"{folder}: whether its stages are up to date cannot be told here (see `cirf status {folder}`)")
    asked = plans(Context(open_run(folder), RunFolder(folder)))
    return write(folder, out, [plan.name for plan in asked if plan.name in done])


def _archive_sweep(folder: Path, out: Path, as_json: bool) -> None:
    """The archives of a sweep's runs as they lie in it, and its record, by which `cirf analyze` knows them; runs of which
    nothing is finished are left out."""
    from cirf.files import load_object, to_json, write_atomic
    from cirf.local_paths import without_folders

    told: Any = load_object(folder / _SWEEP)
    before: Any = load_object(out / _SWEEP)
    if not isinstance(told, dict) or not isinstance(told.get("points"), list):
        raise CirfError(f"{folder / _SWEEP}: no sweep's record; run `cirf sweep` again")
    if out.resolve() == folder.resolve():
        raise CirfError(f"{out}: that is the sweep itself; give --out another folder")
    if before is not None and before.get("name") != told.get("name"):
        raise CirfError(f"{out}: holds the archive of the sweep {before.get('name')}; give --out another folder")
    there = [point for point in told["points"] if _begun(point)]
    runs = [PurePosixPath(run) for run in dict.fromkeys(str(point["run"]) for point in there)]
    if not runs:
        raise CirfError(f"{folder}: no stage of its runs is finished; run `cirf sweep` first")
    if any(run.is_absolute() or ".." in run.parts for run in runs):
        raise CirfError(f"{folder / _SWEEP}: names a run outside of the folder; run `cirf sweep` again")
    made = {run: _archive_run(folder / run, out / run) for run in runs}
    write_atomic(out / _SWEEP, to_json(without_folders(_met(told, before or {}))))
    if as_json:
        print(json.dumps({"folder": str(out), "runs": {str(run): _told(out / run, one) for run, one in made.items()}}, indent=2))
        return
    for run, one in made.items():
        _say(out / run, one)
    print(f"cirf analyze {out}")


def _begun(point: Mapping[str, Any]) -> bool:
    return any(point["stages"][how] for how in ("made", "taken", "before"))


def _met(told: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """A sweep's record where runs of it were archived from elsewhere: theirs stands for those that have not begun here."""
    known = {(point["part"], point["point"]): point for point in before.get("points", ())}
    points = [point if _begun(point) else known.get((point["part"], point["point"]), point) for point in told["points"]]
    runs = {point["run"]: point["stages"] for point in points}  # one may stand in several points
    counts = {how: sum(len(stages[how]) for stages in runs.values()) for how in told["stages"]}
    return {**told, "stages": counts, "points": points}


def _told(out: Path, made: Archived) -> dict[str, Any]:
    return {"folder": str(out), "stages": made.stages, "kept": made.kept, "bytes": made.bytes}


def _say(out: Path, made: Archived) -> None:
    print(f"{out}: {len(made.stages)} stages, {made.bytes / 1e6:,.1f} MB")
    if made.kept:
        print(f"kept from before: {', '.join(made.kept)}")
