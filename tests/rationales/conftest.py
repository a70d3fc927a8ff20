"""Small problems and tasks that the tests of rationales share."""

import json
from pathlib import Path

import pytest

from cirf.records import Problem
from cirf.tasks.steps import calculated, option_discussed
from cirf.tasks.task import Task

NUMBER = Task(name="sums", title="Sums", summary="", answer="number", rule=calculated)
OPTION = Task(name="picks", title="Picks", summary="", answer="option", rule=option_discussed)


@pytest.fixture
def tasks() -> dict[str, Task]:
    """Two tasks by table name."""
    return {"sums": NUMBER, "picks": OPTION}


@pytest.fixture
def problems() -> list[Problem]:
    """Three sums (one with its own solution) and a pick."""
    return [
        Problem(
            "sums/train/a", "sums", "Ann has 3 pens and buys 4. How many pens has she?", "7", rationale="3 + 4 = <<3+4=7>>7 pens"
        ),
        Problem("sums/train/b", "sums", "Bob eats 2.5 of 10 pies. How many are left?", "7.5"),
        Problem("sums/train/c", "sums", "Cy walks 6 km a day for 5 days. How far?", "30"),
        Problem("picks/train/d", "picks", "Where do fish live?", "B", choices=("tree", "water", "roof")),
    ]


@pytest.fixture
def write(tmp_path: Path):
    """Write rows (objects, or lines as they are) as JSONL; returns the path as a text."""

    def _write(name: str, rows) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return str(path)

    return _write
