"""Rows of the published data sets become problems; the registry; what a model is shown."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from tables import each_row

from cirf.errors import CirfError
from cirf.recipe.schema import Problems
from cirf.records import Problem
from cirf.tasks import get, names, resolve
from cirf.tasks.benchmarks.public import join
from cirf.tasks.task import Task

CHOICES = {"label": ["A", "B", "C"], "text": ["tree", "lamp", "sea"]}


def row_of(task: Task, row: dict[str, object]) -> Problem:
    assert task.row is not None
    return task.row(row)


def test_gsm8k() -> None:
    problem = row_of(
        get("gsm8k"), {"question": "How many? ", "answer": "She has 2*3 = <<2*3=6>>6 pens.\nThat is 1,200 in all.\n#### 1,200"}
    )
    assert (problem.question, problem.answer) == ("How many?", "1200")
    assert problem.rationale == "She has 2*3 = <<2*3=6>>6 pens.\nThat is 1,200 in all."


def test_svamp() -> None:
    problem = row_of(
        get("svamp"),
        {"ID": "x-1", "Body": "Ann has 9 pens. If she gives 4 away", "Question": "How many pens are left?", "Answer": 5.0},
    )
    assert (problem.id, problem.question, problem.answer) == (
        "x-1",
        "Ann has 9 pens. If she gives 4 away, how many pens are left?",
        "5",
    )
    assert row_of(get("svamp"), {"Body": "b.", "Question": "q?", "Answer": 2.5}).answer == "2.5"


def test_svamp_joins_as_prose() -> None:
    assert join("Ann has 9 pens.", "How many?") == "Ann has 9 pens. How many?"
    assert join("Ann has 9 pens and gives 4 away", "How many?") == "Ann has 9 pens and gives 4 away. How many?"
    assert join("", "How many?") == "How many?"


def test_multiarith() -> None:
    assert row_of(get("multiarith"), {"question": " How many? ", "final_ans": "7"}).answer == "7"


def test_coin_flip() -> None:
    problem = row_of(
        get("coin_flip"), {"inputs": "Q: A coin is heads up. ann flips the coin.  Is the coin still heads up? ", "targets": "no"}
    )
    assert (problem.question, problem.answer) == ("A coin is heads up. ann flips the coin. Is the coin still heads up?", "no")


def test_commonsense_qa() -> None:
    problem = row_of(get("commonsense_qa"), {"id": "q", "question": "Where do fish live?", "choices": CHOICES, "answerKey": "C"})
    assert (problem.answer, problem.choices, problem.rationale) == ("C", ("tree", "lamp", "sea"), None)
    assert get("commonsense_qa").render(problem) == "Where do fish live?\nA. tree\nB. lamp\nC. sea"
    with pytest.raises(ValueError, match="answerKey"):
        row_of(get("commonsense_qa"), {"question": "?", "choices": CHOICES, "answerKey": ""})


EXAMPLES: dict[str, str] = {
    "number": "7",
    "option": "B",
    "yesno": "yes",
    "truth": "False",
    "validity": "invalid",
    "list": "ant bee cat",
    "brackets": "] )",
    "latex": r"\frac{1}{2}",
    "text": "red",
}


@each_row("name", names())
def test_every_task_is_whole(name: str) -> None:
    task = get(name)
    assert task.name == name
    assert task.generated == (task.hub is None)
    assert (task.row is None) == (task.hub is None)
    assert task.title and task.summary and task.cap > 0 and task.version > 0
    choices = ("x", "y")
    for subset in ("", *task.kinds):
        blank = Problem(id="p", task=name, question="?", answer="", subset=subset or None)
        assert "####" in task.cot_instruction(blank)
        assert "####" not in task.direct_instruction(blank)
        answer = EXAMPLES[task.kind(blank)]
        problem = replace(blank, answer=answer, choices=choices if task.kind(blank) == "option" else None)
        parsed = task.parse(f"#### {answer}", problem)
        assert parsed == answer
        assert task.equal(parsed, problem)


def test_rendering_does_not_depend_on_the_answer() -> None:
    task = get("commonsense_qa")
    shown = {task.render(Problem(id="p", task="t", question="Where?", answer=letter, choices=("x", "y"))) for letter in "AB"}
    assert shown == {"Where?\nA. x\nB. y"}


def test_unknown_task_names_the_nearest() -> None:
    with pytest.raises(CirfError, match="no task 'gsm8'; the nearest is 'gsm8k'"):
        get("gsm8")


def test_resolve_by_table_name() -> None:
    section = Problems.model_validate({"tasks": [{"task": "chain_sum", "name": "easy"}, {"task": "chain_sum"}]})
    assert {table: task.name for table, task in resolve(section).items()} == {"easy": "chain_sum", "chain_sum": "chain_sum"}


def test_looking_a_task_up_imports_nothing_heavy() -> None:
    code = (
        "import sys, cirf.tasks as t, cirf.tasks.loading.load; [t.get(n) for n in t.names()]; "
        "print([m for m in ('torch', 'transformers', 'datasets', 'math_verify') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
