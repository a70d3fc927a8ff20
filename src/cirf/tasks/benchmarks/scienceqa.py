"""ScienceQA: school science with two to five options (Lu et al., 2022).

For evaluation only, and only questions without a picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cirf.records import Problem
from cirf.tasks.steps import produced
from cirf.tasks.task import HubSource, LeftOutError, Task


def read_row(row: Mapping[str, Any]) -> Problem:
    """``question``, ``choices``, ``answer`` (the place of the right one) and ``hint``, the context, which comes first."""
    if row.get("image") is not None:
        raise LeftOutError("the question has a picture")
    choices, place = tuple(choice.strip() for choice in row["choices"]), row["answer"]
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(choices):
        raise ValueError(f"answer: {place!r} is the place of none of {len(choices)} choices")
    parts = (str(row.get("hint") or "").strip(), row["question"].strip())
    return Problem(
        id=str(row.get("id") or ""),
        task="",
        question="\n".join(part for part in parts if part),
        answer=chr(65 + place),
        choices=choices,
    )


TASK = Task(
    name="scienceqa",
    title="ScienceQA",
    summary="school science, two to five options, questions without a picture; evaluation only",
    answer="option",
    rule=produced,
    version=6,
    row=read_row,
    licence="cc-by-nc-sa-4.0",
    hub=HubSource("derek-thomas/ScienceQA", splits={"test": "test"}),
)
