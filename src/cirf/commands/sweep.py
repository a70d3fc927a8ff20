"""``sweep``: the runs of a sweep file, one after the other, with each stage made once.

::

    OUT/sweep.yaml                    the file as resolved, with its recipe's keys in it
    OUT/sweep.json                    every point: its settings, its run, and whether it is done
    OUT/PART/POINT/                   a run's folder

A stage's key hashes the contents of its inputs, which are not known before they are made. In a forecast a stage that is still to
be made is represented by its own key: two equal requests have the same one.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cirf.commands.run import checked, default_folder, resolved, save_report, set_threads
from cirf.distributed import barrier, is_main, world_size
from cirf.errors import CirfError
from cirf.progress import print_table
from cirf.recipe import sweep as sweep_io
from cirf.recipe.load import open_run
from cirf.recipe.sweep import LoadedSweep, Point
from cirf.run import asked_for, execute
from cirf.stages.context import Context
from cirf.store.files import hash_json, load_object, to_json, write_atomic
from cirf.store.integrity import LARGE
from cirf.store.run_folder import RunFolder, StagePart, StagePlan, content_of, key_of

RECORD = "sweep.json"
T = TypeVar("T")


@dataclass(frozen=True)
class SweepOptions:
    """The command line's options besides the file."""

    sets: tuple[str, ...] = ()
    data: Path | None = None
    out: Path | None = None
    only: tuple[str, ...] = ()
    until: str | None = None
    limit: int | None = None
    share: tuple[Path, ...] = ()
    quiet: bool = True


@dataclass(frozen=True)
class Run:
    """A run's folder, and the points that ask for it: more than one where the same point occurs twice."""

    path: str
    """Relative to the sweep's folder: part and name of the first of its points."""
    context: Context
    points: tuple[Point, ...]
    stages: tuple[StagePlan, ...]
    chosen: bool
    """Whether it is to run now."""
    to_report: bool
    """Whether all stages and the report are requested."""

    @property
    def folder(self) -> RunFolder:
        return self.context.folder


@dataclass(frozen=True)
class SweepPlan:
    loaded: LoadedSweep
    out: Path
    runs: tuple[Run, ...]
    points: tuple[Point, ...]
    """In the order of the file."""
    shared: tuple[RunFolder, ...]

    @property
    def chosen(self) -> list[Run]:
        return [run for run in self.runs if run.chosen]

    def others(self, run: Run | None = None) -> list[RunFolder]:
        """The runs that stages may be reused from: the sweep's, those left by a former version of its file, and
        those of ``--share``."""
        there = {folder.root.resolve(): folder for folder in (each.folder for each in self.runs)}
        for folder in (*_runs_in(self.out), *self.shared):
            there.setdefault(folder.root.resolve(), folder)
        if run is not None:
            there.pop(run.folder.root.resolve())
        return list(there.values())


def plan(name: str, asked: SweepOptions) -> SweepPlan:
    """Read a sweep and check every point of it; nothing is written. ``CirfError`` names file, part and point."""
    loaded = sweep_io.load(name)
    out = asked.out or default_folder(loaded.sweep.name, asked.limit)
    _check_folder(out, loaded.sweep.name)
    parts = [part.name for part in loaded.sweep.parts]
    for part in asked.only:
        if part not in parts:
            raise CirfError(f"--only {part}: there is no such part in {loaded.source} (parts: {', '.join(parts)})")
    groups: dict[str, list[Point]] = {}
    contexts: dict[str, Context] = {}
    points = tuple(loaded.points(asked.sets))
    for point in points:
        context = _with_name(point, partial(_context, point, out, asked))
        mark = hash_json(context.recipe.model_dump(mode="json", exclude={"name", "notes"}))
        contexts.setdefault(mark, context)
        groups.setdefault(mark, []).append(point)
    runs = tuple(_run(contexts[mark], same, asked) for mark, same in groups.items())
    return SweepPlan(loaded, out, runs, points, tuple(folder for path in asked.share for folder in _named(path)))


def _context(point: Point, out: Path, asked: SweepOptions) -> Context:
    return checked(resolved(point.recipe, asked.data, asked.limit), out / point.part / point.name, asked.quiet)


