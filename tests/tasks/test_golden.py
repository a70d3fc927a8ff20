"""Awkward outputs of every benchmark, each read as a careful person would: ``golden/TASK.jsonl``, a row an output.

A row has ``output``, ``expected`` (an answer that is the same as the one read, ``null`` where none can be read) and ``why``;
``choices``, ``question`` and ``subset`` where the task has them. Where a row fails, the parser is to be mended.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cirf.records import Problem
from cirf.rows import read_rows
from cirf.tasks import get

GOLDEN = Path(__file__).with_name("golden")
NINE = ("gsm8k", "svamp", "multiarith", "coin_flip", "commonsense_qa", "math500", "bbh", "strategyqa", "scienceqa")


def rows(name: str) -> list[dict[str, Any]]:
    return read_rows(GOLDEN / f"{name}.jsonl")


def problem(name: str, row: dict[str, Any]) -> Problem:
    choices = tuple(row["choices"]) if "choices" in row else None
    return Problem("p", name, row.get("question", "?"), "", choices, subset=row.get("subset"))


@pytest.mark.parametrize("name", NINE)
def test_awkward_outputs_are_read_as_a_person_would(name: str) -> None:
    task, misread = get(name), []
    for row in rows(name):
        asked = problem(name, row)
        read = task.parse(row["output"], asked)
        if row["expected"] is None or read is None:
            fine = read is row["expected"]
        else:  # and what was read can be read again
            fine = task.equal(read, replace(asked, answer=row["expected"])) and task.parse(read, asked) is not None
        if not fine:
            misread.append(f"{row['output']!r} is read as {read!r}, not as {row['expected']!r}: {row['why']}")
    assert not misread


@pytest.mark.parametrize("name", NINE)
def test_there_are_thirty_of_each_task_and_they_differ(name: str) -> None:
    found = rows(name)
    assert len(found) >= 30
    assert len({json.dumps({**row, "why": ""}, sort_keys=True) for row in found}) == len(found)
    assert all(row["why"] for row in found)
    assert any(row["expected"] is None for row in found)


def test_every_kind_of_bbh_is_there() -> None:
    kinds = {get("bbh").kind(problem("bbh", row)) for row in rows("bbh")}
    assert kinds == set(get("bbh").all_kinds)
