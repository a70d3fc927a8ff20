"""Answering at once: the untrained model asked for nothing but the answer, and the same after fine-tuning on answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cirf.records import Example, Problem

if TYPE_CHECKING:
    from cirf.compression.search import Selector
    from cirf.recipe import Evaluate, Recipe
    from cirf.tasks.task import Task


class Direct:
    """The untrained backbone, prompted for the answer alone (the paper's ``Ans (Base)``)."""

    name = "direct"
    summary = "the untrained backbone, asked for the answer alone"
    trained = False
    functional = False
    pruning: Selector | None = None
    caps: tuple[str, ...] = ()

    def __init__(self, recipe: Recipe) -> None:
        """Nothing is set."""

    def prompt(self, problem: Problem, task: Task) -> str:
        """The question and the request to answer at once."""
        return f"{task.render(problem)}\n{task.direct_instruction(problem)}"

    def target(self, example: Example) -> str:
        """There is none."""
        raise TypeError("direct is not trained")

    def read(self, output: str) -> tuple[str, str]:
        """All of it is answer."""
        return "", output

    def cap(self, task: Task, section: Evaluate) -> int:
        """The task's cap of an answer."""
        return task.cap


class DirectSft(Direct):
    """Fine-tuned on question and answer: the control that every method that reasons must beat."""

    name = "direct_sft"
    summary = "fine-tuned to write the answer alone"
    trained = True

    def prompt(self, problem: Problem, task: Task) -> str:
        """The question alone."""
        return task.render(problem)

    def target(self, example: Example) -> str:
        """The bare answer."""
        return example.problem.answer
