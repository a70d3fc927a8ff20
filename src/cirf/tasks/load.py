"""All problems of a run: read or made, drawn by the seed, split, and with no question in both train and test.

LoadedProblems(
    train=[Problem("gsm8k/train/17", ...), ...],
    validation=[Problem("gsm8k/train/4", ...), ...],
    test={"gsm8k": [Problem("gsm8k/test/0", ...), ...]},
    report={"tasks": {...}, "leaks": [["gsm8k/train/9", "gsm8k/test/3"]], "dropped": {...}, "warnings": []},
)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from cirf.errors import CirfError
from cirf.recipe import Problems, TaskEntry
from cirf.records import Dropped, Problem
from cirf.rows import Refused, RowError, numbered_rows, sorting_out
from cirf.tasks import JSONL, generated, get, resolve
from cirf.tasks.questions import question_key
from cirf.tasks.task import Task

_CUT_SHARE = 0.2  # of a user's only file, for the test, where the recipe says no number
_LEAK, _TWICE = "question is also in the test", "question stands twice"


@dataclass(frozen=True)
class LoadedProblems:
    """Problems by use. ``test`` has every table name of the recipe; ``report`` is JSON: counts, leaks, drops, warnings."""

    train: list[Problem]
    validation: list[Problem]
    test: dict[str, list[Problem]]
    report: dict[str, Any]
    dropped: list[Dropped]


def load_problems(section: Problems, seed: int, refused: Refused | None = None, whole: bool = False) -> LoadedProblems:
    """Every problem the recipe asks for.

    A training question that is also a test question of any task of the run (up to case, spacing and punctuation; the
    whole test split counts, not just the rows taken) is dropped and reported; so is one that stands twice in train.
    Then ``entry.train`` rows are drawn by the seed, and ``section.validation`` of them held out. ``entry.test_from_train``
    training rows, drawn before all that, join the test. Ids are ``TABLE/SPLIT/ROW``, ``ROW`` being the data's own id or the
    row's place. ``CirfError``: unreadable or missing data, an option a task does not have, fewer generated questions than
    asked for.

    To look at data rather than use them: rows that cannot be used go to ``refused`` if it is given, and a missing test
    file of a mirror is let pass; ``whole`` cuts no test from a user's only file.
    """
    tasks = resolve(section, lenient=refused is not None)
    entries = {entry.name or entry.task: entry for entry in section.tasks}
    reading = _Reading(section.data, seed, refused, whole)
    pools = {table: _pool(entry, tasks[table], table, reading) for table, entry in entries.items()}
    apart = {table: _set_apart(*pools[table], entry.test_from_train, f"{seed}/{table}/apart") for table, entry in entries.items()}
    tested: dict[str, str] = {}
    for table, (_, test) in pools.items():
        for problem in (*test, *apart[table]):
            tested.setdefault(question_key(problem.question), problem.id)
    seen: dict[tuple[str, ...], str] = {}
    leaks: list[list[str]] = []
    dropped: list[Dropped] = []
    train: list[Problem] = []
    validation: list[Problem] = []
    counts: dict[str, dict[str, int | str]] = {}
    warnings: list[str] = []
    for table, entry in entries.items():
        pool, test = pools[table]
        others = {problem.id for problem in apart[table]}
        kept = []
        for problem in pool:
            if problem.id in others:
                continue
            key = question_key(problem.question)
            full = (key, *map(question_key, problem.choices or ()))
            if key in tested:
                leaks.append([problem.id, tested[key]])
                dropped.append(Dropped(problem.id, None, "problems", _LEAK))
            elif full in seen:
                dropped.append(Dropped(problem.id, None, "problems", _TWICE))
            else:
                seen[full] = problem.id
                kept.append(problem)
        drawn = _draw(kept, entry.train, f"{seed}/{table}/train")
        held, rest = _split(drawn, section.validation, f"{seed}/{table}/validation")
        taken = [*test[: entry.test], *apart[table]]
        train += rest
        validation += held
        counts[table] = {
            "task": entry.task, "available_train": len(pool), "available_test": len(test),
            "train": len(rest), "validation": len(held), "test": len(taken),
        }  # fmt: skip
        for rows, asked, got in (
            ("train rows", entry.train, len(drawn)),
            ("test rows", entry.test, len(test[: entry.test])),
            ("test rows of the training split", entry.test_from_train, len(apart[table])),
        ):
            if asked is not None and got < asked:
                warnings.append(f"{table}: {asked} {rows} were asked for, {got} are there")
        pools[table] = (pool, taken)
        if entry.task == JSONL:
            from cirf.tasks.jsonl import kind_note

            odd = kind_note(entry, section.data, refused)
            warnings += [f"{table}: {odd}"] if odd else []
    if {"gsm8k", "gsm_symbolic"} <= {entry.task for entry in section.tasks}:
        warnings.append("gsm_symbolic's templates follow the GSM8K test set: a GSM8K score after training on it means nothing")
    reasons = {reason: sum(row.reason == reason for row in dropped) for reason in (_LEAK, _TWICE)}
    report = {"tasks": counts, "leaks": leaks, "dropped": {reason: n for reason, n in reasons.items() if n}, "warnings": warnings}
    return LoadedProblems(train, validation, {table: test for table, (_, test) in pools.items()}, report, dropped)


def source_files(section: Problems) -> dict[str, Path]:
    """The files that ``load_problems`` reads, by ``TABLE/SPLIT``; none for the hub and for generated tasks."""
    found: dict[str, Path] = {}
    for entry in section.tasks:
        table = entry.name or entry.task
        if entry.task == JSONL:
            from cirf.tasks.jsonl import test_path, train_path

            test = test_path(entry, section.data)
            found[f"{table}/train"] = train_path(entry, section.data)
            found |= {f"{table}/test": test} if test is not None else {}
        elif (hub := get(entry.task).hub) is not None and section.data is not None:
            found |= {f"{table}/{split}": mirror_file(get(entry.task), section.data, split) for split in hub.splits}
    return found


def mirror_path(task: Task, data: str, split: str) -> Path:
    """Where a mirror folder holds our ``split`` of a published data set."""
    assert task.hub is not None
    return Path(data).expanduser() / task.name / f"{task.hub.splits[split]}.jsonl"


def mirror_file(task: Task, data: str, split: str) -> Path:
    """As ``mirror_path``; ``CirfError`` if there is no such file."""
    assert task.hub is not None
    path = mirror_path(task, data, split)
    if not path.is_file():
        raise CirfError(
            f"{path}: no such file; the data folder (--data) must hold {task.name}/{path.name} with {task.hub.id}'s columns"
        )
    return path


def _draw(problems: Sequence[Problem], count: int | None, seed: str) -> list[Problem]:
    """``count`` of them in their own order; a larger count takes the smaller one's and more."""
    places = list(range(len(problems)))
    Random(seed).shuffle(places)
    return [problems[place] for place in sorted(places[:count])]


