"""A run's folder: finished stages are kept, killed ones resume, changed ones are made again.

A stage is a folder. While it is being made it is under ``RUN/.work/``; when it is complete, one rename moves it to its place, so
a stage is complete or absent::

    runs/quickstart/
      recipe.yaml               the recipe as resolved
      problems/                 a finished stage
        stage.json              its key, its part of the recipe, the hash of every file it holds
        recipe.yaml             the whole recipe it was made under (never part of any hash)
        train.jsonl ...
        timings.json            what a clock touched (never part of any hash)
      .work/finetune.../        a stage in the making, with whatever it needs to go on after a kill
      .work/finetune.taken/     a stage on its way from another run

A stage's **key** is the hash of its name, its code's version, its part of the recipe and the contents of its inputs. A
finished stage with the same key is reused; with another key it is removed and made again. Since a key hashes contents,
a stage that is made again with the same content keeps all later stages valid. For the same reason a run may take over a stage of
the same key from another run's folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cirf.distributed import barrier, is_main, settled
from cirf.errors import CirfError
from cirf.store.files import hash_file, hash_json, is_within, parse_json, share_files, to_json, write_atomic
from cirf.store.paths import ASIDE, refuse_special

_MANIFEST = "stage.json"
_TIMINGS = "timings.json"
_SCRATCH = "scratch"
_LIVES = "lives.json"
_RECIPE = "recipe.yaml"
_HOLDER = "holder.json"
_LONGEST_LIFE = 366 * 86400  # seconds; a longer one means that the clock was set
RECORDS = (_MANIFEST, _RECIPE)
"""Files of a finished stage that describe the stage, not its result."""
_SUM = "sha256"
"""In a stage's record: the hash of all else in it."""


def record(details: Mapping[str, Any]) -> str:
    """A stage's record as text, with its own hash at the end."""
    details = {name: value for name, value in details.items() if name != _SUM}
    return to_json({**details, _SUM: hash_json(json.loads(to_json(details)))})


@dataclass(frozen=True)
class StagePlan:
    """A requested stage: its name, what decides its content, and the function that makes it."""

    name: str
    section: Mapping[str, Any]
    inputs: Mapping[str, StagePlan | StagePart | str]
    make: Callable[[Path], Mapping[str, Any] | None] = field(compare=False)
    version: int = 1
    together: bool = False
    """Whether all processes of ``accelerate launch`` make it; else the main one does."""
    divided: bool = False
    """Whether they share its pieces, which are the same for any number of processes."""

    @property
    def given(self) -> dict[str, str]:
        """The inputs that no stage makes, by label: hashes of inputs from outside the run."""
        return {label: source for label, source in self.inputs.items() if isinstance(source, str)}

    @property
    def parts(self) -> dict[str, StagePart]:
        """What it reads of other stages, by label; of most stages all files."""
        sources = ((label, source) for label, source in self.inputs.items() if not isinstance(source, str))
        return {label: source if isinstance(source, StagePart) else StagePart(source, ("",)) for label, source in sources}


@dataclass(frozen=True)
class StagePart:
    """Of a stage, the files whose names begin with one of ``names``: a change in the others does not count."""

    plan: StagePlan
    names: tuple[str, ...]


def content_of(files: Mapping[str, str], names: tuple[str, ...] = ("",)) -> str:
    """Hash of a stage's files (their own hashes by name), or of those whose names begin with one of ``names``."""
    return hash_json({file: digest for file, digest in files.items() if file.startswith(names)})


def key_of(plan: StagePlan, inputs: Mapping[str, str]) -> str:
    return hash_json({"stage": plan.name, "version": plan.version, "section": plan.section, "inputs": inputs})


@dataclass(frozen=True)
class StageState:
    """The state of a stage: ``done``, ``part`` (begun with this key), ``stale`` (done with other inputs), ``open``, or
    ``unknown`` (finished, but its inputs cannot be read). ``seconds``: the time it took, interrupted attempts included."""

    name: str
    state: str
    rows: int | None
    seconds: float | None
    notes: tuple[str, ...] = ()
    """Its maker's notes for the user."""


