"""What a task is: where its problems come from, how they are put to a model, and how an answer is judged.

A benchmark is one short file that ends in a ``Task``; the registry in ``__init__.py`` knows its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cirf.records import AnswerKind, Problem
from cirf.tasks.answers import equal_answers, parse_answer

ResultRule = Callable[[str, Problem, tuple[str, ...]], str]
"""``rule(segment, problem, previous)``: the short text a step produced, given the results before it; may be empty."""

DIRECT: Mapping[AnswerKind, str] = {
    "number": "Reply with the final number only: no words, no working.",
    "option": "Reply with the letter of the right option only: no words, no working.",
    "yesno": "Reply with yes or no only: no other words, no working.",
    "text": "Reply with the answer only: no explanation, no working.",
}
"""Asks an untrained model for nothing but the answer."""

_STEPS = "Solve this problem step by step. Then end with one line that holds four hash marks and "
COT: Mapping[AnswerKind, str] = {
    "number": _STEPS + "the final number, like `#### 7`.",
    "option": _STEPS + "the letter of the right option, like `#### B`.",
    "yesno": _STEPS + "yes or no, like `#### yes`.",
    "text": _STEPS + "the answer, like `#### red`.",
}
"""Asks an untrained model for its chain-of-thought and an anchored answer."""


def with_options(question: str, choices: Sequence[str]) -> str:
    """A question followed by its options, one a line: ``A. apple``, ``B. chair``; the bare question where there are none."""
    return "\n".join((question, *(f"{chr(65 + index)}. {choice}" for index, choice in enumerate(choices))))


@dataclass(frozen=True)
class HubSource:
    """A data set on the hub. ``splits`` maps our ``train`` and ``test`` to the data set's own split names."""

    id: str
    config: str | None = None
    revision: str | None = None
    splits: Mapping[str, str] = field(default_factory=lambda: {"train": "train", "test": "test"})


@dataclass(frozen=True)
class Option:
    """A setting of a generated task: its default (which also fixes the type), its limits and what it means."""

    default: int | float | bool
    low: float
    high: float
    meaning: str


@dataclass(frozen=True)
class Task:
    """A benchmark. Its problems come from ``hub`` through ``row``, from the generator ``make``, or from a user's file.

    ``row`` turns one row of the data set into a problem whose ``id`` is the data set's own (or empty) and whose ``task``
    is empty; it raises ``KeyError`` for a missing column and ``ValueError`` for a value it cannot read. ``make(seed,
    index, options)`` builds problem ``index`` of the endless stream of that seed, or ``None`` to skip the index.
    ``rule`` finds the result of a step. ``cap`` is in tokens. ``version`` grows whenever a change here would change a
    problem, a result or a verdict.
    """

    name: str
    title: str
    summary: str
    answer: AnswerKind
    rule: ResultRule
    row: Callable[[Mapping[str, Any]], Problem] | None = None
    hub: HubSource | None = None
    make: Callable[[int, int, Mapping[str, Any]], Problem | None] | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    cap: int = 32
    version: int = 1

    @property
    def generated(self) -> bool:
        """Whether the problems are made on the spot, offline."""
        return self.make is not None

    @property
    def direct_instruction(self) -> str:
        """A line for the end of the user turn that asks for the bare answer."""
        return DIRECT[self.answer]

    @property
    def cot_instruction(self) -> str:
        """A line for the end of the user turn that asks for steps and then a ``#### answer`` line."""
        return COT[self.answer]

    def render(self, problem: Problem) -> str:
        """The user turn: the question, then one line an option. Nothing in it depends on the answer."""
        return with_options(problem.question, problem.choices or ())

    def parse(self, text: str, problem: Problem) -> str | None:
        """The canonical answer read from an answer text or from prose; ``None`` if none can be read."""
        return parse_answer(self.answer, text, problem.choices)

    def equal(self, parsed: str, problem: Problem) -> bool:
        """Whether a parsed answer is the problem's."""
        return equal_answers(self.answer, parsed, problem.answer)

    def result(self, segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
        """What a step produced, by the task's rule (paper 3.3); empty where it names nothing, or only repeats the step."""
        found = " ".join(self.rule(segment, problem, previous).split())
        return "" if found == segment.strip() else found
