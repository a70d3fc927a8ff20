"""Chain-of-Draft: its worked examples are sound, and its prompts hold them, an instruction and the question."""

from __future__ import annotations

import ast
import dataclasses
import json
import operator
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from tables import each_row

from cirf import methods, tasks
from cirf.errors import CirfError
from cirf.methods.prose.chain_of_draft import shots_of
from cirf.recipe.schema import Recipe
from cirf.records import Problem
from cirf.stages import scores
from cirf.stages.context import Context
from cirf.stages.planning import plans
from cirf.store.jsonl import read_rows
from cirf.store.run_folder import RunFolder
from cirf.tasks.benchmarks.bbh import SUBSETS
from cirf.tasks.loading.leaks import runs
from cirf.tasks.loading.questions import question_key
from cirf.tasks.shots import Shot, fault
from cirf.tasks.task import Task

BENCHMARKS = ("gsm8k", "svamp", "multiarith", "coin_flip", "commonsense_qa", "math500", "bbh", "strategyqa", "scienceqa")
EQUATION = re.compile(r"=|<|>|→|\\equiv")


def shots() -> list[tuple[Task, Shot]]:
    return [(tasks.get(name), shot) for name in BENCHMARKS for shot in shots_of(tasks.get(name))]


def recipe() -> Recipe:
    return Recipe.model_validate({"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "codebook": {"size": 8}})


def method() -> Any:
    return methods.get("chain_of_draft", recipe())


def test_every_benchmark_has_its_examples() -> None:
    counts = {name: len(shots_of(tasks.get(name))) for name in BENCHMARKS if name != "bbh"}
    eight, five = ("gsm8k", "svamp", "multiarith", "coin_flip"), ("commonsense_qa", "math500", "scienceqa")
    assert counts == {**dict.fromkeys(eight, 8), **dict.fromkeys(five, 5), "strategyqa": 4}
    assert Counter(shot.subset for shot in shots_of(tasks.get("bbh"))) == dict.fromkeys(SUBSETS, 3)
    assert shots_of(tasks.get("chain_sum")) == ()


@each_row("name", BENCHMARKS)
def test_the_tasks_parser_reads_every_answer_back(name: str) -> None:
    task = tasks.get(name)
    for shot in shots_of(task):
        assert fault(shot, task) is None, shot.question
        assert (shot.choices is not None) == (task.kind(shot.problem) == "option")
        if shot.choices is not None:
            assert 0 <= ord(shot.answer) - 65 < len(shot.choices) == len(set(shot.choices))


def test_no_step_is_longer_than_five_words_but_an_equation() -> None:
    for _, shot in shots():
        for step in shot.draft.split("; "):
            words = [word for word in step.split() if re.search(r"[^\W_]", word)]
            equation = EQUATION.search(step) is not None  # of which just the words count
            counted = [word for word in words if not equation or re.fullmatch(r"[^\W\d_]{2,}[,:.]?", word)]
            assert len(counted) <= 5 and words, step


OPERATORS: dict[type, Any] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value(node: ast.AST) -> Fraction:
    match node:
        case ast.Expression():
            return value(node.body)
        case ast.BinOp():
            found: Fraction = OPERATORS[type(node.op)](value(node.left), value(node.right))
            return found
        case ast.UnaryOp():
            return -value(node.operand)
        case ast.Constant():
            return Fraction(str(node.value))
    raise ValueError(ast.dump(node))


def test_what_is_worked_out_is_right() -> None:
    checked = 0
    for _, shot in shots():
        for step in shot.draft.replace("\\cdot", "*").split("; "):
            equation = re.fullmatch(r"(?:[a-z]+: )?([-+*/.() 0-9]*[-+*/][-+*/.() 0-9]*) = (-?[0-9.]+)", step)
            if equation:
                assert value(ast.parse(equation[1].strip(), mode="eval")) == Fraction(equation[2]), step
                checked += 1
    assert checked > 60


def test_answers_are_balanced() -> None:
    for name in ("coin_flip", "strategyqa"):
        counts = Counter(shot.answer for shot in shots_of(tasks.get(name)))
        assert counts["yes"] == counts["no"]
    said = Counter(shot.answer for task, shot in shots() if task.kind(shot.problem) == "yesno" and shot.subset)
    assert said["yes"] == said["no"]
    letters = Counter(shot.answer for task, shot in shots() if task.kind(shot.problem) == "option")
    assert set(letters) == set("ABCDEFG") and max(letters[letter] for letter in "ABCD") <= sum(letters.values()) * 0.35
    assert sorted(shot.answer for shot in shots_of(tasks.get("commonsense_qa"))) == list("ABCDE")
    numbers = [shot.answer for task, shot in shots() if task.answer == "number"]
    assert max(Counter(numbers).values()) <= 3


def test_no_two_questions_share_a_run_of_words() -> None:
    held: dict[tuple[str, ...], int] = {}
    keys = set()
    for place, (task, shot) in enumerate(shots()):
        text = task.render(shot.problem)
        keys.add(question_key(text))
        for run in runs(text):
            assert held.setdefault(run, place) == place, " ".join(run)
    assert len(keys) == len(shots())


def test_a_prompt_is_instruction_examples_and_question() -> None:
    summary = method().prompt(Problem("p", "scienceqa", "What is ice?", "B", ("a gas", "water")), tasks.get("scienceqa"))
    blocks = summary.split("\n\n")
    assert blocks[0] == (
        "Think in steps, but write only a short draft of each: at most five words, or one equation. Then write #### and the "
        "letter of the right option. Some examples:"
    )
    assert blocks[1] == (
        "Q: Which of these is a chemical change?\nA. ice cubes melting in a glass\nB. a nail rusting in the rain\n"
        "A: melting: same substance; rusting: new substance #### B"
    )
    assert blocks[-2:] == ["Answer this question in the same way, draft first:", "Q: What is ice?\nA. a gas\nB. water"]
    assert len(blocks) == 8


@each_row("subset", SUBSETS)
def test_the_examples_follow_the_part_of_the_task(subset: str) -> None:
    task = tasks.get("bbh")
    summary = method().prompt(Problem("p", "bbh", "Which?", "A", subset=subset), task)
    for shot in shots_of(task):
        assert (shot.question in summary and shot.worked in summary) == (shot.subset == subset), shot.question
    assert any(summary.startswith(opening) for opening in method().openings(task))


def test_a_task_without_examples_is_asked_by_the_instruction_alone() -> None:
    assert method().prompt(Problem("p", "chain_sum", "1 + 1?", "2"), tasks.get("chain_sum")) == (
        "Think in steps, but write only a short draft of each: at most five words, or one equation. Then write #### and the "
        "final number.\n\nQ: 1 + 1?"
    )
    unknown = method().prompt(Problem("p", "bbh", "Which?", "A", ("x", "y"), subset="of another release"), tasks.get("bbh"))
    assert "A: " not in unknown and unknown.endswith("Q: Which?\nA. x\nB. y")


def test_a_users_file_of_the_same_name_gets_no_examples_of_ours() -> None:
    rows = dataclasses.replace(tasks.get("gsm8k"), hub=None, row=None)
    own = dataclasses.replace(tasks.get("gsm8k"), origin="a hash")
    assert shots_of(rows) == shots_of(own) == () != shots_of(tasks.get("gsm8k"))


def test_the_label_of_the_examples_is_no_option() -> None:
    task = tasks.get("scienceqa")
    problem = Problem("p", "scienceqa", "Which is a liquid?", "B", ("ice", "water", "steam"))
    read = {"A: water": "B", "A: steam: a gas #### B": "B", "\nA: #### A": "A", "A. ice": "A", "A": "A", "A:": "A", "B": "B"}
    assert {said: task.parse(method().read(said)[1], problem) for said in read} == read


# A task of the user's own


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The shipped example of a user's task with rows beside it."""
    rows = [{"ask": f"It is 8:{minute}. What time is it 5 minutes later?", "time": f"8:{minute + 5}"} for minute in range(10, 22)]
    tinyrun.write_jsonl(tmp_path / "clock.jsonl", rows)
    return Path(shutil.copy(Path(__file__).parents[1] / "docs" / "how-to" / "own_task.py", tmp_path / "clock.py"))


def test_a_task_of_ones_own_brings_its_examples(own: Path) -> None:
    task = tasks.get(str(own))
    assert task.shots and shots_of(task) == task.shots
    summary = method().prompt(Problem("p", "clock", "It is 9:00. And now?", "9:00"), task)
    assert summary.startswith(task.cot_instruction(Problem("p", "clock", "?", "?")))
    assert all(f"Q: {shot.question}\nA: {shot.worked}\n" in summary for shot in task.shots)


@pytest.mark.parametrize(
    ("shot", "says"),
    [
        ("Shot('What time is it?', 'late', '9:99 o clock')", "its answer '9:99 o clock' is read back as '9:99'"),
        ("Shot('What time is it?', '', '9:15')", "its draft is empty"),
        ("Shot('What time is it?', '9:00 #### 9:15', '9:15')", "its draft holds ####"),
        ("Shot('What time is it?', 'late', 'never')", "its answer 'never' is read back as None"),
        ("'a text'", "example 1 is str, expected Shot"),
    ],
)
def test_an_example_that_its_own_parser_does_not_read_back_is_reported(own: Path, shot: str, says: str) -> None:
    text = re.sub(r"shots=\(.*?\n    \),\n", f"shots=({shot},),\n", own.read_text(), flags=re.DOTALL)
    own.write_text(text)
    with pytest.raises(CirfError) as error:
        tasks.get(str(own))
    assert says in str(error.value) and str(own) in str(error.value) and "\n" not in str(error.value)


# In a run


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """The shape of what every forward pass of a language model is given."""
    from transformers import LlamaForCausalLM

    seen: list[tuple[int, ...]] = []
    forward = LlamaForCausalLM.forward

    def watched(model: Any, *given: Any, **named: Any) -> Any:
        seen.append(tuple(named["input_ids"].shape))
        return forward(model, *given, **named)

    monkeypatch.setattr(LlamaForCausalLM, "forward", watched)
    yield seen


def test_a_run_computes_what_its_prompts_open_with_once(
    workshop: tinyrun.Workshop, own: Path, tmp_path: Path, forwards: list[tuple[int, ...]]
) -> None:
    own.write_text(own.read_text().replace('"train": "clock.jsonl"', '"test": "clock.jsonl"'))
    keys = {
        "backbone.dtype": "float32",
        "evaluate.latency_questions": 2,
        "evaluate.latency_warmup": 1,
        "evaluate.max_new_tokens": 4,
    }
    keys |= {"evaluate.batch_size": 4}
    sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
    out = tmp_path / "out"
    said = tinyrun.cirf("evaluate", workshop.backbone, "--tasks", own, "--out", out, "--method", "chain_of_draft", *sets)
    assert said.code == 0, said.err
    rows = read_rows(out / "evaluation" / "chain_of_draft" / "clock.jsonl")
    asked = [json.loads(line)["ask"] for line in own.with_name("clock.jsonl").read_text().splitlines()]
    assert all(row["prompt"].endswith(f"first:\n\nQ: {ask}") for row, ask in zip(rows, asked, strict=True)) and len(rows) == 12
    timings = json.loads((out / "latency" / "timings.json").read_text())
    assert timings["methods"]["chain_of_draft"]["overall"]["n"] == 2
    longest = max(shape[1] for shape in forwards)
    # Once for the evaluation and once for latency, each of which holds a model of its own.
    assert [shape for shape in forwards if shape[1] == longest] == [(1, longest)] * 2


def test_other_examples_are_another_evaluation_and_others_methods_keep_theirs(
    workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tinyrun.recipe(workshop.backbone, workshop.embedder, workshop.train, workshop.test, methods=["chain_of_draft", "cot"])

    def sections() -> dict[str, Any]:
        context = Context(Recipe.model_validate(made), RunFolder(tmp_path))
        return {plan.name: plan.section for plan in plans(context)}

    before = sections()
    assert "openings" not in before["evaluation/cot"]
    monkeypatch.setattr("cirf.methods.prose.chain_of_draft.DRAFT", "Be brief.")
    after = sections()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"evaluation/chain_of_draft", "latency"}


def test_methods_without_openings_keep_nothing() -> None:
    task = {"gsm8k": tasks.get("gsm8k")}
    for name in methods.names():
        method = methods.get(name, recipe())
        found = scores.openings_of(method, task)
        assert bool(found) == (name == "chain_of_draft")
        assert found or method.latents or scores.beginnings(method, task, None, None, "") is None
