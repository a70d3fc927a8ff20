"""All problems of a run: read or generated, drawn by the seed, split, and with no question in both train and test.

LoadedProblems(
    train=[Problem("gsm8k/train/17", ...), ...],
    validation=[Problem("gsm8k/train/4", ...), ...],
    test={"gsm8k": [Problem("gsm8k/test/0", ...), ...]},
    report={"tasks": {...}, "leaks": [["gsm8k/train/9", "gsm8k/test/3"]], "dropped": {...}, "warnings": []},
)
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from cirf.errors import CirfError
from cirf.recipe.schema import Problems, TaskEntry
from cirf.records import Dropped, Problem
from cirf.store.row_files import read_row_file
from cirf.tasks import JSONL, get, resolve
from cirf.tasks.loading import generated
from cirf.tasks.loading.questions import question_key
from cirf.tasks.loading.sources import Reading, from_file, mirror_files, named, own_files, published
from cirf.tasks.loading.unusable import Tolerance, Unusable
from cirf.tasks.own_rows import read_split, row_notes, test_path, train_path
from cirf.tasks.task import Task

_CUT_SHARE = 0.2  # of a user's only file, for the test, if the recipe gives no number
_LEAK, _TWICE = "question is also in the test", "the question appears twice"
_APART = "test rows of the training split"


@dataclass(frozen=True)
class LoadedProblems:
    """Problems by use. ``test`` has every table name of the recipe; ``report`` is JSON: counts, leaks, drops, warnings.
    ``dropped``: questions left out; ``unusable``: invalid rows by file."""

    train: list[Problem]
    validation: list[Problem]
    test: dict[str, list[Problem]]
    report: dict[str, Any]
    dropped: list[Dropped]
    unusable: list[Unusable]


def load_problems(section: Problems, seed: int, tolerance: Tolerance | None = None, whole: bool = False) -> LoadedProblems:
    """Every problem the recipe asks for.

    A training question that is also a test question of any task of the run (up to case, spacing and punctuation; the whole test
    split counts, not just the rows taken) is dropped and reported; so is one that occurs twice in train. Then ``entry.train``
    rows are drawn by the seed, and ``section.validation`` of them held out. ``entry.test_from_train`` training rows, drawn before
    all that, join the test, of which ``section.limit`` are taken. Ids are ``TABLE/SPLIT/ROW``, ``ROW`` being the data's own id or
    the row's place. ``CirfError``: unreadable or missing data, a file with more rows that cannot be used than
    ``section.max_unusable_share`` allows, an option a task does not have, fewer generated questions than requested.

    For inspection: a ``tolerance`` with ``looking`` collects all unusable rows, and a mirror's missing test file is accepted;
    ``whole`` splits no test from a user's only file.
    """
    tolerance = tolerance or Tolerance(section.max_unusable_share)
    tasks = resolve(section, lenient=tolerance.looking)
    entries = {entry.name or entry.task: entry for entry in section.tasks}
    reading = Reading(section.data, seed, tolerance, whole)
    pools = {table: _pool(entry, tasks[table], table, reading) for table, entry in entries.items()}
    apart = {table: _set_apart(*pools[table], entry.test_from_train, f"{seed}/{table}/apart") for table, entry in entries.items()}
    kept, leaks = _without_leaks(pools, apart, reading.left_out)
    train: list[Problem] = []
    validation: list[Problem] = []
    test_rows: dict[str, list[Problem]] = {}
    counts: dict[str, dict[str, int | str]] = {}
    warnings: list[str] = []
    for table, entry in entries.items():
        pool, test = pools[table]
        drawn = _draw(kept[table], entry.train, f"{seed}/{table}/train")
        held, rest = _split(drawn, section.validation, f"{seed}/{table}/validation")
        taken = [*test[: entry.test], *apart[table]][: section.limit]
        train += rest
        validation += held
        test_rows[table] = taken
        counts[table] = {
            "task": entry.task, "available_train": len(pool), "available_test": len(test),
            "train": len(rest), "validation": len(held), "test": len(taken),
        }  # fmt: skip
        found = {"train rows": len(drawn), "test rows": len(test[: entry.test]), _APART: len(apart[table])}
        warnings += _warnings(entry, table, tasks[table], found)
        if entry.task == JSONL:
            warnings += [f"{table}: {note}" for note in row_notes(entry, section.data, section.max_unusable_share)]
    reasons = tolerance.reasons + Counter(row.reason for row in reading.left_out)
    report = {"tasks": counts, "leaks": leaks, "dropped": dict(reasons), "warnings": warnings} | tolerance.report
    return LoadedProblems(train, validation, test_rows, report, reading.left_out, tolerance.files)


def _key(problem: Problem) -> tuple[str, ...]:
    """The same for the same question with the same options, in any order. *Which sentence is right?* alone is no question."""
    return (question_key(problem.question), *sorted(map(question_key, problem.choices or ())))


def _without_leaks(
    pools: Mapping[str, tuple[list[Problem], list[Problem]]], apart: Mapping[str, list[Problem]], dropped: list[Dropped]
) -> tuple[dict[str, list[Problem]], list[list[str]]]:
    """Training problems by table, without duplicates and test questions, and the leaks, ids of a training and a test problem.
    Those left out are added to ``dropped``."""
    tested: dict[tuple[str, ...], str] = {}
    for table, (_, test) in pools.items():
        for problem in (*test, *apart[table]):
            tested.setdefault(_key(problem), problem.id)
    seen: dict[tuple[str, ...], str] = {}
    leaks: list[list[str]] = []
    kept: dict[str, list[Problem]] = {table: [] for table in pools}
    for table, (pool, _) in pools.items():
        others = {problem.id for problem in apart[table]}
        for problem in pool:
            if problem.id in others:
                continue
            key = _key(problem)
            answer = dict(enumerate(problem.choices or ())).get(ord(problem.answer[:1] or "0") - ord("A"), problem.answer)
            if key in tested:
                leaks.append([problem.id, tested[key]])
                dropped.append(Dropped(problem.id, None, "problems", _LEAK))
            elif key in seen:
                differs = "" if seen[key] == answer else ", with another answer"
                dropped.append(Dropped(problem.id, None, "problems", _TWICE + differs))
            else:
                seen[key] = answer
                kept[table].append(problem)
    return kept, leaks


def _warnings(entry: TaskEntry, table: str, task: Task, found: Mapping[str, int]) -> list[str]:
    """Requests of an entry that cannot be met; ``found``: rows by kind."""
    only = task.evaluation_only
    useless = [key for key in ("train", "rows", "test_from_train") if only and getattr(entry, key)]
    summary = [f"{table}: it is for evaluation only and has no training rows; remove {key}" for key in useless]
    for rows, asked in zip(found, (entry.train, entry.test, entry.test_from_train), strict=True):
        if asked is not None and found[rows] < asked and (rows == "test rows" or not only):
            summary.append(f"{table}: {asked} {rows} were requested, {found[rows]} exist")
    return summary


def source_files(section: Problems) -> dict[str, Path]:
    """The files that ``load_problems`` reads, by ``TABLE/SPLIT``; none for the hub and for generated tasks."""
    found: dict[str, Path] = {}
    for entry in section.tasks:
        table = entry.name or entry.task
        if entry.task == JSONL:
            test = test_path(entry, section.data)
            train = train_path(entry, section.data)
            found |= {f"{table}/train": train} if train is not None else {}
            found |= {f"{table}/test": test} if test is not None else {}
            continue
        task = get(entry.task)
        if task.origin and (files := own_files(entry, task, section.data)):
            found |= {f"{table}/{split}": path for split, path in files.items()}
        elif task.hub is not None:
            for split in task.hub.splits:
                paths = mirror_files(task, section.data, split) or {}
                for part, path in paths.items():
                    found[f"{table}/{split}/{part}" if len(paths) > 1 else f"{table}/{split}"] = path
    return found


def _draw(problems: Sequence[Problem], count: int | None, seed: str) -> list[Problem]:
    """``count`` of them in their own order; a larger count includes a smaller one's."""
    places = list(range(len(problems)))
    Random(seed).shuffle(places)
    return [problems[place] for place in sorted(places[:count])]