def _run(context: Context, points: Sequence[Point], asked: SweepOptions) -> Run:
    """The run of equal points, with the stages requested by those that run now, or else by all."""
    chosen = [point for point in points if not asked.only or point.part in asked.only]
    asking = chosen or points
    each = [_with_name(point, partial(asked_for, context, asked.until or point.until)) for point in asking]
    names = {stage.name for stages in each for stage in stages}
    together = tuple(stage for stage in asked_for(context) if stage.name in names)
    to_report = any((asked.until or point.until) is None for point in asking)
    path = f"{points[0].part}/{points[0].name}"
    return Run(path, context, tuple(points), together, bool(chosen), to_report)


def _with_name(point: Point, work: Callable[[], T]) -> T:
    """The result of ``work``; its ``CirfError`` names the point."""
    try:
        return work()
    except CirfError as error:
        raise CirfError(f"{point.source}: {error}") from None


def _check_folder(out: Path, name: str) -> None:
    if (out / "recipe.yaml").exists():
        raise CirfError(f"--out {out}: a run is there; give the sweep its own folder")
    other = (load_object(out / RECORD) or {}).get("name", name)
    if other != name:
        raise CirfError(f"--out {out}: the sweep {other} is there; give {name} its own folder")


def _runs_in(out: Path) -> list[RunFolder]:
    return [RunFolder(path.parent) for path in sorted(out.glob("*/*/recipe.yaml")) if not (path.parent / "stage.json").exists()]


def _named(path: Path) -> list[RunFolder]:
    """The run that ``--share`` names, or all runs of a sweep."""
    if (path / RECORD).is_file():
        return _runs_in(path)
    try:
        open_run(path)
    except CirfError as error:
        raise CirfError(f"--share {error}") from None
    return [RunFolder(path)]


def sweep(name: str, asked: SweepOptions, as_json: bool, say: Callable[[str], None]) -> None:
    """Bring every chosen run up to date and print the state of the sweep. A run that fails is reported and skipped, and the
    others go on; ``CirfError`` at the end if any did."""
    planned = plan(name, asked)
    if not is_main():
        _others_part(planned, say)
        return
    errors: dict[str, str] = {}
    with RunFolder(planned.out).alone("sweep"):
        sets = [*asked.sets, *([] if asked.data is None else [f"problems.data={json.dumps(str(asked.data.resolve()))}"])]
        write_atomic(planned.out / "sweep.yaml", planned.loaded.resolved(sets))
        _save_record(planned, errors)
        barrier()
        for index, run in enumerate(planned.chosen, 1):
            done = _is_done(run)
            say(f"[{index}/{len(planned.chosen)}] {run.path}{': finished before' if done else ''}")
            try:
                _bring_up_to_date(planned, run, done, say)
            except CirfError as error:
                if world_size() > 1:  # the other processes cannot know
                    raise
                errors[run.path] = str(error)
                say(f"{run.path}: failed: {error}")
            _save_record(planned, errors)
    if as_json:
        sys.stdout.write(to_json(_record(planned, errors)))
    else:
        print(f"{len(planned.chosen)} runs, {len(errors)} failed\nsweep: {planned.out / RECORD}")
    for path, reason in errors.items():
        print(f"failed: {path}: {reason}", file=sys.stderr)
    if errors:
        raise CirfError(
            f"{len(errors)} of {len(planned.chosen)} runs failed (see {planned.out / RECORD}); the same command tries them again"
        )


def _bring_up_to_date(planned: SweepPlan, run: Run, done: bool, say: Callable[[str], None]) -> None:
    if not done or world_size() > 1 or any(run.folder.damaged(stage.name, LARGE) for stage in run.stages):
        set_threads(run.context.recipe)
        execute(run.context, [stage.name for stage in run.stages], say, planned.others(run))
    if run.to_report and not _is_reported(run):
        save_report(run.folder.root)


def _is_done(run: Run) -> bool:
    return set(SweepForecast(()).look(run.folder, run.stages).values()) == {"done"}


def _record(planned: SweepPlan, errors: Mapping[str, str]) -> dict[str, Any]:
    """The content of ``sweep.json``."""
    sweep = planned.loaded.sweep
    points: dict[tuple[str, str], dict[str, Any]] = {}
    for run in planned.runs:
        failed = {"state": "failed", "error": errors[run.path]} if run.path in errors else {}
        state = {"run": run.path, "state": "done" if _is_done(run) else "open"} | failed
        for point in run.points:
            about = {"part": point.part, "point": point.name, "settings": point.settings, "varied": list(point.varied)}
            points[point.part, point.name] = about | state
    parts = [part.model_dump(include={"name", "notes", "until"}) for part in sweep.parts]
    in_order = [points[point.part, point.name] for point in planned.points]
    return {"name": sweep.name, "notes": sweep.notes, "parts": parts, "points": in_order}