def _set_apart(pool: Sequence[Problem], test: Sequence[Problem], count: int, seed: str) -> list[Problem]:
    """``count`` training problems to test on besides, no question twice and none of the test's."""
    if not count:
        return []
    tested = {question_key(problem.question) for problem in test}
    first: dict[str, Problem] = {}
    for problem in pool:
        first.setdefault(question_key(problem.question), problem)
    return _draw([problem for key, problem in first.items() if key not in tested], count, seed)


def _split(problems: Sequence[Problem], share: float, seed: str) -> tuple[list[Problem], list[Problem]]:
    """``(held out, rest)``, at least one row on each side where the share is above zero and there are two."""
    count = round(share * len(problems))
    if 0 < share < 1 and len(problems) > 1:
        count = min(max(count, 1), len(problems) - 1)
    held = {problem.id for problem in _draw(problems, count, seed)}
    return [p for p in problems if p.id in held], [p for p in problems if p.id not in held]


@dataclass(frozen=True, slots=True)
class _Reading:
    """How problems are read: from which mirror folder, by which seed, strictly or not, with a test cut off or not."""

    data: str | None
    seed: int
    refused: Refused | None
    whole: bool


def _pool(entry: TaskEntry, task: Task, table: str, reading: _Reading) -> tuple[list[Problem], list[Problem]]:
    """Every training and test problem of an entry, with ids."""
    if entry.task == JSONL:
        return _own(entry, task, table, reading)
    for key in ("train_file", "test_file", "answer"):
        if getattr(entry, key) is not None:
            raise CirfError(f"problems.tasks: {key} is for jsonl tasks, {table} is {entry.task}; remove it or set task: jsonl")
    options = generated.settle(task, entry.options)
    if task.generated:
        sizes = {"train": entry.train or generated.TRAIN_DEFAULT, "test": entry.test or generated.TEST_DEFAULT}
        made = {split: generated.draw(task, table, split, reading.seed, count, options) for split, count in sizes.items()}
        return made["train"], made["test"]
    return _published(task, table, "train", reading), _published(task, table, "test", reading)


