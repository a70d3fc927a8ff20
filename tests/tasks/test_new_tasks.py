"""MATH-500, BBH, StrategyQA and ScienceQA: their rows, their parts, what is left out, and that nothing trains on them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cirf.errors import CirfError
from cirf.recipe import Problems
from cirf.records import Problem
from cirf.tasks import get
from cirf.tasks.bbh import KINDS, SUBSETS
from cirf.tasks.load import LoadedProblems, load_problems, source_files
from cirf.tasks.task import LeftOutError

LETTERED = "What has the hen?\nOptions:\n(A) a red ball\n(B) a blue ball"
TARGETS = {
    "truth": "True",
    "yesno": "No",
    "validity": "invalid",
    "number": "-7",
    "list": "ant bee",
    "brackets": "] )",
    "option": "(B)",
}


def read(task: str, **row: Any) -> Problem:
    reader = get(task).row
    assert reader is not None
    return reader(row)


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A data folder with two rows of every part of the four."""
    for name in SUBSETS:
        kind = KINDS.get(name, "option")
        text = LETTERED if kind == "option" else "Sort the words: List: bee ant" if kind == "list" else "Well?"
        rows = [{"input": f"{name} {n}. {text}", "target": TARGETS[kind]} for n in range(2)]
        write(tmp_path / "bbh" / f"{name}.jsonl", rows)
    maths = {"problem": "Half of $1$?", "solution": r"It is $\boxed{\frac{1}{2}}$.", "answer": r"\frac{1}{2}", "level": 1}
    write(
        tmp_path / "math500/test.jsonl", [{**maths, "type": "Algebra", "unique_id": f"test/algebra/{n}.json"} for n in range(2)]
    )
    for split in ("dev", "train"):
        rows = [{"qid": f"{split}{n}", "question": f"Is {split} {n} even?", "answer": n == 0} for n in range(2)]
        write(tmp_path / f"strategyqa/{split}.jsonl", rows)
    science = {"choices": ["salt", "ice"], "answer": 1, "hint": "Ice is cold."}
    rows = [{**science, "id": f"{n}", "question": f"Which is cold {n}?", "image": None} for n in range(2)]
    write(tmp_path / "scienceqa/test.jsonl", [*rows, {**rows[0], "id": "9", "image": {"path": "x.png"}}])
    return tmp_path


def load(data: Path, *tasks: dict[str, Any]) -> LoadedProblems:
    return load_problems(Problems.model_validate({"tasks": list(tasks), "data": str(data)}), 1)


def test_math500() -> None:
    row = {"problem": " Half? ", "solution": "s", "answer": r"$\frac{1}{2}$", "unique_id": "test/algebra/7.json"}
    problem = read("math500", subject="Algebra", **row)
    assert (problem.id, problem.question, problem.answer, problem.subset) == ("algebra/7", "Half?", r"\frac{1}{2}", "Algebra")
    assert read("math500", type="Algebra", **row) == problem
    assert get("math500").cap == 512
    with pytest.raises(ValueError, match="answer"):
        read("math500", subject="Algebra", **{**row, "answer": " "})
    with pytest.raises(KeyError):
        read("math500", **row)


def test_strategyqa_in_both_forms() -> None:
    assert read("strategyqa", qid="a", question=" Can a hen  fly? ", answer=True) == Problem("a", "", "Can a hen fly?", "yes")
    assert read("strategyqa", input="Can it?", answer="No").answer == "no"
    for wrong in ("perhaps", 1, None):
        with pytest.raises(ValueError, match="neither yes nor no"):
            read("strategyqa", question="Can it?", answer=wrong)


def test_scienceqa_says_its_context_and_leaves_pictures_out() -> None:
    problem = read("scienceqa", question="Which?", choices=["salt", "ice"], answer=1, hint=" Ice is cold. ", image=None)
    assert (problem.question, problem.choices, problem.answer) == ("Ice is cold.\nWhich?", ("salt", "ice"), "B")
    assert get("scienceqa").render(problem) == "Ice is cold.\nWhich?\nA. salt\nB. ice"
    assert read("scienceqa", question="Which?", choices=["a", "b"], answer=0, hint="").question == "Which?"
    with pytest.raises(LeftOutError):
        read("scienceqa", question="Which?", choices=["a", "b"], answer=0, hint="", image=b"png")
    for wrong in (2, -1, "A", True, None):
        with pytest.raises(ValueError, match="answer"):
            read("scienceqa", question="Which?", choices=["a", "b"], answer=wrong, hint="")


@pytest.mark.parametrize("subset", SUBSETS)
def test_bbh_answers_by_subset(subset: str) -> None:
    kind = KINDS.get(subset, "option")
    task = get("bbh")
    problem = read("bbh", config=subset, input=LETTERED if kind == "option" else "Sort: List: bee ant", target=TARGETS[kind])
    assert task.kind(problem) == kind and problem.subset == subset
    assert task.equal(task.parse(f"#### {problem.answer}", problem) or "", problem)
    assert (problem.choices is not None) == (kind == "option")


