"""Protocols: which test problems are asked, and how answers are drawn, so that two tables can be set side by side.

A protocol only sets keys of the recipe; a run keeps the recipe it set, so that what was asked can be read there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cirf.recipe import Recipe, Sampled, TaskEntry
from cirf.tasks import JSONL, OWN, get

OUTSIDE = 500
"""Problems of a task that nothing is trained on; the paper's accuracies there are multiples of 1/1500."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Test problems a task (``rows``, unless ``by_task`` says otherwise; ``None``: all) and how answers are drawn.

    ``temperature`` 0 is greedy. ``sampled`` are the runs drawn besides a greedy evaluation.
    """

    summary: str
    rows: int | None
    temperature: float = 0.0
    top_p: float = 1.0
    runs: int = 1
    sampled: int = 0
    by_task: Mapping[str, int] = field(default_factory=dict)


PROTOCOLS: Mapping[str, Protocol] = {
    "quick": Protocol("the first 50 problems of a task, greedy", rows=50),
    "full": Protocol("every problem, greedy and in three sampled runs (T 0.7, top-p 0.95)", rows=None, sampled=3),
    "paper": Protocol(
        "the first 200 (MultiArith 180) or 500 problems of a task, three sampled runs (T 0.7, top-p 0.95)",
        rows=200,
        temperature=0.7,
        top_p=0.95,
        runs=3,
        by_task={"multiarith": 180, **dict.fromkeys(("math500", "bbh", "strategyqa", "scienceqa"), OUTSIDE)},
    ),
}
"""Source of ``paper``: A.2 and Table hyper-parameters, and the sizes that its accuracies are multiples of."""


def cut_from_train(entry: TaskEntry) -> bool:
    """Whether the test of a user's own task is cut from the rows to train on."""
    if entry.test_file is not None:
        return False
    if entry.task.endswith(OWN):
        return entry.train_file is not None or ("train" in (files := get(entry.task).files) and "test" not in files)
    return entry.task == JSONL


def by_protocol(recipe: Recipe) -> Recipe:
    """The recipe with the keys set that its protocol names; the recipe itself where it names none.

    Training problems to test on besides (``test_from_train``) belong to no protocol and leave the test. A test that is cut
    from a user's only file stays as it is: another cut would be another training set.
    """
    protocol = PROTOCOLS.get(recipe.evaluate.protocol)
    if protocol is None:
        return recipe

    def asked(entry: TaskEntry) -> TaskEntry:
        if cut_from_train(entry):
            return entry
        return entry.model_copy(update={"test": protocol.by_task.get(entry.task, protocol.rows), "test_from_train": 0})

    drawn: dict[str, Any] = {"temperature": protocol.temperature, "top_p": protocol.top_p, "runs": protocol.runs}
    drawn["sampled"] = Sampled(runs=protocol.sampled)
    tasks = tuple(asked(entry) for entry in recipe.problems.tasks)
    return recipe.model_copy(
        update={
            "problems": recipe.problems.model_copy(update={"tasks": tasks}),
            "evaluate": recipe.evaluate.model_copy(update=drawn),
        }
    )
