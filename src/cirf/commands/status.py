"""``status``: which stages of a run's folder are done by its recipe, if that can be determined, and whether their files are
unchanged."""

from __future__ import annotations

import json
from pathlib import Path

from cirf.errors import CirfError
from cirf.recipe.load import open_run
from cirf.store.integrity import LARGE, damage, finished
from cirf.store.run_folder import Plan, RunFolder, StageState

_WORDS = {
    "done": "done",
    "part": "begun: goes on",
    "stale": "out of date: again",
    "open": "to do",
    "unknown": "there, not checked",
    "damaged": "damaged: again",
}


def up_to_date(folder: Path) -> frozenset[str] | None:
    """The stages that a run's recipe asks for and that are done by it.

    ``None`` if that cannot be determined, because data, a task file or a model that the recipe names is not on this machine.
    """
    from cirf.stages.context import Context
    from cirf.stages.planning import plans

    context = Context(open_run(folder), RunFolder(folder))
    try:
        asked = plans(context)
    except CirfError:
        return None
    return frozenset(plan.name for plan in asked if context.folder.is_done(plan))


def status(folder: Path, as_json: bool, verify: bool = False) -> bool:
    """Print a line per stage: its state, rows and time. If an input from outside is gone, states are not known: then finished
    stages are listed as ``unknown``. Files are compared with the hashes in their records, those over `LARGE` bytes only with
    ``verify``; returns whether all are unchanged."""
    from cirf.stages.context import Context
    from cirf.stages.planning import plans

    context = Context(open_run(folder), RunFolder(folder))
    try:
        asked, missing = plans(context), ""
    except CirfError as error:
        asked, missing = [], str(error)
    names = finished(context.folder) if missing else [plan.name for plan in asked]
    largest = None if verify else LARGE
    bad = {name: files for name in names if (files := context.folder.damaged(name, largest))}
    plan_of = {plan.name: plan for plan in asked}

    def row_of(name: str) -> StageState:
        if name in bad:
            return StageState(name, "damaged", None, None)
        if missing:
            return context.folder.finished(name)
        return _state_of(context.folder, plan_of[name]) if bad else context.folder.state(plan_of[name])

    rows = [row_of(name) for name in names]
    if as_json:
        fields = ("state", "rows", "seconds")
        summary = [{"stage": row.name} | {field: getattr(row, field) for field in fields} for row in rows]
        print(json.dumps([row | {"damaged": bad[row["stage"]]} if row["stage"] in bad else row for row in summary], indent=2))
        return not bad
    for row in rows:
        size = "" if row.rows is None else f"{row.rows:,} rows"
        seconds = "" if row.seconds is None else f"{row.seconds:,.1f} s"
        print(f"{row.name:28} {_WORDS[row.state]:20} {size:>14} {seconds:>12}")
    again = [row.name for row in rows if row.state not in ("done", "unknown")]
    if missing:
        print(f"what a rerun would do is unknown here: {missing}")
    else:
        print(f"a rerun would do: {', '.join(again)}" if again else "a rerun would do nothing")
    for name, files in bad.items():
        print(damage(context.folder, name, files))
    return not bad


def _state_of(folder: RunFolder, plan: Plan) -> StageState:
    """The state of a stage if records of others may be unreadable."""
    try:
        return folder.state(plan)
    except CirfError:
        return folder.finished(plan.name) if folder.manifest(plan.name) else StageState(plan.name, "open", None, None)
