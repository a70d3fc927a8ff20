"""``show``: the answers of an evaluation, one after the other, for people.
``status``: which stages of a run's folder are done by its recipe, if that can be determined, and are unchanged.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cirf.errors import CirfError
from cirf.evaluation.harness import Row
from cirf.progress import printable, write_line
from cirf.recipe.load import open_run
from cirf.stages.context import Context
from cirf.stages.planning import plans
from cirf.store.files import load_object
from cirf.store.integrity import LARGE, damage, finished
from cirf.store.jsonl import read_rows
from cirf.store.run_folder import RunFolder, StageState


@dataclass(frozen=True, slots=True)
class AnswerFilter:
    """Which answers to show; unset fields do not matter."""

    method: str | None = None
    task: str | None = None
    wrong: bool = False
    right: bool = False
    unparsed: bool = False
    truncated: bool = False
    item: str | None = None

    def keeps(self, row: Row) -> bool:
        if (self.wrong and row["correct"]) or (self.right and not row["correct"]):
            return False
        if (self.unparsed and not row["unparsed"]) or (self.truncated and not row["truncated"]):
            return False
        return self.item is None or row["id"] == self.item


def show(folder: Path, wanted: AnswerFilter, limit: int, as_json: bool) -> None:
    """Print up to ``limit`` answers of one method, and how many there are."""
    if wanted.wrong and wanted.right:
        raise CirfError("--wrong and --right: no answer is both; give only one")
    answers = folder / "evaluation"
    there = _evaluated(answers, [*open_run(folder).methods], up_to_date(folder))
    method = wanted.method or there[0]
    if method not in there:
        raise CirfError(f"--method {method}: not evaluated in this run (evaluated: {', '.join(there)})")
    tasks = list((load_object(answers / method / "scores.json") or {}).get("tasks", {}))
    if wanted.task is not None and wanted.task not in tasks:
        raise CirfError(f"--task {wanted.task}: not a task of this run (its tasks: {', '.join(tasks)})")
    chosen = [task for task in tasks if wanted.task in (None, task)]
    rows = [(task, row) for task in chosen for row in read_rows(answers / method / f"{task}.jsonl")]
    ids = list(dict.fromkeys(row["id"] for _, row in rows))
    if wanted.item is not None and wanted.item not in ids:
        near = ", ".join(difflib.get_close_matches(wanted.item, ids, 3, 0.0))
        raise CirfError(f"--id {wanted.item}: there is no such question (there are {len(ids):,}, such as {near})")
    found = [(task, row) for task, row in rows if wanted.keeps(row)]
    if as_json:
        print(json.dumps([{"task": task, **row} for task, row in found[:limit]], indent=2, ensure_ascii=False))
        return
    for task, row in found[:limit]:
        _print(task, row)
    shown = min(limit, len(found))
    more = f" ({shown} shown: --limit)" if shown < len(found) else ""
    print(f"{method}: {len(found)} of {len(rows)} answers{more}")


def _evaluated(answers: Path, asked: list[str], done: Collection[str] | None) -> list[str]:
    """The methods whose answers are of the run's current recipe, as far as known."""
    there = {path.parent.name for path in answers.glob("*/scores.json")}
    there = {name for name in there if done is None or f"evaluation/{name}" in done}
    named = [name for name in asked if name in there] + sorted(there - set(asked))
    if not named:
        raise CirfError(f"{answers.parent}: no method is evaluated yet, or none by the current recipe; run `cirf run` again")
    return named


def _print(task: str, row: Row) -> None:
    verdict = "right" if row["correct"] else "unparsed" if row["unparsed"] else "wrong"
    cut = ", truncated" if row["truncated"] else ""
    run = f", run {row['run']}" if row["run"] else ""
    _say(f"{task}  {row['id']}{run}: {verdict}{cut}, {row['tokens']} tokens")
    _say(_indented(row["prompt"]))
    _say(_indented(f"no answer: {row['failed']}" if "failed" in row else f"> {row['output']}"))
    parsed = "nothing" if row["parsed"] is None else row["parsed"]
    _say(f"    parsed: {parsed}; gold answer: {row['gold']}\n")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _say(text: str) -> None:
    print(printable(text))


_WORDS = {
    "done": "done",
    "part": "begun, will continue",
    "stale": "out of date, will be redone",
    "open": "to do",
    "unknown": "present, not checked",
    "damaged": "damaged, will be redone",
}


def up_to_date(folder: Path) -> frozenset[str] | None:
    """The stages that a run's recipe asks for and that are done by it. ``None`` if that cannot be determined, because data, a
    task file or a model that the recipe names is not on this machine."""
    context = Context(open_run(folder), RunFolder(folder))
    try:
        planned = plans(context)
    except CirfError:
        return None
    return frozenset(plan.name for plan in planned if context.folder.is_done(plan))


def status(folder: Path, as_json: bool, verify: bool = False) -> bool:
    """Print a line per stage: its state, rows and time. If an input from outside is gone, states are not known: then finished
    stages are listed as ``unknown``. Files are compared with the hashes in their records, those over `LARGE` bytes only with
    ``verify``; returns whether all are unchanged."""
    context = Context(open_run(folder), RunFolder(folder))
    try:
        planned, missing = plans(context), ""
    except CirfError as error:
        planned, missing = [], str(error)
    names = finished(context.folder) if missing else [plan.name for plan in planned]
    largest = None if verify else LARGE
    bad = {name: files for name in names if (files := context.folder.damaged(name, largest))}
    plan_of = {plan.name: plan for plan in planned}

    def row_of(name: str) -> StageState:
        if name in bad:
            return StageState(name, "damaged", None, None)
        if missing:
            return context.folder.finished(name)
        try:
            return context.folder.state(plan_of[name])
        except CirfError:  # the record of another stage cannot be read
            there = context.folder.manifest(name)
            return context.folder.finished(name) if there else StageState(name, "open", None, None)

    rows = [row_of(name) for name in names]
    if as_json:
        fields = ("state", "rows", "seconds")
        entries = [{"stage": row.name} | {field: getattr(row, field) for field in fields} for row in rows]
        print(json.dumps([row | {"damaged": bad[row["stage"]]} if row["stage"] in bad else row for row in entries], indent=2))
        return not bad
    for row in rows:
        size = "" if row.rows is None else f"{row.rows:,} rows"
        seconds = "" if row.seconds is None else f"{row.seconds:,.1f} s"
        print(f"{row.name:28} {_WORDS[row.state]:20} {size:>14} {seconds:>12}")
    again = [row.name for row in rows if row.state not in ("done", "unknown")]
    if missing:
        write_line(f"what a rerun would do is unknown here: {missing}")
    else:
        print(f"a rerun would do: {', '.join(again)}" if again else "a rerun would do nothing")
    for name, files in bad.items():
        write_line(damage(context.folder, name, files))
    return not bad
