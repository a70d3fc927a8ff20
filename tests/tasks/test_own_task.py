"""A task in a Python file of the user's own: loaded by path, with its own parser, equality and rule, and run end to end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun

from cirf.errors import CirfError
from cirf.recipe.schema import Problems
from cirf.records import Problem
from cirf.store.jsonl import read_rows
from cirf.tasks import get, names
from cirf.tasks.loading.load import load_problems, source_files
from cirf.tasks.parsing import answers

EXAMPLE = Path(__file__).parents[2] / "docs" / "how-to" / "own_task.py"


def clock(minutes: int) -> str:
    return f"{minutes // 60}:{minutes % 60:02}"


def rows(count: int) -> list[dict[str, Any]]:
    made = []
    for number in range(count):
        start, first, second = 480 + 7 * number, 10 + number % 20, 5 + number % 7
        middle, end = start + first, start + first + second
        how = f"Step 1: {first} minutes after {clock(start)} it is {clock(middle)}.\nStep 2: {second} more make it {clock(end)}."
        ask = f"It is {clock(start)}. What time is it {first + second} minutes later?"
        made.append({"ask": ask, "time": clock(end), "how": how})
    return made


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The shipped example with rows beside it."""
    tinyrun.write_jsonl(tmp_path / "clock.jsonl", rows(40))
    return Path(shutil.copy(EXAMPLE, tmp_path / "clock_times.py"))


def section(path: Path, **keys: Any) -> Problems:
    return Problems.model_validate({"tasks": [{"task": str(path), **keys}], "validation": 0.1})


def test_its_own_parser_equality_and_wording(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = get(str(own))
    problem = Problem("p", "clock", "?", "13:30")
    assert task.parse("so it is 1.30 pm", problem) == "13:30" and task.parse("soon", problem) is None
    assert task.equal("1:30", problem) and not task.equal("1:31", problem)
    assert task.result("Step 1: it is 9:05 now.", problem, ()) == "9:05"
    assert "like 9:05" in task.direct_instruction(problem) and "####" in task.cot_instruction(problem)
    assert task.origin and task.origin in task.rules
    before = list(task.rules)
    monkeypatch.setattr(answers, "READING", answers.READING + 1)  # our parsers change, and its file does not
    assert task.rules != before
    assert str(own) not in names()


def test_rows_from_the_files_it_names(own: Path) -> None:
    loaded = load_problems(section(own), 1)
    assert {problem.task for problem in loaded.train} == {"clock_times"}
    assert (len(loaded.train) + len(loaded.validation), len(loaded.test["clock_times"])) == (32, 8)
    assert source_files(section(own)) == {"clock_times/train": own.parent / "clock.jsonl"}


def test_rows_from_the_files_of_the_recipe(own: Path, tmp_path: Path) -> None:
    train = tinyrun.write_jsonl(tmp_path / "a.jsonl", rows(10))
    test = tinyrun.write_jsonl(tmp_path / "b.jsonl", rows(14)[10:])
    loaded = load_problems(section(own, name="mine", train_file=str(train), test_file=str(test)), 1)
    assert (loaded.report["tasks"]["mine"]["available_train"], len(loaded.test["mine"])) == (10, 4)
    alone = load_problems(section(own, test_file=str(test), test=3), 1)
    assert (alone.train, alone.validation, len(alone.test["clock_times"])) == ([], [], 3)
    bad = tinyrun.write_jsonl(tmp_path / "c.jsonl", [*rows(1), {"ask": "?", "time": "noon"}])
    with pytest.raises(
        CirfError, match=r"c.jsonl: 1 of 2 rows .*; line 2: not a row of clock \(time: 'noon' is no time of day\)"
    ):
        load_problems(section(own, train_file=str(bad)), 1)


def test_rows_to_test_on_alone(own: Path) -> None:
    own.write_text(own.read_text().replace('"train": "clock.jsonl"', '"test": "clock.jsonl"'))
    loaded = load_problems(section(own), 1)
    assert (loaded.train, loaded.validation, len(loaded.test["clock_times"])) == ([], [], 40)
    assert source_files(section(own)) == {"clock_times/test": own.parent / "clock.jsonl"}
    own.write_text(own.read_text().replace('"test": "clock.jsonl"', '"dev": "clock.jsonl"'))
    with pytest.raises(CirfError, match="files are named for dev; name them for train, test"):
        load_problems(section(own), 1)


def test_rows_to_test_on_are_evaluated(workshop: tinyrun.Workshop, own: Path, tmp_path: Path) -> None:
    own.write_text(own.read_text().replace('"train": "clock.jsonl"', '"test": "clock.jsonl"'))
    sets = ("--set", "backbone.dtype=float32", "--set", "evaluate.latency_questions=0", "--method", "direct", "--limit", "6")
    said = tinyrun.cirf("evaluate", workshop.backbone, "--tasks", own, "--out", tmp_path / "out", "--json", *sets)
    assert said.code == 0, said.err
    assert json.loads(said.out)["methods"]["direct"]["tasks"]["clock_times"]["n"] == 6
    made = workshop.recipe(tmp_path / "r.yaml", problems__tasks=[{"task": str(own)}], methods=["direct_sft"])
    assert "no training problem" in tinyrun.cirf("run", made, "--out", tmp_path / "run").error()


def test_rows_that_it_makes(tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    path.write_text(
        "from cirf.records import Problem\nfrom cirf.tasks.steps import calculated\nfrom cirf.tasks.task import Task\n"
        "def make(seed, index, options):\n    return Problem('', '', f'What is {index} + {seed}?', str(index + seed))\n"
        "TASK = Task('made', 'Made', 'sums', 'number', calculated, make=make)\n"
    )
    loaded = load_problems(section(path, train=10, test=5), 3)
    assert (len(loaded.train) + len(loaded.validation), len(loaded.test["made"])) == (10, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "defines no TASK"),
        ("TASK = 3\n", "TASK is int, expected Task"),
        ("\ndef broken(:\n", "line 2: not valid Python"),
        ("import json\n\nimport no_such_module_anywhere\n", "line 3: ModuleNotFoundError: No module named"),
        ("def f():\n    return 1 / 0\n\nf()\n", "line 2: ZeroDivisionError"),
        ("raise SystemExit(3)\n", "line 1: SystemExit: 3"),
    ],
)
def test_a_file_that_is_no_task_is_reported_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(CirfError) as error:
        get(str(path))
    assert message in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "none.py", "no such file"), (tmp_path / "folder.py", "cannot be read")):
        if "folder" in path.name:
            path.mkdir()
        with pytest.raises(CirfError, match=says):
            get(str(path))


