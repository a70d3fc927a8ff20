"""Sources of rows: a mirror folder, the hub, or files of a user's own task; each row is parsed by the task's ``row``."""

import dataclasses
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from cirf.assets import data_folder
from cirf.errors import CirfError
from cirf.recipe.schema import TaskEntry
from cirf.records import Dropped, Problem
from cirf.store.jsonl import Refused, RowError, numbered_rows, row_numbers, sorting_out
from cirf.store.paths import user_path
from cirf.store.row_files import read_row_file
from cirf.tasks.loading.unusable import Tolerance
from cirf.tasks.own_rows import find_file
from cirf.tasks.task import HubPart, LeftOutError, Task


@dataclass(frozen=True, slots=True)
class Reading:
    """How problems are read: mirror folder, seed, tolerance for unusable rows, and whether to split off a test. ``left_out``
    collects the rows that a task leaves out on purpose."""

    data: str | None
    seed: int
    tolerance: Tolerance
    whole: bool
    left_out: list[Dropped] = field(default_factory=list)


def mirror_paths(task: Task, data: str | None, split: str) -> dict[str, Path]:
    """The paths in a mirror folder (``None``: the one that ``cirf data get`` fills) of the parts of a published data set's
    ``split``; none if it has no such split."""
    assert task.hub is not None
    folder = (data_folder() if data is None else user_path(data)) / task.name
    return {part.stem: folder / f"{part.stem}.jsonl" for part in task.hub.parts(split)}


def mirror_files(task: Task, data: str | None, split: str) -> dict[str, Path] | None:
    """As ``mirror_paths``; ``None`` to use the hub: no folder is named, and the one of ``cirf data get`` lacks a file.
    ``CirfError`` if the folder that is named lacks one."""
    paths = mirror_paths(task, data, split)
    if data is None and not all(path.is_file() for path in paths.values()):
        return None
    for path in paths.values():
        if not path.is_file():
            assert task.hub is not None
            wanted = f"{task.name}/{path.name} with {task.hub.id}'s columns"
            raise CirfError(f"{path}: no such file; the data folder (--data) must hold {wanted}")
    return paths


def own_files(entry: TaskEntry, task: Task, data: str | None) -> dict[str, Path]:
    """The files of a user's own task by split: the recipe's, else those that the task names, next to its own file. Without one
    for ``train`` the task is for testing only. ``CirfError`` for files of unknown splits, or no ``row`` to read them by."""
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
    """The problems with ids of the run. If the data's ids are incomplete or not unique, places replace them."""
    own = [problem.id for problem in problems]
    use = all(own) and len(set(own)) == len(own)
    ids = own if use else range(len(own))
    return [dataclasses.replace(one, id=f"{table}/{split}/{name}", task=table) for one, name in zip(problems, ids, strict=True)]


def from_file(task: Task, table: str, split: str, path: Path, reading: Reading) -> list[Problem]:
    """The problems of one file, without the ids of the run; ``CirfError`` if there is none in it."""
    refused = reading.tolerance.begin()
    file = read_row_file(path, refused)
    problems = _read_all(task, _Place(table, split, path.name, f"{path}, {file.word}", None), file.rows, refused, reading)
    if not problems:
        raise CirfError(f"{path}: holds no usable row")
    return problems


def published(task: Task, table: str, split: str, reading: Reading) -> list[Problem]:
    """The rows of a published data set's split, from the mirror folder or the hub; none where it has no such split. The rows of
    several configurations alternate, so that the first rows have some of each. Malformed published rows are left out and counted;
    ``CirfError`` for a part without valid rows."""
    assert task.hub is not None
    parts = task.hub.parts(split)
    lenient = reading.data is not None and reading.tolerance.looking and split == "test"
    if lenient and not all(path.is_file() for path in mirror_paths(task, reading.data, split).values()):
        return []
    paths = mirror_files(task, reading.data, split)
    read = []
    for part in parts:
        refused = reading.tolerance.begin()
        if paths is not None:
            path = paths[part.stem]
            rows, name, where = numbered_rows(path, refused), f"{task.name}/{path.name}", f"{path}, line"
        else:
            name = f"{task.hub.id} ({f'{part.config}, {part.split}' if part.config else part.split})"
            rows, where = list(enumerate(hub_rows(task, part), 1)), f"{name}, row"
        read.append(_read_all(task, _Place(table, split, name, where, part.config), rows, refused, reading, published=True))
    in_turn = chain.from_iterable(zip_longest(*read)) if any(part.config for part in parts) else chain.from_iterable(read)
    return named([problem for problem in in_turn if problem is not None], table, split)


