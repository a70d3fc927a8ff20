"""Answering at once: the untrained model prompted for the answer alone, and the same after fine-tuning on answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cirf.methods.base import Method
from cirf.records import Example, Problem

if TYPE_CHECKING:
    from cirf.tasks.task import Task


class Direct(Method):
    """The untrained backbone, prompted for the answer alone (the paper's ``Ans (Base)``)."""

    name = "direct"
    summary = "the untrained backbone, prompted for the answer alone"

    def prompt(self, problem: Problem, task: Task) -> str:
        """The question and the request to answer at once."""
        return f"{task.render(problem)}\n{task.direct_instruction(problem)}"


class DirectSft(Method):
    """Fine-tuned on question and answer: the control that every method that reasons must beat."""

    name = "direct_sft"
    summary = "fine-tuned to write the answer alone"
    trained = True

    def target(self, example: Example) -> str:
        """The bare answer."""
        return example.problem.answer