def test_a_task_without_data(tmp_path: Path) -> None:
    path = tmp_path / "bare.py"
    head = "from cirf.tasks.steps import calculated\nfrom cirf.tasks.task import Task\n"
    text = head + "TASK = Task('b', 'B', 's', 'number', calculated"
    path.write_text(text + ")\n")
    with pytest.raises(CirfError, match="has no data"):
        load_problems(section(path), 1)
    path.write_text(text + ", files={'train': 'x.jsonl'})\n")
    with pytest.raises(CirfError, match="no `row`"):
        load_problems(section(path), 1)


@pytest.mark.slow
def test_end_to_end_and_a_changed_file_redoes_what_depends_on_it(workshop: tinyrun.Workshop, own: Path, tmp_path: Path) -> None:
    made = workshop.recipe(
        tmp_path / "r.yaml", problems__tasks=[{"task": str(own)}], methods=["cirf_full", "direct"], evaluate__latency_questions=0
    )
    out = tmp_path / "run"
    said = tinyrun.cirf("run", made, "--out", out, "--json")
    assert said.code == 0, said.err
    scores = json.loads((out / "evaluation/cirf_full/scores.json").read_text())
    assert list(scores["tasks"]) == ["clock_times"] and scores["overall"]["n"] == 8
    results = read_rows(out / "results/results.jsonl")
    assert all(":" in result for row in results for result in row["results"])
    prompt = json.loads((out / "evaluation/direct/clock_times.jsonl").read_text().splitlines()[0])["prompt"]
    assert prompt.endswith("Reply with the time only, like 9:05.")
    before = tinyrun.stages(out)
    assert tinyrun.cirf("run", made, "--out", out).code == 0
    assert tinyrun.stages(out) == before
    own.write_text(own.read_text() + "\n# changed\n")
    assert tinyrun.cirf("run", made, "--out", out).code == 0
    redone = tinyrun.remade(before, tinyrun.stages(out))
    assert {"problems", "rationales", "results", "models/cirf_full", "evaluation/cirf_full", "evaluation/direct"} <= redone
