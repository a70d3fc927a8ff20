"""What a task is: where its problems come from, how they are put to a model, and how an answer is judged.

A benchmark is a ``Task`` and what reads its rows; `cirf.tasks.registry` knows its name.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cirf.records import AnswerKind, Problem
from cirf.tasks.parsing import answers
from cirf.tasks.parsing.answers import equal_answers, number_value, parse_answer
from cirf.tasks.parsing.options import listed_options
from cirf.tasks.shots import Shot
from cirf.text.numerals import number_text, with_points

ResultRule = Callable[[str, Problem, tuple[str, ...]], str]
"""``rule(segment, problem, previous)``: the short text a step produced, given the results before it; may be empty."""

DIRECT: Mapping[AnswerKind, str] = {
    "number": "Reply with the final number only: no words, no working.",
    "option": "Reply with the letter of the right option only: no words, no working.",
    "yesno": "Reply with yes or no only: no other words, no working.",
    "truth": "Reply with True or False only: no other words, no working.",
    "validity": "Reply with valid or invalid only: no other words, no working.",
    "list": "Reply with the words in their order only, one space between two of them: no other words, no working.",
    "brackets": "Reply with the missing brackets only, one space between two of them: no words, no working.",
    "latex": "Reply with the final answer only, in LaTeX: no explanation, no working.",
    "text": "Reply with the answer only: no explanation, no working.",
}
"""Asks an untrained model for nothing but the answer."""

ANSWERS: Mapping[AnswerKind, tuple[str, str]] = {
    "number": ("the final number", "7"),
    "option": ("the letter of the right option", "B"),
    "yesno": ("yes or no", "yes"),
    "truth": ("True or False", "True"),
    "validity": ("valid or invalid", "valid"),
    "list": ("the words in their order", "ant bee cat"),
    "brackets": ("the missing brackets", "] )"),
    "latex": ("the final answer in LaTeX", "\\frac{1}{2}"),
    "text": ("the answer", "red"),
}
"""What an untrained model is to answer with, in words and by an example."""

COT: Mapping[AnswerKind, str] = {
    kind: f"Solve this problem step by step. Then end with one line that holds four hash marks and {what}, like `#### {example}`."
    for kind, (what, example) in ANSWERS.items()
}
"""Asks an untrained model for its chain-of-thought and an anchored answer."""


def with_options(question: str, choices: Sequence[str]) -> str:
    """A question followed by its options, one a line: ``A. apple``, ``B. chair``; the bare question where there are none, or
    where it lists them itself."""
    if choices and listed_options(question) == tuple(choices):
        return question
    return "\n".join((question, *(f"{chr(65 + index)}. {choice}" for index, choice in enumerate(choices))))


class LeftOutError(Exception):
    """Raised by a task's ``row`` for a row that is sound and yet no problem of the task; its text says why, as a short phrase."""


@dataclass(frozen=True, slots=True)
class HubPart:
    """One piece of a data set: a split of the hub's, of a configuration where there are several, and in a mirror folder the
    file ``FILE.jsonl``, named after the configuration or the split unless ``file`` says otherwise."""

    split: str
    config: str | None = None
    file: str = ""

    @property
    def stem(self) -> str:
        return self.file or self.config or self.split


@dataclass(frozen=True)
class HubSource:
    """A data set on the hub. ``splits`` maps our ``train`` and ``test`` to the data set's own split names, or to the parts that
    make one up; a data set that is for evaluation alone has no ``train``. Rows of a part with a configuration get the column
    ``config`` that names it."""

    id: str
    config: str | None = None
    revision: str | None = None
    splits: Mapping[str, str | tuple[HubPart, ...]] = field(default_factory=lambda: {"train": "train", "test": "test"})

    def parts(self, split: str) -> tuple[HubPart, ...]:
        """What makes up our ``split``; nothing where there is none."""
        theirs = self.splits.get(split, ())
        return (HubPart(theirs),) if isinstance(theirs, str) else theirs


@dataclass(frozen=True)
class Option:
    """A setting of a generated task: its default (which also fixes the type), its limits and what it means."""

    default: int | float | bool
    low: float
    high: float
    meaning: str