def _own(entry: TaskEntry, task: Task, table: str, reading: _Reading) -> tuple[list[Problem], list[Problem]]:
    """A user's files. Without a test file the test is cut from the training file; rows of one question stay on one side."""
    from cirf.tasks.jsonl import read_test, read_train

    if entry.options:
        raise CirfError(f"problems.tasks: options are for generated tasks, {table} is jsonl; remove them")
    train = read_train(entry, task.answer, reading.data, reading.refused)
    test = read_test(entry, task.answer, reading.data, reading.refused)
    if test is None and reading.whole:
        test = []
    if test is None:
        questions = list(dict.fromkeys(question_key(problem.question) for problem in train))
        Random(f"{reading.seed}/{table}/test").shuffle(questions)
        wanted = entry.test or _cut(len(questions))
        cut = set(questions[:wanted])
        if len(cut) == len(questions):
            raise CirfError(
                f"{entry.train_file}: too few different questions ({len(questions)}) to cut {wanted} test rows from; "
                "give test_file or lower test"
            )
        first: dict[str, Problem] = {}
        for problem in train:
            first.setdefault(question_key(problem.question), problem)
        test = [problem for key, problem in first.items() if key in cut]
        train = [problem for problem in train if question_key(problem.question) not in cut]
    return _named(train, table, "train"), _named(test, table, "test")


def default_cut(path: Path) -> int:
    """About how many rows of a user's only file are cut off for the test where the recipe says no number."""
    with open(path, "rb") as file:
        return _cut(sum(1 for line in file if line.strip()))


def _cut(rows: int) -> int:
    return max(1, round(_CUT_SHARE * rows))


def _named(problems: Sequence[Problem], table: str, split: str) -> list[Problem]:
    """The problems with ids of the run. Where the data's own ids are not all there and different, places stand in."""
    own = [problem.id for problem in problems]
    use = all(own) and len(set(own)) == len(own)
    return [
        dataclasses.replace(problem, id=f"{table}/{split}/{problem.id if use else place}", task=table)
        for place, problem in enumerate(problems)
    ]


def _published(task: Task, table: str, split: str, reading: _Reading) -> list[Problem]:
    """The rows of a published data set's split, from the mirror folder or the hub; none where it has no such split."""
    assert task.hub is not None and task.row is not None
    theirs = task.hub.splits.get(split)
    if theirs is None:
        return []
    if reading.data is not None:
        if reading.refused is not None and split == "test" and not mirror_path(task, reading.data, split).is_file():
            return []
        path = mirror_file(task, reading.data, split)
        rows, where = numbered_rows(path, reading.refused), f"{path}, line"
    else:
        rows, where = list(enumerate(_download(task, theirs), 1)), f"{task.hub.id} ({theirs}), row"
    problems = []
    for number, row in rows:
        with sorting_out(reading.refused):
            problems.append(_read(task.row, row, f"{where} {number}", task))
    return _named(problems, table, split)


def _read(read: Callable[[Mapping[str, Any]], Problem], row: Mapping[str, Any], where: str, task: Task) -> Problem:
    try:
        problem = read(row)
    except KeyError as error:
        raise RowError(where, f"the column {error.args[0]!r} that {task.name} rows have is missing") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise RowError(where, f"not a row of {task.name} ({error})", f"not a row of {task.name}") from None
    if not problem.question:
        raise RowError(where, "the question is empty")
    return problem


def _download(task: Task, split: str) -> list[dict[str, Any]]:
    from datasets import load_dataset  # a second and a half: only where the hub is really asked

    assert task.hub is not None
    try:
        found = load_dataset(task.hub.id, task.hub.config, split=split, revision=task.hub.revision)
    except Exception as error:  # the hub, the network and the cache fail in dozens of ways; all end here the same
        first = (str(error).splitlines() or [""])[0][:200]
        raise CirfError(
            f"{task.name}: cannot get {task.hub.id} from the hub ({type(error).__name__}: {first}); "
            f"check the connection, or give a folder that holds {task.name}/{split}.jsonl with --data"
        ) from None
    return [dict(row) for row in found]
