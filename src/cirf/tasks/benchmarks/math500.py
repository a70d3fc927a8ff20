"""MATH-500: 500 competition problems whose answers are LaTeX (Hendrycks et al., 2021; the selection of Lightman et al., 2023).

For evaluation only. Answers are compared by value, so that ``0.5``, ``1/2`` and ``\\frac12`` are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cirf.records import Problem
from cirf.tasks.parsing.latex import tidy_latex
from cirf.tasks.steps import calculated
from cirf.tasks.task import HubSource, Task


def read_row(row: Mapping[str, Any]) -> Problem:
    """``problem``, ``solution``, ``answer``, ``unique_id``; the subject is ``subject`` or, as first released, ``type``."""
    answer = tidy_latex(row["answer"])
    if not answer:
        raise ValueError("answer: empty")
    subject = row["subject"] if "subject" in row else row["type"]
    return Problem(
        id=str(row.get("unique_id") or "").removeprefix("test/").removesuffix(".json"),
        task="",
        question=row["problem"].strip(),
        answer=answer,
        rationale=row["solution"].strip() or None,
        subset=subject,
    )


TASK = Task(
    name="math500",
    title="MATH-500",
    summary="competition mathematics with answers in LaTeX; evaluation only",
    answer="latex",
    rule=calculated,
    version=5,
    row=read_row,
    licence="mit",
    hub=HubSource("HuggingFaceH4/MATH-500", splits={"test": "test"}),
    cap=512,  # the paper's; matrices and unions of intervals are long too
)
