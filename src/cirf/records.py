"""The records of a run.

A worked example, one question on its way from the data to the report::

    Problem(id="train-0", task="gsm8k", question="Natalia sold clips to 48 friends ...", answer="72", ...)
    Rationale(problem="train-0", sample=0, text="Step 1: 48/2 = 24 ...", source="gpt-5.1")
    Steps(problem="train-0", sample=0, segments=("48/2 = 24 ...", "48+24 = 72 ..."))
    Trace(problem="train-0", sample=0, codes=(16, 23), results=("24", "72"), answer="72")

A model's answer and its verdict are a row of the evaluation (`cirf.evaluation.harness`).

Every record is immutable and converts to one JSON object and back. Records do not refer to models or files.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, TypeAdapter

AnswerKind = Literal["number", "option", "yesno", "truth", "validity", "list", "brackets", "latex", "text"]
"""The kind of an answer: a number, an option's letter, ``yes``/``no``, ``True``/``False``, ``valid``/``invalid``, words in order,
a string of brackets, a LaTeX formula, or free text compared after normalisation."""


@dataclass(frozen=True, slots=True)
class Record:
    """A row of a JSONL file."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    def to_json(self) -> str:
        """This record as one line of JSON (no newline), keys in the order of the fields."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """The record held by a JSON object; lists become tuples, objects records. ``ValueError`` for an unknown or a missing key,
        or another type."""
        record: Self = _adapter(cls).validate_python(row)  # type: ignore[arg-type]  # mypy takes type[Self] for unhashable
        return record


@functools.cache
def _adapter(cls: type[Record]) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


@dataclass(frozen=True, slots=True)
class Problem(Record):
    """A question with its answer.

    ``question`` is the bare text; ``choices`` are the texts of the options A, B, C, ... in order (``None`` where there are none);
    ``answer`` is canonical for the task: ``"72"``, ``"C"``, ``"yes"``. ``rationale`` is the data set's own worked solution, if it
    has one. ``subset`` names the part of the task it belongs to, where there are parts (a task of BBH, a subject of MATH).
    """

    id: str
    task: str
    question: str
    answer: str
    choices: tuple[str, ...] | None = None
    rationale: str | None = None
    subset: str | None = None


@dataclass(frozen=True, slots=True)
class Rationale(Record):
    """A worked solution of one problem. ``sample`` numbers several solutions of the same problem from 0.

    ``source`` names who wrote it: a file's stem, ``dataset``, or the model that wrote it. ``agrees``: whether the
    answer read from the text equals the problem's; ``None`` where the text states none that can be read. ``prompt`` is the
    hash of the model's prompt.
    """

    problem: str
    sample: int
    text: str
    source: str
    agrees: bool | None = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class TeacherRationale(Record):
    """A rationale written by a language model, and whether it is usable.

    ``right`` as a rationale's ``agrees``; ``steps``: into how many it can be cut, 0 where it cannot; ``finish`` is ``length``
    where it was truncated at its cap, ``filtered`` where a filter or an error ended it; ``tokens`` as the server counted.
    """

    problem: str
    model: str
    sample: int
    text: str
    prompt: str
    finish: str
    tokens: int | None
    right: bool | None
    steps: int

    def fault(self, check: Literal["drop", "keep"]) -> str | None:
        """Why it is unusable; ``None`` if it is usable. With ``check: keep`` a wrong answer is no fault."""
        if self.finish in ("length", "filtered"):
            return "truncated" if self.finish == "length" else "stopped by the server"
        if not self.text:
            return "empty answer"
        if self.right is False and check == "drop":
            return "another answer"
        return None if self.steps else "no steps"


@dataclass(frozen=True, slots=True)
class Steps(Record):
    """A rationale cut into ``m`` segments, and the rule that cut it: ``ordinal``, ``line``, ``sentence``, ``option`` or
    ``function``."""

    problem: str
    sample: int
    rule: str
    segments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dropped(Record):
    """A dropped row, the stage that dropped it, and why (``reason`` is a short fixed phrase)."""

    problem: str
    sample: int | None
    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class Trace(Record):
    """The functional form of a rationale: ``m`` codes, each with its (possibly empty) result, and the answer."""

    problem: str
    sample: int
    codes: tuple[int, ...]
    results: tuple[str, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class Example(Record):
    """All that a method may build a training row from: ``Problem``, ``Steps`` and ``Trace``, and what the method itself prepared
    for the rationale (``None``: nothing)."""

    problem: Problem
    segments: tuple[str, ...]
    trace: Trace
    prepared: Mapping[str, Any] | None = None