@dataclass(frozen=True, slots=True)
class _Place:
    """The table and split of a file's rows, its name in lists and messages, and its configuration."""

    table: str
    split: str
    file: str
    where: str
    config: str | None


def _read_all(
    task: Task,
    at: _Place,
    rows: Sequence[tuple[int, Mapping[str, Any]]],
    refused: Refused | None,
    reading: Reading,
    published: bool = False,
) -> list[Problem]:
    """The problems of some rows with their numbers. Without its own id, a row of a configuration gets ``CONFIG-PLACE``.
    ``CirfError`` if more rows than the reading allows cannot be used, those that are malformed as ``published`` apart."""
    kept: list[tuple[int, Problem]] = []
    left_out: list[tuple[int, Dropped]] = []
    malformed: Refused = []
    places = row_numbers([number for number, _ in rows], refused or ())
    for number, row in rows:
        with sorting_out(refused):
            try:
                problem = _read(task, row if at.config is None else {**row, "config": at.config}, f"{at.where} {number}")
            except _MalformedError as error:
                with sorting_out(malformed if published else refused):
                    raise error
                continue
            except LeftOutError as reason:
                own = str(row["id"]) if row.get("id") and not at.config else f"{at.config or at.split}-{places[number]}"
                left_out.append((places[number], Dropped(f"{at.table}/{at.split}/{own}", None, "problems", str(reason))))
                continue
            kept.append((places[number], problem))
    skipped = [place for place, _ in left_out]
    problems = []
    for place, problem in kept:
        if at.config is not None and not problem.id:
            problem = dataclasses.replace(problem, id=f"{at.config}-{place}")
        elif (refused or malformed) and not problem.id:  # rationales may name it by its place among all rows
            problem = dataclasses.replace(problem, id=str(place - bisect_left(skipped, place)))
        problems.append(problem)
    usable = len(problems) + len(left_out)
    reading.tolerance.settle(at.file, usable + len(malformed), refused)
    reading.tolerance.settle(at.file, usable + len(refused or ()), malformed, published=True)
    reading.left_out.extend(row for _, row in left_out)
    return problems


class _MalformedError(RowError):
    """A row with all columns, but invalid values."""


def _read(task: Task, row: Mapping[str, Any], where: str) -> Problem:
    assert task.row is not None
    try:
        problem = task.row(row)
    except KeyError as error:
        raise RowError(where, f"the column {error.args[0]!r} that {task.name} rows have is missing") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise _MalformedError(where, f"not a row of {task.name} ({error})", f"not a row of {task.name}") from None
    if not problem.question:
        raise _MalformedError(where, "the question is empty")
    return problem


def hub_rows(task: Task, part: HubPart) -> list[dict[str, Any]]:
    """The rows of a piece of a data set on the hub; ``CirfError`` if the hub does not give them."""
    from datasets import Image, load_dataset  # takes 1.5 s, so only when the hub is used

    assert task.hub is not None
    try:
        found = load_dataset(task.hub.id, part.config or task.hub.config, split=part.split, revision=task.hub.revision)
        for name, feature in found.features.items():
            if isinstance(feature, Image):  # only whether there is a picture matters
                found = found.cast_column(name, Image(decode=False))
    except Exception as error:  # the hub, the network and the cache fail in dozens of ways; all end here the same
        first = (str(error).splitlines() or [""])[0][:200]
        raise CirfError(
            f"{task.name}: cannot get {task.hub.id} from the hub ({type(error).__name__}: {first}); "
            f"check the connection, or give a folder that holds {task.name}/{part.stem}.jsonl with --data"
        ) from None
    return [dict(row) for row in found]