def _set_apart(pool: Sequence[Problem], test: Sequence[Problem], count: int, seed: str) -> list[Problem]:
    """``count`` additional test problems from the training split, all different and none of the test's."""
    if not count:
        return []
    tested = set(map(_key, test))
    first: dict[tuple[str, ...], Problem] = {}
    for problem in pool:
        first.setdefault(_key(problem), problem)
    return _draw([problem for key, problem in first.items() if key not in tested], count, seed)


def _split(problems: Sequence[Problem], share: float, seed: str) -> tuple[list[Problem], list[Problem]]:
    """``(held out, rest)``, at least one row on each side where the share is above zero and there are two."""
    count = round(share * len(problems))
    if 0 < share < 1 and len(problems) > 1:
        count = min(max(count, 1), len(problems) - 1)
    held = {problem.id for problem in _draw(problems, count, seed)}
    return [p for p in problems if p.id in held], [p for p in problems if p.id not in held]


def _pool(entry: TaskEntry, task: Task, table: str, reading: Reading) -> tuple[list[Problem], list[Problem]]:
    if entry.task == JSONL:
        return _jsonl(entry, task, table, reading)
    mine = ("train_file", "test_file") if task.origin else ()
    for key in ("train_file", "test_file", "answer", "columns", "delimiter"):
        if getattr(entry, key) and key not in mine:
            raise CirfError(f"problems.tasks: {key} is for jsonl tasks, {table} is {entry.task}; remove it or set task: jsonl")
    options = generated.settle(task, entry.options)
    if task.origin and (files := own_files(entry, task, reading.data)):
        read = {split: from_file(task, table, split, path, reading) for split, path in files.items()}
        return _both(read.get("train", []), read.get("test"), entry, table, str(files.get("train")), reading)
    if task.generated:
        sizes = {"train": entry.train or generated.TRAIN_DEFAULT, "test": entry.test or generated.TEST_DEFAULT}
        made = {split: generated.draw(task, table, split, reading.seed, count, options) for split, count in sizes.items()}
        return made["train"], made["test"]
    if task.hub is None:
        raise CirfError(f"{task.name}: the task has no data; give it hub, make or files, or the recipe train_file and test_file")
    return published(task, table, "train", reading), published(task, table, "test", reading)


