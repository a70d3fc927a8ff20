"""StrategyQA: yes or no after reasoning steps that the question does not name (Geva et al., 2021).

For evaluation only, with all rows whose answers are public: the official training and development parts, which hub copies split
differently. A mirror folder holds the original release's files (``answer`` is true or false).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cirf.records import Problem
from cirf.tasks.parsing.answers import parse_answer
from cirf.tasks.steps import produced
from cirf.tasks.task import HubPart, HubSource, Task


def read_row(row: Mapping[str, Any]) -> Problem:
    """``qid``, ``question`` and ``answer``: true or false, or in words. Some copies call the question ``input``."""
    given = row["answer"]
    answer = ("yes" if given else "no") if isinstance(given, bool) else parse_answer("yesno", str(given))
    if answer is None:
        raise ValueError("answer: neither yes nor no")
    question = row["question"] if "question" in row or "input" not in row else row["input"]
    return Problem(id=str(row.get("qid") or ""), task="", question=" ".join(question.split()), answer=answer)


TASK = Task(
    name="strategyqa",
    title="StrategyQA",
    summary="yes/no questions whose steps are not in the question; evaluation only",
    answer="yesno",
    rule=produced,
    version=6,
    row=read_row,
    licence="mit",
    hub=HubSource(
        "ChilleD/StrategyQA",
        revision="705562638fe1d8ca6bb98c66fc8f94d45fda8c83",
        splits={"test": (HubPart("test", file="dev"), HubPart("train"))},
    ),
)