def test_bbh_options_stand_once() -> None:
    problem = read("bbh", config="snarks", input=LETTERED, target="(B)")
    assert (problem.question, problem.choices, problem.answer) == ("What has the hen?", ("a red ball", "a blue ball"), "B")
    assert get("bbh").render(problem) == "What has the hen?\nA. a red ball\nB. a blue ball"
    assert read("bbh", config="snarks", input=LETTERED, target="a blue ball").answer == "B"
    bare = read("bbh", config="navigate", input="Back home?\nOptions:\n- Yes\n- No", target="Yes")
    assert get("bbh").render(bare) == "Back home?\nOptions:\n- Yes\n- No" and bare.answer == "yes"


def test_bbh_rows_that_do_not_fit() -> None:
    with pytest.raises(LeftOutError):
        read("bbh", config="snarks", input=LETTERED, target="a green ball")
    for text in ("No options", "Q\nOptions:\n(A) one", "Q\nOptions:\n(A) one\n(C) two", "Q\nOptions:\n(A) one\nand two"):
        with pytest.raises(ValueError, match="input"):
            read("bbh", config="snarks", input=text, target="(A)")
    with pytest.raises(ValueError, match="target"):
        read("bbh", config="navigate", input="Home?", target="maybe")
    with pytest.raises(ValueError, match="config"):
        read("bbh", config="nothing", input="Home?", target="Yes")


def test_a_mirror_of_all_four(mirror: Path) -> None:
    loaded = load(mirror, *({"task": name} for name in ("math500", "bbh", "strategyqa", "scienceqa")))
    assert loaded.train == [] and loaded.validation == []
    assert {name: len(rows) for name, rows in loaded.test.items()} == {"math500": 2, "bbh": 54, "strategyqa": 4, "scienceqa": 2}
    assert loaded.report["dropped"] == {"the question has a picture": 1}
    assert [(row.problem, row.reason) for row in loaded.dropped] == [("scienceqa/test/9", "the question has a picture")]
    assert [problem.id for problem in loaded.test["strategyqa"]] == [
        f"strategyqa/test/{n}" for n in ("dev0", "dev1", "train0", "train1")
    ]
    first = loaded.test["bbh"][:27]
    assert {problem.subset for problem in first} == set(SUBSETS), "the first rows are some of each"
    assert first[0].id == "bbh/test/boolean_expressions-0"
    assert load(mirror, {"task": "bbh", "test": 30}).test["bbh"] == loaded.test["bbh"][:30]
    files = source_files(Problems.model_validate({"tasks": [{"task": "bbh"}, {"task": "math500"}], "data": str(mirror)}))
    assert len(files) == 28 and files["bbh/test/snarks"].name == "snarks.jsonl" and "math500/test" in files


@pytest.mark.parametrize("keys", [{"train": 5}, {"rows": 5}, {"test_from_train": 5}])
def test_asking_for_training_rows_is_answered(mirror: Path, keys: dict[str, int]) -> None:
    (name,) = keys
    assert load(mirror, {"task": "math500", **keys}).report["warnings"] == [
        f"math500: it is for evaluation alone and has no training rows; remove {name}"
    ]


def test_a_part_that_is_missing_is_named(mirror: Path) -> None:
    (mirror / "bbh/snarks.jsonl").unlink()
    with pytest.raises(CirfError, match=r"snarks.jsonl: no such file; the data folder \(--data\) must hold bbh/snarks.jsonl"):
        load(mirror, {"task": "bbh"})
    write(mirror / "bbh/snarks.jsonl", [{"input": "x"}])
    with pytest.raises(CirfError, match=r"snarks.jsonl: no usable row: the column 'target' .* \(1: line 1\)"):
        load(mirror, {"task": "bbh"})


def test_hub_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked = []

    def fake(name: str, config: str | None, split: str, revision: str | None) -> datasets.Dataset:
        asked.append((name, config, split))
        rows = [{"input": f"{config} home?", "target": "No"}] if config == "navigate" else [{"input": LETTERED, "target": "(A)"}]
        return datasets.Dataset.from_list(rows if config in ("navigate", "snarks") else rows * 0 or [{"input": "", "target": ""}])

    monkeypatch.setattr(datasets, "load_dataset", fake)
    with pytest.raises(CirfError, match=r"lukaemon/bbh \(boolean_expressions, test\): no usable row: .* \(1: row 1\)"):
        load_problems(Problems.model_validate({"tasks": [{"task": "bbh"}]}), 1)
    assert asked[0] == ("lukaemon/bbh", "boolean_expressions", "test")
