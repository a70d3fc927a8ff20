"""Test questions shown with what every method wrote: the first of each task in turn, right or wrong, none picked by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from cirf.analysis.traces import is_functional, read_codes
from cirf.evaluation.harness import Row

Tables = Mapping[str, Sequence[Row]]


def pick_examples(test: Mapping[str, Mapping[str, Row]], rows: Mapping[str, Tables], count: int) -> list[dict[str, Any]]:
    """``count`` questions, one task after the other, each with the first run of every method.

    ``test`` holds the problems by task and id, ``rows`` the evaluation rows by method and task. An example reads
    ``{"task", "id", "question", "choices", "gold", "answers": {method: {...}}}``; an answer holds ``output, parsed,
    correct, tokens, truncated`` and, of a functional trace, ``codes`` ([[code, result], ...]) and ``answer``.
    """
    answers: dict[tuple[str, str], dict[str, Row]] = {}
    for method, tables in rows.items():
        for task, table in tables.items():
            for row in table:
                if row["run"] == 0:
                    answers.setdefault((task, row["id"]), {})[method] = row
    columns = [[(task, item) for item in problems if (task, item) in answers] for task, problems in test.items()]
    turns = [where for turn in zip_longest(*columns) for where in turn if where is not None]
    return [_example(test[task][item], task, answers[task, item]) for task, item in turns[:count]]


def _example(problem: Row, task: str, answers: Mapping[str, Row]) -> dict[str, Any]:
    return {
        "task": task,
        "id": problem["id"],
        "question": problem["question"],
        "choices": problem.get("choices"),
        "gold": problem["answer"],
        "answers": {method: _answer(row) for method, row in answers.items()},
    }


def _answer(row: Row) -> dict[str, Any]:
    shown = {key: row[key] for key in ("output", "parsed", "correct", "tokens", "truncated")}
    if is_functional(row["output"]):
        shown |= {"codes": [list(pair) for pair in read_codes(row["output"])], "answer": row["answer"]}
    return shown
