"""CommonsenseQA: five options a question (Talmor et al., 2019). The official test hides its answers: validation replaces it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cirf.records import Problem
from cirf.tasks.steps import option_discussed
from cirf.tasks.task import HubSource, Task


def read_row(row: Mapping[str, Any]) -> Problem:
    """``question``, ``choices`` = ``{"label": [...], "text": [...]}`` and ``answerKey``; letters follow the texts' order."""
    labels, texts = list(row["choices"]["label"]), list(row["choices"]["text"])
    if row["answerKey"] not in labels:
        raise ValueError(f"answerKey: {row['answerKey']!r} is none of the labels")
    letter = chr(65 + labels.index(row["answerKey"]))
    return Problem(id=str(row.get("id") or ""), task="", question=row["question"].strip(), answer=letter, choices=tuple(texts))


TASK = Task(
    name="commonsense_qa",
    title="CommonsenseQA",
    summary="five options a question; answers need everyday knowledge",
    answer="option",
    rule=option_discussed,
    version=6,
    row=read_row,
    licence="mit",
    hub=HubSource("tau/commonsense_qa", splits={"train": "train", "test": "validation"}),
)
