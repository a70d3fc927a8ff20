"""GSM8K: grade-school word problems with human solutions, one line a step (Cobbe et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cirf.records import Problem
from cirf.tasks.parsing.answers import parse_answer
from cirf.tasks.steps import calculated
from cirf.tasks.task import HubSource, Task


def read_row(row: Mapping[str, Any]) -> Problem:
    """``question``; ``answer`` = solution lines, then ``#### 72``. Calculator annotations stay: results are read from them."""
    solution, mark, final = row["answer"].rpartition("####")
    answer = parse_answer("number", final)
    if not mark or answer is None:
        raise ValueError("answer: no number after ####")
    return Problem(id="", task="", question=row["question"].strip(), answer=answer, rationale=solution.strip())


TASK = Task(
    name="gsm8k",
    title="GSM8K",
    summary="grade-school word problems of 2-8 steps",
    answer="number",
    rule=calculated,
    version=7,
    row=read_row,
    licence="mit",
    hub=HubSource("openai/gsm8k", "main"),
)
