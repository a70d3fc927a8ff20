"""MultiArith: two-step word problems (Roy and Roth, 2015). A few questions occur in both official splits; loading drops them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cirf.records import Problem
from cirf.tasks.parsing.answers import parse_answer
from cirf.tasks.steps import calculated
from cirf.tasks.task import HubSource, Task


def read_row(row: Mapping[str, Any]) -> Problem:
    answer = parse_answer("number", str(row["final_ans"]))
    if answer is None:
        raise ValueError("final_ans: no number")
    return Problem(id="", task="", question=row["question"].strip(), answer=answer)


TASK = Task(
    name="multiarith",
    title="MultiArith",
    summary="word problems of two or more operations",
    answer="number",
    rule=calculated,
    version=7,
    row=read_row,
    licence="mit",
    hub=HubSource("ChilleD/MultiArith"),
)