class RunFolder:
    """The folder of one run, and the stages in it."""

    def __init__(self, root: Path) -> None:
        """Name the folder; nothing is made until something is written."""
        self.root = root
        self._work = root / ".work"
        self._manifests: dict[Path, tuple[tuple[int, ...], dict[str, Any]]] = {}

    def folder(self, name: str) -> Path:
        return self.root / name

    @contextlib.contextmanager
    def alone(self, what: str = "run") -> Iterator[None]:
        """Keep other processes from working here; ``CirfError`` if one does. The system lets go if this one dies."""
        self.root.mkdir(parents=True, exist_ok=True)
        handle, holder = os.open(self.root, os.O_RDONLY), self._work / _HOLDER
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CirfError(
                    f"{self.root}: another process{_named(holder)} works on this {what}; wait for it, or name "
                    "another folder with --out"
                ) from None
            self._check_links()
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            with contextlib.suppress(OSError):  # the lock holds without it
                holder.unlink(missing_ok=True)  # of one that was killed
                write_atomic(holder, to_json({"process": os.getpid(), "machine": socket.gethostname(), "since": since}))
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    holder.unlink()
                    self._work.rmdir()  # where nothing is left in it
        finally:
            os.close(handle)

    def _check_links(self) -> None:
        """``CirfError`` for a symbolic link that leads what is written or removed here elsewhere: a folder, or any in ``.work``;
        and for pipes and devices. A finished stage or a run may be a link: it is only replaced as a whole."""
        refuse_special(self.root)
        for folder, folders, files in os.walk(self.root):
            inner = Path(folder)
            in_work = self._work in (inner, *inner.parents)
            for name in (*folders, *files) if in_work else folders:
                path = inner / name
                whole = not in_work and any((path / one).is_file() for one in RECORDS)
                if path.is_symlink() and not whole:
                    raise CirfError(f"{path}: a symbolic link, and the run writes there; replace it by the folder itself")
            if inner == self._work:
                folders[:] = [name for name in folders if not Path(name).suffix.startswith(ASIDE)]

    def manifest(self, name: str) -> dict[str, Any] | None:
        """The record of a finished stage, or ``None``."""
        path = self.folder(name) / _MANIFEST
        try:
            state = path.stat()
            version = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
            if path in self._manifests and self._manifests[path][0] == version:  # read and checked before
                return self._manifests[path][1]
            loaded: dict[str, Any] = parse_json(path.read_text(encoding="utf-8")) if stat.S_ISREG(state.st_mode) else {}
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError:
            loaded = {}
        if not _is_record(loaded) or loaded.pop(_SUM, None) != hash_json(loaded):
            raise CirfError(f"{path}: damaged; `cirf run` makes the stage again, or remove the folder {path.parent}")
        self._manifests[path] = version, loaded
        return loaded

    def damaged(self, name: str, largest: int | None = None) -> list[str]:
        """Files of a finished stage that are gone, unreadable, or not as they were when it was finished; its record is one of
        them. Of those over ``largest`` bytes only the existence is checked."""
        here = self.folder(name)
        try:
            manifest = self.manifest(name)
        except CirfError:
            return [_MANIFEST]
        if manifest is None:
            return [_MANIFEST] if here.is_dir() and any(path.is_file() for path in here.iterdir()) else []

        def sound(file: str, digest: str) -> bool:
            path = here / file
            try:
                if not path.is_file():
                    return False
                return (largest is not None and path.stat().st_size > largest) or hash_file(path) == digest
            except OSError as error:
                if error.errno == errno.EIO:
                    return False
                error.filename = error.filename or str(path)
                raise

        return [file for file, digest in manifest["files"].items() if not sound(file, digest)]

    def set_aside(self, name: str) -> Path:
        """Move a stage away, so that it is made again; returns its new place."""
        places = (self._work / f"{_flat(name)}.damaged{'' if time == 1 else f'-{time}'}" for time in itertools.count(1))
        aside = next(place for place in places if not place.exists())
        self._work.mkdir(exist_ok=True)
        os.replace(self.folder(name), aside)
        return aside

    def content(self, name: str, part: tuple[str, ...] = ("",)) -> str:
        """Hash of what a finished stage holds, or of those of its files whose names begin with one of ``part``."""
        manifest = self.manifest(name)
        if manifest is None:
            raise CirfError(f"{self.folder(name)}: the stage is not finished; run `cirf run` first")
        return content_of(manifest["files"], part)

    def key(self, plan: StagePlan) -> str | None:
        """The key of a stage, or ``None`` while an input is not finished or is itself out of date."""
        return self._key(plan, {})

    def is_done(self, plan: StagePlan) -> bool:
        """Whether a finished stage with this very key is there."""
        return self._done(plan, {}) is not None

    def _key(self, plan: StagePlan, seen: dict[int, dict[str, Any] | None]) -> str | None:
        inputs = plan.given
        for label, part in plan.parts.items():
            before = self._done(part.plan, seen)
            if before is None:
                return None
            inputs[label] = content_of(before["files"], part.names)
        return key_of(plan, inputs)

    def _done(self, plan: StagePlan, seen: dict[int, dict[str, Any] | None]) -> dict[str, Any] | None:
        """The record of a stage that is done; ``seen`` has those looked at before, for many ways lead to the first stages."""
        if id(plan) not in seen:
            manifest = self.manifest(plan.name)
            seen[id(plan)] = manifest if manifest is not None and manifest["key"] == self._key(plan, seen) else None
        return seen[id(plan)]

    def state(self, plan: StagePlan) -> StageState:
        """The state that a rerun would find."""
        manifest, key = self.manifest(plan.name), self.key(plan)
        begun = key is not None and any(self._work.glob(f"{_flat(plan.name)}-{key[:16]}*"))
        if manifest is None:
            return StageState(plan.name, "part" if begun else "open", None, None)
        return self.finished(plan.name, "done" if manifest["key"] == key else "part" if begun else "stale")

    def finished(self, name: str, state: str = "unknown") -> StageState:
        """What a finished stage records; the caller gives its ``state``."""
        summary, timings = (self.manifest(name) or {})["summary"], _read_timings(self.folder(name))
        return StageState(name, state, summary.get("rows"), timings.get("seconds"), tuple(summary.get("notes", ())))

    def run(self, plan: StagePlan) -> Path:
        """The stage's folder, made now unless it is there already. Its inputs must be finished."""
        key, work = self._ask(plan)
        if not self.is_done(plan):
            self._make(plan, key, work)
            self._place(work, self.folder(plan.name))
        return self.folder(plan.name)

    def _make(self, plan: StagePlan, key: str, work: Path) -> None:
        """Make and seal a stage in the folder to work in."""
        self._tidy(plan, work)
        if not (work / _MANIFEST).exists():  # else it was complete when a kill prevented the rename
            before, started = _begin(work), time.perf_counter()
            summary = dict(plan.make(work) or {})
            self._seal(plan, key, work, summary, before + time.perf_counter() - started)

    def run_together(self, plan: StagePlan) -> Path:
        """As ``run``, with every process of ``accelerate launch`` inside the stage; the main one alone commits it. What another
        number of processes has begun goes on."""
        key, work = self._ask(plan)
        whole = settled(lambda: (work / _MANIFEST).exists())
        if is_main():
            self._tidy(plan, work)
        barrier()
        if not whole:
            before, started = _begin(work) if is_main() else 0.0, time.perf_counter()
            summary = dict(plan.make(work) or {})
            barrier()  # no one writes there any more
            if is_main():
                self._seal(plan, key, work, summary, before + time.perf_counter() - started)
        if is_main():
            self._place(work, self.folder(plan.name))
        return self.folder(plan.name)

    def _ask(self, plan: StagePlan) -> tuple[str, Path]:
        key = self.key(plan)
        if key is None:
            raise CirfError(f"stage {plan.name}: an input is not finished")
        return key, self._work / f"{_flat(plan.name)}-{key[:16]}"

    def _tidy(self, plan: StagePlan, work: Path) -> None:
        """Make the folder to work in; remove progress towards other keys, and what a kill left of files being written."""
        for other in self._begun(plan):
            if other != work:
                shutil.rmtree(other)
        work.mkdir(parents=True, exist_ok=True)
        for name in [name for name in _files(work) if Path(name).name.startswith(".")]:
            (work / name).unlink()

    def found(self, name: str, key: str) -> dict[str, Any] | None:
        """The record of a finished stage of that key; one with a damaged record is not there."""
        try:
            manifest = self.manifest(name)
        except CirfError:
            return None
        return manifest if manifest is not None and manifest["key"] == key else None

    def take(self, plan: StagePlan, other: RunFolder) -> Path:
        """Take the finished stage over from another run's folder, which has it (``found``): it lands whole or not at all.

        Every file is checked against the hash in the stage's record; the folder then holds what it would if it had been made
        here, and the seconds that it took there. Raises ``CirfError`` where a file is gone or changed.
        """
        key, _ = self._ask(plan)
        manifest, source = other.manifest(plan.name), other.folder(plan.name)
        if manifest is None or manifest["key"] != key:
            raise CirfError(f"{source}: not the requested stage")
        work = self._work / f"{_flat(plan.name)}.taken"  # never a folder that is worked in: links must not be written to
        if work.exists():
            shutil.rmtree(work)
        share_files(source, work, manifest["files"])
        for path in source.rglob(_TIMINGS):
            write_atomic(work / path.relative_to(source), path.read_bytes())
        if (self.root / _RECIPE).exists():
            write_atomic(work / _RECIPE, (self.root / _RECIPE).read_bytes())
        write_atomic(work / _MANIFEST, record(manifest))
        self._place(work, self.folder(plan.name))
        for begun in self._begun(plan):
            shutil.rmtree(begun)
        return self.folder(plan.name)

    def sweep(self, plans: Sequence[StagePlan] = ()) -> None:
        """Remove what a kill left of stages that had given way to new ones or were on their way from another run, and progress
        of ``plans`` that are done."""
        for old in (*self._work.glob("*.old"), *self._work.glob("*.taken")):
            shutil.rmtree(old)
        for plan in plans:
            if self.is_done(plan):
                for other in self._begun(plan):
                    shutil.rmtree(other)

    def _begun(self, plan: StagePlan) -> list[Path]:
        """Folders of progress on a stage, for any key; those of a stage whose name only begins alike are not among them."""
        form = re.compile(re.escape(_flat(plan.name)) + r"-[0-9a-f]{16}(x[0-9]+)?")
        return [path for path in self._work.glob("*") if form.fullmatch(path.name)]

    def _seal(self, plan: StagePlan, key: str, work: Path, summary: dict[str, Any], seconds: float) -> None:
        timings = _read_timings(work)
        timings["seconds"] = round(seconds, 3)
        write_atomic(work / _TIMINGS, to_json(timings))
        if (self.root / _RECIPE).exists():
            write_atomic(work / _RECIPE, (self.root / _RECIPE).read_bytes())
        apart = (_TIMINGS, _MANIFEST, _RECIPE)
        names = sorted(name for name in _files(work) if Path(name).name not in apart and Path(name).parts[0] != _SCRATCH)
        files = {name: hash_file(work / name) for name in names}
        write_atomic(
            work / _MANIFEST,
            record({"stage": plan.name, "key": key, "summary": summary, "section": plan.section, "files": files}),
        )

    def _place(self, work: Path, final: Path) -> None:
        if (work / _SCRATCH).exists():  # only now that the stage is sealed: half a checkpoint is worse than none
            shutil.rmtree(work / _SCRATCH)
        final.parent.mkdir(parents=True, exist_ok=True)
        old = self._work / f"{_flat(final.relative_to(self.root).as_posix())}.old"
        shutil.rmtree(old, ignore_errors=True)
        if final.exists():
            os.replace(final, old)  # a rename, so that a kill leaves no half-removed stage in place
        os.replace(work, final)
        shutil.rmtree(old, ignore_errors=True)


