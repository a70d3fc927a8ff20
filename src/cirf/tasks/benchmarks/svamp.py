"""SVAMP: one-step word problems with misleading wording (Patel et al., 2021)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from cirf.records import Problem
from cirf.tasks.steps import calculated_or_stated
from cirf.tasks.task import HubSource, Task
from cirf.text.numerals import number_text

_CONDITION = re.compile(r"(?:if|when|after|since|while)\b", re.IGNORECASE)


def read_row(row: Mapping[str, Any]) -> Problem:
    """``Body`` and ``Question`` as one text; ``Answer`` is a float."""
    answer = number_text(Fraction(str(row["Answer"])))
    return Problem(id=str(row.get("ID") or ""), task="", question=join(row["Body"], row["Question"]), answer=answer)


def join(body: str, question: str) -> str:
    """Story and question as prose: a story that breaks off in a condition goes on with a comma, any other ends in a full stop."""
    body, question = " ".join(body.split()), " ".join(question.split())
    if not body or body[-1] in ".?!":
        return f"{body} {question}".strip()
    last = re.split(r"(?<=[.?!])\s+", body)[-1]
    if _CONDITION.match(last) and re.match(r"(?:How|What|Which|Who|When|Where)\b", question):
        return f"{body.rstrip(',')}, {question[0].lower()}{question[1:]}"
    return f"{body.rstrip(',')}. {question}"


TASK = Task(
    name="svamp",
    title="SVAMP",
    summary="one-step word problems with misleading wording",
    answer="number",
    rule=calculated_or_stated,
    version=7,
    row=read_row,
    licence="mit",
    hub=HubSource("ChilleD/SVAMP"),
)
