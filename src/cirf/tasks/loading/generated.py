"""Tasks whose problems are generated offline.

A task's ``make`` is an endless stream of problems, one per index, fixed by the seed. The split of a question depends on the
question alone (one in five is a test question), so train and test never share one, whatever the sizes, and a model trained with
one seed may be tested with the problems of another.
"""

import dataclasses
import difflib
import hashlib
from collections.abc import Mapping
from typing import Any

from cirf.errors import CirfError
from cirf.records import Problem
from cirf.tasks.loading.questions import exact_key
from cirf.tasks.task import Task

TRAIN_DEFAULT, TEST_DEFAULT = 1000, 200  # rows generated if the recipe gives no number
_TEST_SHARE = 5  # one question in this many is for the test
_PATIENCE = 5000  # indices in a row without a new question before the stream counts as exhausted


def stream_seed(name: str, seed: int) -> int:
    """A seed of 48 bits, so that the streams of two seeds (or two tasks) do not overlap."""
    return int.from_bytes(hashlib.sha256(f"{name}/{seed}".encode()).digest()[:6], "big")


def is_test(question: str) -> bool:
    return hashlib.sha256(exact_key(question).encode()).digest()[0] % _TEST_SHARE == 0


def settle(task: Task, given: Mapping[str, Any], where: str = "problems.tasks") -> dict[str, Any]:
    """Every option of a task: the given ones over the defaults. ``CirfError`` for an unknown key, a wrong type, a value
    outside its limits, or a ``min_x`` above its ``max_x``."""
    settled: dict[str, Any] = {key: option.default for key, option in task.options.items()}
    for key, value in given.items():
        if key not in task.options:
            near = difflib.get_close_matches(key, task.options, 1, 0.0)
            hint = f"the nearest is {near[0]!r}" if near else "it has no options"
            raise CirfError(f"{where}: task {task.name} has no option {key!r}; {hint}")
        option = task.options[key]
        kind = type(option.default)
        fits = isinstance(value, bool) if kind is bool else isinstance(value, (int, float)) and not isinstance(value, bool)
        if not fits or (kind is int and value != int(value)) or not option.low <= value <= option.high:
            expected = (
                "true or false"
                if kind is bool
                else f"{'a whole number' if kind is int else 'a number'} from {option.low:g} to {option.high:g}"
            )
            raise CirfError(f"{where}: option {key} of task {task.name} is {value!r}, expected {expected}")
        settled[key] = kind(value)
    for key in settled:
        if key.startswith("min_") and (high := "max_" + key[4:]) in settled and settled[key] > settled[high]:
            raise CirfError(f"{where}: options of task {task.name}: {key} = {settled[key]} is above {high} = {settled[high]}")
    return settled


def draw(task: Task, table: str, split: str, seed: int, count: int, options: Mapping[str, Any]) -> list[Problem]:
    """``count`` different problems of a split (``train`` or ``test``), with ids ``TABLE/SPLIT/INDEX``. More rows of the same seed
    begin with the same rows. ``CirfError`` if there are fewer different questions than that."""
    assert task.make is not None
    found: list[Problem] = []
    seen: set[str] = set()
    index, misses = 0, 0
    while len(found) < count:
        problem = task.make(seed, index, options)
        key = exact_key(problem.question) if problem else ""
        if problem and key not in seen and is_test(problem.question) == (split == "test"):
            seen.add(key)
            found.append(dataclasses.replace(problem, id=f"{table}/{split}/{index}", task=table))
            misses = 0
        else:
            misses += 1
            if misses > _PATIENCE:
                raise CirfError(
                    f"problems.tasks: {table} has only {len(found)} different {split} questions with these "
                    f"options, {count} were requested; lower {split} or widen the options"
                )
        index += 1
    return found
