"""A task in a Python file of the user's own, named in a recipe by its path: ``problems.tasks: [{task: mytask.py}]``.

The file is run as code, with all that this process may do: a recipe that names a task file is to be trusted as a program is.
It ends in ``TASK = Task(...)``; what it imports is found as by any script that is not in the folder it is run from, so
helpers go into the same file or are installed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import traceback
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from cirf.errors import CirfError
from cirf.tasks.shots import Shot, fault
from cirf.tasks.task import Task


def load_task(path: str) -> Task:
    """The ``TASK`` of a file, with the hash of the file as its ``origin``.

    ``CirfError`` if the file is not there, fails as code (with the line), has no ``TASK`` that is a ``Task``, or one of its
    worked examples is not read as it is answered.
    """
    try:
        content = Path(path).expanduser().read_bytes()
    except FileNotFoundError:
        raise CirfError(f"{path}: no such file; problems.tasks names it as a task of your own") from None
    except OSError as error:
        raise CirfError(f"{path}: cannot be read ({error.strerror}); name a Python file that this user may read") from None
    return _run(path, content)


@lru_cache(maxsize=64)
def _run(path: str, content: bytes) -> Task:
    origin = hashlib.sha256(content).hexdigest()
    module = ModuleType(f"cirf_own_{origin[:16]}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # where dataclasses and the like look for the module of a class
    try:
        exec(compile(content, path, "exec"), module.__dict__)
    except SyntaxError as error:
        raise CirfError(f"{path}, line {error.lineno}: not valid Python ({error.msg})") from None
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        said = " ".join(str(error).split())[:200]
        raise CirfError(f"{path}, line {lines[-1] if lines else 1}: {type(error).__name__}: {said}") from None
    task = module.__dict__.get("TASK")
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
