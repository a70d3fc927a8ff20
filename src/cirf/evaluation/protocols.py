"""Protocols: which test problems are used, and how answers are drawn, so that two tables can be compared.

A protocol only sets keys of the recipe; a run keeps the resulting recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cirf.recipe.schema import Recipe, SampledAnswers, TaskEntry
from cirf.tasks import JSONL, OWN, get


@dataclass(frozen=True, slots=True)
class Protocol:
    """Test problems a task and how answers are drawn.

    ``rows`` problems (``None``: all), of a task without training rows ``outside`` (`to_test_alone`), of those in ``by_task`` that
    number. ``temperature`` 0 is greedy. ``sampled`` are the runs drawn besides a greedy evaluation.
    """

    summary: str
    rows: int | None
    outside: int | None
    temperature: float = 0.0
    top_p: float = 1.0
    runs: int = 1
    sampled: int = 0
    by_task: Mapping[str, int] = field(default_factory=dict)


PROTOCOLS: Mapping[str, Protocol] = {
    "quick": Protocol("the first 50 problems of a task, greedy", rows=50, outside=50),
    "full": Protocol("every problem, greedy and in three sampled runs (T 0.7, top-p 0.95)", rows=None, outside=None, sampled=3),
    "paper": Protocol(
        "the first 200 problems of a task (MultiArith 180; 500 without training rows), three sampled runs (T 0.7, top-p 0.95)",
        rows=200,
        outside=500,
        temperature=0.7,
        top_p=0.95,
        runs=3,
        by_task={"multiarith": 180},
    ),
}
"""Source of ``paper``: A.2 and Table hyper-parameters, and the sizes that its accuracies are multiples of: 1/600 (MultiArith
1/540), and of the tasks that nothing is trained on 1/1500."""


def cut_from_train(entry: TaskEntry) -> bool:
    """Whether the test of a user's own task is cut from the rows to train on."""
    if entry.test_file is not None:
        return False
    if entry.task.endswith(OWN):
        return entry.train_file is not None or ("train" in (files := get(entry.task).files) and "test" not in files)
    return entry.task == JSONL


def to_test_alone(entry: TaskEntry) -> bool:
    """Whether a task has no training rows: a published one for evaluation alone, or one whose files are there to test on."""
    if entry.task == JSONL:
        return entry.train_file is None
    task = get(entry.task)
    if entry.train_file is not None or entry.test_file is not None:
        return entry.train_file is None
    return "train" not in task.files if task.files else task.evaluation_only


def rows_asked(protocol: Protocol, task: str, alone: bool) -> int | None:
    """How many test problems a protocol asks for of a task, by its name in a recipe, with training rows or
    ``alone``; ``None``: all."""
    return protocol.by_task.get(task, protocol.outside if alone else protocol.rows)


def by_protocol(recipe: Recipe) -> Recipe:
    """The recipe with the keys set that its protocol names; the recipe itself where it names none.

    Training problems to test on besides (``test_from_train``) belong to no protocol and leave the test. A test that is cut
    from a user's only file is unchanged: another split would be another training set. ``problems.limit`` goes before the
    protocol, so that a recipe that was saved under it is the same again.
    """
    protocol = PROTOCOLS.get(recipe.evaluate.protocol)
    if protocol is None:
        return recipe

    def asked(entry: TaskEntry) -> TaskEntry:
        if cut_from_train(entry):
            return entry
        named = rows_asked(protocol, entry.task, to_test_alone(entry))
        most = min((rows for rows in (named, recipe.problems.limit) if rows is not None), default=None)
        return entry.model_copy(update={"test": most, "test_from_train": 0})

    drawn: dict[str, Any] = {"temperature": protocol.temperature, "top_p": protocol.top_p, "runs": protocol.runs}
    drawn["sampled"] = SampledAnswers(runs=protocol.sampled)
    tasks = tuple(asked(entry) for entry in recipe.problems.tasks)
    return recipe.model_copy(
        update={
            "problems": recipe.problems.model_copy(update={"tasks": tasks}),
            "evaluate": recipe.evaluate.model_copy(update=drawn),
        }
    )
