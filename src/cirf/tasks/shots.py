"""Worked examples of a task, for methods with few-shot prompts.

A worked example in a prompt::

    Q: Each basket holds 6 melons and 8 baskets are full. How many melons are there?
    A: 8 * 6 = 48 #### 48
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cirf.records import Problem

if TYPE_CHECKING:
    from cirf.tasks.task import Task

MARK = "####"  # separates the steps from the answer


@dataclass(frozen=True, slots=True)
class Shot:
    """A question with its steps in a few words and its answer. ``draft`` holds the steps, a semicolon between two; ``answer`` is
    canonical, an option's letter where there are ``choices``. ``subset`` names the part of the task that it is an example for
    (`Problem.subset`); without one it is an example for all questions."""

    question: str
    draft: str
    answer: str
    choices: tuple[str, ...] | None = None
    subset: str | None = None

    @property
    def problem(self) -> Problem:
        return Problem(id="", task="", question=self.question, answer=self.answer, choices=self.choices, subset=self.subset)

    @property
    def worked(self) -> str:
        return f"{self.draft} {MARK} {self.answer}"


def fault(shot: Shot, task: Task) -> str | None:
    """What is wrong with an example: a part of it is empty, its draft holds the mark, or the task does not read its answer back;
    ``None`` if it will do."""
    for name in ("question", "draft", "answer"):
        if not getattr(shot, name).strip():
            return f"its {name} is empty"
    if MARK in shot.draft:
        return f"its draft holds {MARK}, which must come before the answer"
    parsed = task.parse(shot.worked, replace(shot.problem, answer=""))
    if parsed is None or not task.equal(parsed, shot.problem):
        return f"its answer {shot.answer!r} is read back as {parsed!r}"
    return None