@dataclass(frozen=True)
class Task:
    """A benchmark. Its problems come from ``hub`` or ``files`` through ``row``, or from the generator ``make``.

    ``row`` turns one row of the data set into a problem whose ``id`` is the data set's own (or empty) and whose ``task``
    is empty; it raises ``KeyError`` for a missing column, ``ValueError`` for a value it cannot read, and ``LeftOutError`` for a
    row that is to be left out. ``make(seed, index, options)`` builds problem ``index`` of the endless stream of that seed, or
    ``None`` to skip the index. ``answer`` is what the answers are, but for the subsets that ``kinds`` names. ``rule`` finds
    the result of a step. ``cap`` is in tokens. ``version`` grows whenever a change here would change a problem, a result or a
    verdict. ``licence`` is the data's, as hubs write it; empty if unknown. ``decimal_commas``: its texts write 1234.5 as
    ``1.234,5``; answers that are numbers, and results, are in our notation all the same.

    A task in a file of the user's own may besides read and compare answers itself, by ``parser(text, problem)`` and
    ``equality(parsed, gold)``, ask in its own ``wording`` (for the bare answer, for steps and answer), bring ``shots`` for the
    methods that ask with worked examples, and name JSONL ``files`` by split, relative to its own file. ``origin`` is the hash
    of that file.
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
    kinds: Mapping[str, AnswerKind] = field(default_factory=dict)
    parser: Callable[[str, Problem], str | None] | None = None
    equality: Callable[[str, str], bool] | None = None
    wording: tuple[str, str] | None = None
    shots: tuple[Shot, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    licence: str = ""
    decimal_commas: bool = False

    @property
    def generated(self) -> bool:
        return self.make is not None

    @property
    def evaluation_only(self) -> bool:
        return self.hub is not None and "train" not in self.hub.splits

    def kind(self, problem: Problem) -> AnswerKind:
        return self.kinds.get(problem.subset or "", self.answer)

    @property
    def all_kinds(self) -> tuple[AnswerKind, ...]:
        """Every kind of answer there is, the usual one first."""
        return tuple(dict.fromkeys((self.answer, *self.kinds.values())))

    def direct_instruction(self, problem: Problem) -> str:
        """A line for the end of the user turn that asks for the bare answer."""
        return self.wording[0] if self.wording else DIRECT[self.kind(problem)]

    def cot_instruction(self, problem: Problem) -> str:
        """A line for the end of the user turn that asks for steps and then a ``#### answer`` line."""
        return self.wording[1] if self.wording else COT[self.kind(problem)]

    @property
    def rules(self) -> list[Any]:
        """Represents this task's code in the keys of dependent stages."""
        kinds = [dict(sorted(self.kinds.items()))] if self.kinds else []
        own = [self.origin, answers.READING] if self.origin else []
        commas = ["decimal commas"] if self.decimal_commas else []
        return [self.name, self.version, self.answer, *kinds, *own, *commas]

    @property
    def wordings(self) -> list[str]:
        return list(self.wording) if self.wording else [details[kind] for kind in self.all_kinds for details in (DIRECT, COT)]

    def render(self, problem: Problem) -> str:
        """The user turn: the question, then one line an option. Nothing in it depends on the answer."""
        return with_options(problem.question, problem.choices or ())

    def parse(self, text: str, problem: Problem) -> str | None:
        """The canonical answer read from an answer text or from prose; ``None`` if none can be read."""
        if self.parser is not None:
            return self.parser(text, problem)
        if self.decimal_commas and self.kind(problem) == "number" and not _is_canonical(text):
            text = with_points(text)
        return parse_answer(self.kind(problem), text, problem.choices, problem.question)

    def equal(self, parsed: str, problem: Problem) -> bool:
        if self.equality is not None:
            return self.equality(parsed, problem.answer)
        kind, gold = self.kind(problem), problem.answer
        if self.decimal_commas and kind in ("text", "latex"):
            parsed, gold = with_points(parsed), with_points(gold)
        return equal_answers(kind, parsed, gold)

    def result(self, segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
        """What a step produced, by the task's rule (paper 3.3); empty where it names nothing, or only repeats the step,
        numbers apart: a line may hold nothing else."""
        answer = problem.answer
        if self.decimal_commas:
            segment, problem = with_points(segment), self.in_our_notation(problem)
        found = " ".join(self.rule(segment, problem, previous).split())
        found = answer if found == problem.answer else found  # in its own notation
        return "" if found == segment.strip() and not re.search(r"\d", found) else found

    def in_our_notation(self, problem: Problem) -> Problem:
        if not self.decimal_commas:
            return problem
        choices = tuple(map(with_points, problem.choices)) if problem.choices else problem.choices
        answer = with_points(problem.answer) if self.kind(problem) in ("text", "latex") else problem.answer
        return dataclasses.replace(problem, question=with_points(problem.question), choices=choices, answer=answer)


def _is_canonical(text: str) -> bool:
    """Whether a text is a number as answers have it, such as a trained model writes, alone or after ``####``."""
    said = text.strip().removeprefix("####").strip()
    value = number_value(said)
    return value is not None and number_text(value) == said