def _jsonl(entry: TaskEntry, task: Task, table: str, reading: Reading) -> tuple[list[Problem], list[Problem]]:
    if entry.options:
        raise CirfError(f"problems.tasks: options are for generated tasks, {table} is jsonl; remove them")
    paths = (find(entry, reading.data) for find in (train_path, test_path))
    how = (task.answer, reading.tolerance, entry.columns, task.decimal_commas, entry.delimiter)
    train, test = (read_split(path, *how) for path in paths)
    return _both(train or [], test, entry, table, str(entry.train_file), reading)


def _both(
    train: list[Problem], test: list[Problem] | None, entry: TaskEntry, table: str, file: str, reading: Reading
) -> tuple[list[Problem], list[Problem]]:
    """Both splits of a user's files. Without a test file the test is cut from ``file``; rows of one question stay on one side."""
    if test is None and reading.whole:
        test = []
    if test is None:
        questions = list(dict.fromkeys(map(_key, train)))
        Random(f"{reading.seed}/{table}/test").shuffle(questions)
        wanted = entry.test or cut_of(len(questions))
        cut = set(questions[:wanted])
        if len(cut) == len(questions):
            tolerance = reading.tolerance
            for unusable in tolerance.files:  # when looking, they have stopped nothing yet
                if unusable.file == Path(file).name and unusable.stops(tolerance.allowed):
                    raise unusable.too_many(tolerance.allowed)
            few = f"too few different questions ({len(questions)}) to cut {wanted} test rows from"
            raise CirfError(f"{file}: {few}; give test_file or lower test")
        first: dict[tuple[str, ...], Problem] = {}
        for problem in train:
            first.setdefault(_key(problem), problem)
        test = [problem for key, problem in first.items() if key in cut]
        keyed = [(_key(problem), problem) for problem in train]
        again = [problem for key, problem in keyed if key in cut and first[key] is not problem]
        reading.left_out.extend(Dropped(problem.id, None, "problems", _LEAK) for problem in named(again, table, "train"))
        train = [problem for problem in train if _key(problem) not in cut]
    return named(train, table, "train"), named(test, table, "test")


def default_cut(path: Path) -> int:
    """About how many rows of a user's only file are split off for the test if the recipe gives no number."""
    return cut_of(len(read_row_file(path, []).rows))


def cut_of(rows: int) -> int:
    """How many of ``rows`` rows are split off for the test if the recipe gives no number."""
    return max(1, round(_CUT_SHARE * rows))
