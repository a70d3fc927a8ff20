"""Where rows come from: a mirror folder, the hub, or files of a user's own task; each row is read by the task's ``row``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.recipe import TaskEntry
from cirf.records import Dropped, Problem
from cirf.rows import Refused, RowError, numbered_rows, row_numbers, sorting_out
from cirf.tasks.task import HubPart, LeftOutError, Task
from cirf.tasks.unusable import Tolerance
from cirf.user_paths import user_path


@dataclass(frozen=True, slots=True)
class Reading:
    """How problems are read: from which mirror folder, by which seed, how many unusable rows being let pass, with a test cut off
    or not. ``left_out`` gathers the rows that a task leaves out on purpose."""

    data: str | None
    seed: int
    tolerance: Tolerance
    whole: bool
    left_out: list[Dropped] = field(default_factory=list)


def mirror_paths(task: Task, data: str, split: str) -> dict[str, Path]:
    """Where a mirror folder holds the parts of our ``split`` of a published data set; none where it has no such split."""
    assert task.hub is not None
    folder = user_path(data) / task.name
    return {part.stem: folder / f"{part.stem}.jsonl" for part in task.hub.parts(split)}


def mirror_files(task: Task, data: str, split: str) -> dict[str, Path]:
    """As ``mirror_paths``; ``CirfError`` if one of the files is not there."""
    paths = mirror_paths(task, data, split)
    for path in paths.values():
        if not path.is_file():
            assert task.hub is not None
            raise CirfError(
                f"{path}: no such file; the data folder (--data) must hold {task.name}/{path.name} with {task.hub.id}'s columns"
            )
    return paths


def own_files(entry: TaskEntry, task: Task, data: str | None) -> dict[str, Path]:
    """The files of a user's own task by split: the recipe's, else those that the task names, beside its own file.

    Without one for ``train`` the task is there to test on. ``CirfError`` if there are some, but of splits that there are not, or
    no ``row`` to read them by.
    """
    from cirf.tasks.jsonl import find_file

    given = {"train": entry.train_file, "test": entry.test_file}
    files = {split: find_file(name, data) for split, name in given.items() if name is not None}
    if not files:
        files = {split: user_path(entry.task).parent / user_path(name) for split, name in task.files.items()}
    if not files.keys() <= {"train", "test"}:
        raise CirfError(f"{entry.task}: files are named for {', '.join(sorted(files))}; name them for train, test or both")
    if files and task.row is None:
        raise CirfError(f"{entry.task}: TASK has files but no `row` that turns one row of them into a Problem; add it")
    return files


def named(problems: Sequence[Problem], table: str, split: str) -> list[Problem]:
    """The problems with ids of the run. Where the data's own ids are not all there and different, places stand in."""
    own = [problem.id for problem in problems]
    use = all(own) and len(set(own)) == len(own)
    return [
        dataclasses.replace(problem, id=f"{table}/{split}/{problem.id if use else place}", task=table)
        for place, problem in enumerate(problems)
    ]


def from_file(task: Task, table: str, split: str, path: Path, reading: Reading) -> list[Problem]:
    """The problems of one file, without the ids of the run; ``CirfError`` if there is none in it."""
    refused = reading.tolerance.begin()
    place = _Place(table, split, path.name, f"{path}, line", None)
    problems = _read_all(task, place, numbered_rows(path, refused), refused, reading)
    if not problems:
        raise CirfError(f"{path}: holds no usable row")
    return problems


def published(task: Task, table: str, split: str, reading: Reading) -> list[Problem]:
    """The rows of a published data set's split, from the mirror folder or the hub; none where it has no such split.

    The rows of several configurations come in turn, so that the first rows are some of each.
    """
    assert task.hub is not None
    parts = task.hub.parts(split)
    if reading.data is not None:
        paths = mirror_paths(task, reading.data, split)
        if reading.tolerance.looking and split == "test" and not all(path.is_file() for path in paths.values()):
            return []
        paths = mirror_files(task, reading.data, split)
    read = []
    for part in parts:
        refused = reading.tolerance.begin()
        if reading.data is not None:
            path = paths[part.stem]
            rows, name, where = numbered_rows(path, refused), f"{task.name}/{path.name}", f"{path}, line"
        else:
            name = f"{task.hub.id} ({f'{part.config}, {part.split}' if part.config else part.split})"
            rows, where = list(enumerate(_download(task, part), 1)), f"{name}, row"
        read.append(_read_all(task, _Place(table, split, name, where, part.config), rows, refused, reading))
    in_turn = chain.from_iterable(zip_longest(*read)) if any(part.config for part in parts) else chain.from_iterable(read)
    return named([problem for problem in in_turn if problem is not None], table, split)


@dataclass(frozen=True, slots=True)
class _Place:
    """Of which table and split the rows of a file are, what lists and messages call it, and its configuration."""

    table: str
    split: str
    file: str
    where: str
    config: str | None


def _read_all(
    task: Task, at: _Place, rows: Sequence[tuple[int, Mapping[str, Any]]], refused: Refused | None, reading: Reading
) -> list[Problem]:
    """The problems of some rows with their numbers. Without an id of its own, a row of a configuration gets ``CONFIG-PLACE``.

    ``CirfError`` if more rows than the reading allows cannot be used.
    """
    problems, left_out = [], []
    places = row_numbers([number for number, _ in rows], refused or ())
    for number, row in rows:
        with sorting_out(refused):
            try:
                problem = _read(task, row if at.config is None else {**row, "config": at.config}, f"{at.where} {number}")
            except LeftOutError as reason:
                own = str(row["id"]) if row.get("id") and not at.config else f"{at.config or at.split}-{places[number]}"
                left_out.append(Dropped(f"{at.table}/{at.split}/{own}", None, "problems", str(reason)))
                continue
            if at.config is not None and not problem.id:
                problem = dataclasses.replace(problem, id=f"{at.config}-{places[number]}")
            elif refused and not problem.id:  # rationales may name it by the place that it has with the others beside it
                problem = dataclasses.replace(problem, id=str(places[number] - len(left_out)))
            problems.append(problem)
    reading.tolerance.settle(at.file, len(problems) + len(left_out), refused)
    reading.left_out.extend(left_out)
    return problems


def _read(task: Task, row: Mapping[str, Any], where: str) -> Problem:
    assert task.row is not None
    try:
        problem = task.row(row)
    except KeyError as error:
        raise RowError(where, f"the column {error.args[0]!r} that {task.name} rows have is missing") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise RowError(where, f"not a row of {task.name} ({error})", f"not a row of {task.name}") from None
    if not problem.question:
        raise RowError(where, "the question is empty")
    return problem


def _download(task: Task, part: HubPart) -> list[dict[str, Any]]:
    from datasets import Image, load_dataset  # a second and a half: only where the hub is really asked

    assert task.hub is not None
    try:
        found = load_dataset(task.hub.id, part.config or task.hub.config, split=part.split, revision=task.hub.revision)
        for name, feature in found.features.items():
            if isinstance(feature, Image):  # whether there is a picture is all that is asked
                found = found.cast_column(name, Image(decode=False))
    except Exception as error:  # the hub, the network and the cache fail in dozens of ways; all end here the same
        first = (str(error).splitlines() or [""])[0][:200]
        raise CirfError(
            f"{task.name}: cannot get {task.hub.id} from the hub ({type(error).__name__}: {first}); "
            f"check the connection, or give a folder that holds {task.name}/{part.stem}.jsonl with --data"
        ) from None
    return [dict(row) for row in found]
