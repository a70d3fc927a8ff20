"""The plan of a sweep: its runs, each checked as ``run`` checks one, before any of them begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cirf.commands.run import checked, default_folder, resolved
from cirf.errors import CirfError
from cirf.recipe import sweep_load as sweep_io
from cirf.recipe.load import open_run
from cirf.recipe.sweep_load import LoadedSweep, Point
from cirf.run import asked_for
from cirf.stages.context import Context
from cirf.store.files import hash_json, parse_json
from cirf.store.run_folder import RunFolder, StagePlan

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
        """The runs that stages may be taken over from: the sweep's, those left by a former version of its file, and
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
    other = read_record(out).get("name", name)
    if other != name:
        raise CirfError(f"--out {out}: the sweep {other} is there; give {name} its own folder")


def read_record(out: Path) -> dict[str, Any]:
    """A sweep's record in its folder; empty if there is none."""
    try:
        loaded = parse_json((out / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


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