def _save_record(planned: SweepPlan, errors: Mapping[str, str]) -> None:
    write_atomic(planned.out / RECORD, to_json(_record(planned, errors)))


def _others_part(planned: SweepPlan, say: Callable[[str], None]) -> None:
    """The part of the other processes under ``accelerate launch``: train with the main one."""
    barrier()
    for run in planned.chosen:
        set_threads(run.context.recipe)
        execute(run.context, [stage.name for stage in run.stages], say, ())


def _is_reported(run: Run) -> bool:
    report = run.folder.root / "report.html"
    if not report.exists():
        return False
    written = report.stat().st_mtime_ns
    return all((run.folder.folder(stage.name) / "stage.json").stat().st_mtime_ns <= written for stage in run.stages)


def dry(name: str, asked: SweepOptions, as_json: bool) -> None:
    """Print, for each part, how many stages its runs need, and how many of them would be made; nothing is written."""
    planned = plan(name, asked)
    foresight = SweepForecast(planned.others())
    rows: list[dict[str, Any]] = []
    for run in planned.chosen:
        states = foresight.look(run.folder, run.stages)
        rows.append({"part": _part_of(run, planned), "run": run.path, "points": len(run.points), "stages": states})
    if as_json:
        count = Counter(state for row in rows for state in row["stages"].values())
        stages = {"asked": sum(count.values())} | {kind: count[kind] for kind in ("done", "taken", "made")}
        details = {"name": planned.loaded.sweep.name, "out": str(planned.out), "stages": stages, "runs": rows}
        sys.stdout.write(to_json(details))
        return
    _print_parts(rows)
    for row in rows:
        made = [stage for stage, state in row["stages"].items() if state == "made"]
        print(f"{row['run']}: {', '.join(made) or 'nothing to make'}")


def _part_of(run: Run, planned: SweepPlan) -> str:
    """The part of a run: the first of those that run now."""
    chosen = {part for each in planned.chosen for part in (point.part for point in each.points)}
    return next(point.part for point in run.points if point.part in chosen)


def _print_parts(rows: Sequence[Mapping[str, Any]]) -> None:
    """A line a part, and their sum: runs, requested stages, and how many are done, to be reused and to be made."""

    def line(name: str, chosen: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        count = Counter(state for row in chosen for state in row["stages"].values())
        return (name, *map(str, (len(chosen), count.total(), count["done"], count["taken"], count["made"])))

    parts = list(dict.fromkeys(row["part"] for row in rows))
    lines = [line(part, [row for row in rows if row["part"] == part]) for part in parts]
    totals = [None, line("in all", rows)] if len(parts) > 1 else []
    print_table(("part", "runs", "stages\nasked for", "done", "to\nreuse", "to make"), [*lines, *totals])


Content = Mapping[str, str] | str
"""The content of a stage: its files' hashes, or its key if it is not made yet."""


@dataclass
class SweepForecast:
    """A simulation of the runs in their order."""

    others: Sequence[RunFolder]
    there: dict[str, Content] = field(default_factory=dict)
    """By key, the stages made, reused or found by then."""

    def look(self, folder: RunFolder, plans: Sequence[StagePlan]) -> dict[str, str]:
        """For each stage of a run, inputs first: ``done``, ``taken`` or ``made``. This is an upper bound of the stages made: if
        an input comes out equal to another run's although it was requested differently, later stages are reused too."""
        contents: dict[str, Content] = {}
        found: dict[str, str] = {}
        for stage in plans:
            key = key_of(stage, stage.given | {label: _content(part, contents) for label, part in stage.parts.items()})
            manifest = folder.found(stage.name, key)
            if manifest is not None:
                found[stage.name], contents[stage.name] = "done", manifest["files"]
            else:
                known = self.there.get(key) or self._elsewhere(stage.name, key)
                found[stage.name], contents[stage.name] = ("made", key) if known is None else ("taken", known)
            self.there[key] = contents[stage.name]
        return found

    def _elsewhere(self, name: str, key: str) -> Content | None:
        for other in self.others:
            if (manifest := other.found(name, key)) is not None:
                files: Content = manifest["files"]
                return files
        return None


def _content(part: StagePart, contents: Mapping[str, Content]) -> str:
    content = contents[part.plan.name]
    return hash_json([content, part.names]) if isinstance(content, str) else content_of(content, part.names)
