"""The tasks, by name. A new one is a ``Task`` and a line here; other packages add theirs by entry points (``cirf.tasks``).

A task in a Python file of the user's own, named in a recipe by its path: ``problems.tasks: [{task: mytask.py}]``. The file is run
as code (see `cirf.user_code`). It ends in ``TASK = Task(...)``.
"""

from __future__ import annotations

import dataclasses
import difflib
from typing import TYPE_CHECKING

from cirf.errors import CirfError
from cirf.registry import Registry
from cirf.tasks.shots import Shot, fault
from cirf.tasks.task import Task
from cirf.user_code import OWN, read_user_code

if TYPE_CHECKING:
    from cirf.recipe.schema import Problems


TASKS: Registry[Task] = Registry(
    "cirf.tasks",
    {
        "gsm8k": "cirf.tasks.benchmarks.public:GSM8K",
        "svamp": "cirf.tasks.benchmarks.public:SVAMP",
        "multiarith": "cirf.tasks.benchmarks.public:MULTIARITH",
        "coin_flip": "cirf.tasks.benchmarks.public:COIN_FLIP",
        "commonsense_qa": "cirf.tasks.benchmarks.public:COMMONSENSE_QA",
        "math500": "cirf.tasks.benchmarks.public:MATH500",
        "bbh": "cirf.tasks.benchmarks.bbh:TASK",
        "strategyqa": "cirf.tasks.benchmarks.public:STRATEGYQA",
        "scienceqa": "cirf.tasks.benchmarks.public:SCIENCEQA",
        "made_coin_flip": "cirf.tasks.benchmarks.made:MADE_COIN_FLIP",
        "chain_sum": "cirf.tasks.benchmarks.made:CHAIN_SUM",
        "leg_counting": "cirf.tasks.benchmarks.made:LEG_COUNTING",
    },
)

JSONL = "jsonl"  # the task name in a recipe for a user's own file
__all__ = ["JSONL", "OWN", "TASKS", "get", "names", "resolve"]


def names() -> tuple[str, ...]:
    """Every registered task's name (``jsonl`` is none: its tasks are built from the recipe)."""
    return tuple(TASKS)


def get(name: str) -> Task:
    """The task of that name, or in the Python file of that path; ``CirfError`` names the nearest one if there is none."""
    if name.endswith(OWN):
        return load_task(name)
    if name not in TASKS:
        known = (*TASKS, JSONL)
        near = difflib.get_close_matches(name, known, 1, 0.0)
        raise CirfError(f"problems.tasks: there is no task {name!r}; the nearest is {near[0]!r} (all: {', '.join(known)})")
    task = TASKS[name]
    if not isinstance(task, Task):
        raise CirfError(f"problems.tasks: {name} of {TASKS.origin(name)} is {type(task).__name__}, expected cirf.tasks.task.Task")
    return dataclasses.replace(task, origin=TASKS.origin(name)) if TASKS.origin(name) else task


def resolve(section: Problems, lenient: bool = False) -> dict[str, Task]:
    """The tasks of a recipe by table name (``entry.name`` or ``entry.task``); ``jsonl`` ones are built from their files.
    ``lenient``: rows of these files that cannot be used are passed over instead of raised, as where the recipe allows some."""
    found = {}
    for entry in section.tasks:
        name = entry.name or entry.task
        if entry.task == JSONL:
            from cirf.tasks.own_rows import build_task

            found[name] = build_task(entry, section.data, lenient or section.max_unusable_share > 0, section.max_unusable_share)
        else:
            found[name] = get(entry.task)
    return found


def load_task(path: str) -> Task:
    """The ``TASK`` of a file, with the hash of the file as its ``origin``. ``CirfError`` if the file is not there, fails as code
    (with the line), has no ``TASK`` that is a ``Task``, or one of its worked examples is not read as it is answered."""
    defined, origin = read_user_code(path, "problems.tasks names it as a task of your own")
    task = defined.get("TASK")
    if task is None:
        raise CirfError(f"{path}: defines no TASK; end the file with TASK = Task(...), from cirf.tasks.task")
    if not isinstance(task, Task):
        raise CirfError(f"{path}: TASK is {type(task).__name__}, expected Task; write TASK = Task(...), from cirf.tasks.task")
    for index, shot in enumerate(task.shots, 1):
        if not isinstance(shot, Shot):
            raise CirfError(f"{path}: shots: example {index} is {type(shot).__name__}, expected Shot, from cirf.tasks.shots")
        if wrong := _fault(shot, task):
            raise CirfError(f"{path}: shots: example {index} ({shot.question[:40]!r}): {wrong}; fix it, or the task's parser")
    return dataclasses.replace(task, origin=origin)


def _fault(shot: Shot, task: Task) -> str | None:
    try:
        return fault(shot, task)
    except Exception as error:  # the file's own parser and equality may fail in any way
        return f"reading its answer fails ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