def _named(holder: Path) -> str:
    """Which process works in a folder, if known."""
    try:
        record = parse_json(holder.read_text(encoding="utf-8"))
        return f" ({record['process']} on {record['machine']}, since {record['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _flat(name: str) -> str:
    return name.replace("/", "--")


def _files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def _begin(work: Path) -> float:
    """Record that a stage's making starts or resumes; returns the seconds of earlier attempts. An interrupted attempt is taken to
    have lasted until it last wrote a file."""
    path = work / _SCRATCH / _LIVES
    seconds = 0.0
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        known = parse_json(path.read_text())
        last = max((work / name).stat().st_mtime for name in _files(work))
        lasted = last - known["begun"]
        seconds = float(known["seconds"]) + (lasted if 0 < lasted < _LONGEST_LIFE else 0.0)
    write_atomic(path, to_json({"seconds": round(seconds, 3), "begun": time.time()}))
    return seconds


def _read_timings(folder: Path) -> dict[str, Any]:
    try:
        loaded = parse_json((folder / _TIMINGS).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    if not isinstance(loaded, dict):
        return {}
    seconds = loaded.get("seconds")
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return loaded if known else {name: value for name, value in loaded.items() if name != "seconds"}


def _is_record(loaded: Any) -> bool:
    """Whether a JSON value has all that is read of a stage's record, each of its type."""
    fields = {"key": str, "summary": dict, "files": dict}
    if not isinstance(loaded, dict) or not all(isinstance(loaded.get(name), kind) for name, kind in fields.items()):
        return False
    rows, notes = loaded["summary"].get("rows"), loaded["summary"].get("notes", [])
    lists = (notes, list(loaded["files"].values()))
    typed = isinstance(rows, int | None) and all(
        isinstance(part, list) and all(isinstance(x, str) for x in part) for part in lists
    )
    # A stranger's record must not have files outside of the stage read or overwritten.
    return typed and all(map(is_within, loaded["files"]))
