"""A task in a Python file of the user's own, named in a recipe by its path: ``problems.tasks: [{task: mytask.py}]``.

The file is run as code (see `cirf.user_code`). It ends in ``TASK = Task(...)``.
"""

from __future__ import annotations

import dataclasses

from cirf.errors import CirfError
from cirf.tasks.shots import Shot, fault
from cirf.tasks.task import Task
from cirf.user_code import read_user_code


def load_task(path: str) -> Task:
    """The ``TASK`` of a file, with the hash of the file as its ``origin``.

    ``CirfError`` if the file is not there, fails as code (with the line), has no ``TASK`` that is a ``Task``, or one of its
    worked examples is not read as it is answered.
    """
    defined, origin = read_user_code(path, "problems.tasks names it as a task of your own")
    task = defined.get("TASK")
    if task is None:
        raise CirfError(f"{path}: defines no TASK; end the file with TASK = Task(...), from cirf.tasks.task")
    if not isinstance(task, Task):
        raise CirfError(f"{path}: TASK is {type(task).__name__}, expected Task; write TASK = Task(...), from cirf.tasks.task")
    for place, shot in enumerate(task.shots, 1):
        if not isinstance(shot, Shot):
            raise CirfError(f"{path}: shots: example {place} is {type(shot).__name__}, expected Shot, from cirf.tasks.shots")
        if wrong := _fault(shot, task):
            raise CirfError(f"{path}: shots: example {place} ({shot.question[:40]!r}): {wrong}; mend it, or the task's parser")
    return dataclasses.replace(task, origin=origin)


def _fault(shot: Shot, task: Task) -> str | None:
    try:
        return fault(shot, task)
    except Exception as error:  # the file's own parser and equality may fail in any way
        return f"reading its answer fails ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
