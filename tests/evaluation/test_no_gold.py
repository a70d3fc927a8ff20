"""No method, of those there are and those to come, is asked with anything that depends on the right answer.

Every way in which a model is asked is tried: the accuracy run, latency, votes, and the files for
lm-evaluation-harness. Two problems that differ in nothing
but answer and rationale must be asked in the same words; and a method that tries to read them finds nothing there.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from bench import Bench
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf import methods, tasks
from cirf.evaluation import harness, latency
from cirf.export import formats as lm_evaluation
from cirf.methods.base import Method
from cirf.progress import SILENT
from cirf.recipe.schema import Evaluate, Recipe
from cirf.records import Problem
from cirf.stages import votes
from cirf.stages.scores import openings_of
from cirf.store.files import RowLog
from cirf.store.jsonl import read_rows
from cirf.tasks.task import Task

RECIPE = Recipe.model_validate({"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "codebook": {"size": 8}})
SECTION = Evaluate(latency_questions=9, latency_warmup=1, max_new_tokens=9)
GOLD, WORKING = "8675309", "SENTINEL OF THE RATIONALE"


class Writes:
    """Any output; ``text`` is what was written."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.truncated = text, 1, False


@pytest.fixture(scope="module", autouse=True)
def _no_waiting_for_disks() -> Iterator[None]:
    """Thousands of small files are written here that nobody reads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


def asked(method: Method, test: dict[str, list[Problem]]) -> dict[str, list[Any]]:
    """What a model is given, by the way in which it is asked."""
    given_to: list[str] = []
    voted_on: list[str] = []

    def generate(prompts: list[str], cap: int, run: int) -> list[Writes]:
        given_to.extend(prompts)
        return [Writes("1") for _ in prompts]

    def draw(wanted: Sequence[votes.Wanted], cap: int) -> list[list[Writes]]:
        voted_on.extend(one.prompt for one in wanted)
        return [[Writes("1")] * one.count for one in wanted]

    put = {name: tasks.get(name) for name in test}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        harness.evaluate(harness.Answerer(method, generate, str), harness.Questions(put, test), SECTION, work, SILENT)
        sampler = votes.Sampler(draw, str, {})
        votes.draw_votes(votes.VoteSource(method, put, SECTION), sampler, test, 2, RowLog(work / "log"), work / "votes", SILENT)
        for name, problems in test.items():
            lm_evaluation.write_task(work / "harness", name, put[name], problems, method, SECTION)
        exported = [row["prompt"] for path in sorted(work.glob("harness/*.jsonl")) for row in read_rows(path)]
    found: dict[str, list[Any]] = {"accuracy": given_to, "votes": voted_on, "lm-eval": exported}
    bench = Bench([method.name])
    latency.measure({method.name: method}, put, test, bench, SECTION, 1, SILENT)
    found["latency"] = [prompts for _, prompts, _ in bench.calls]
    return found


def parts_of(task: Task) -> list[str | None]:
    """The parts that a task's problems may be of; ``None`` where it has none."""
    return [part.config for part in task.hub.parts("test") if part.config] or [None] if task.hub else [None]


def problem_of(task: Task, name: str, text: str, part: str | None, answer: str, rationale: str | None) -> Problem:
    bare = Problem(name, task.name, text, answer, None, rationale, part)
    return dataclasses.replace(bare, choices=("a dog", "a cat", "a bird")) if task.kind(bare) == "option" else bare


def every_task(
    questions: Sequence[str], answer: str, rationale: str | None, names: Sequence[str] = tuple(tasks.names())
) -> dict[str, list[Problem]]:
    """Each registered task with these questions, or those of ``names``; where a task has parts, they are of other parts."""
    return {
        name: [
            problem_of(tasks.get(name), f"p{place}", text, part, answer, rationale)
            for place, (text, part) in enumerate(zip(questions, itertools.cycle(parts_of(tasks.get(name))), strict=False))
        ]
        for name in names
    }


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Nd"]), min_size=1)


ALIKE = {
    "cirf_subjects",
    "cirf_subjects_after_cot",
    "cirf_zero",
    "cirf_faster",
    "cirf_lean",
    "cirf_bare",
    "cirf_self",
    "cirf_fast",
}
ALIKE |= {"cirf_fast", "cirf_after_cot", "terse_subjects", "terse_equations", "filler", "sim_cot", "sem_cot"}
"""Methods whose prompts are made as those of others here: tried with ``-m slow``."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in ALIKE else []) for name in methods.names()]
)
@given(
    questions=st.lists(TEXT, min_size=2, max_size=2),
    answer=st.sampled_from(["0", "C", "yes", "no", ""]),
    rationale=st.none() | st.text(max_size=9),
)
@settings(max_examples=2)
def test_prompts_are_the_same_whatever_the_answer(name: str, questions: list[str], answer: str, rationale: str | None) -> None:
    method = methods.get(name, RECIPE)
    some = tasks.names()[methods.names().index(name) % 3 :: 3]  # all of them by every way: see the last test
    with_gold = asked(method, every_task(questions, GOLD, WORKING, some))
    assert with_gold == asked(method, every_task(questions, answer, rationale, some))
    assert len(with_gold["accuracy"]) == len(questions) * len(some) < len(with_gold["latency"])
    assert len(with_gold["lm-eval"]) == len(with_gold["accuracy"]) >= len(with_gold["votes"]) > 0
    assert GOLD not in str(with_gold) and WORKING not in str(with_gold)


def opened() -> list[str]:
    """The methods whose prompts open with what is the same for all questions."""
    gsm8k = {"gsm8k": tasks.get("gsm8k")}
    return [name for name in methods.names() if openings_of(methods.get(name, RECIPE), gsm8k)]


@pytest.mark.parametrize("name", opened())
def test_examples_are_those_of_the_task_whatever_the_question_and_its_answer(name: str) -> None:
    """An example may have the question's answer by chance: the check covers the text around the examples."""
    method = methods.get(name, RECIPE)
    for task in map(tasks.get, tasks.names()):
        openings = openings_of(method, {"": task})[""]
        for part in parts_of(task):
            shown = set()
            for answer in (GOLD, "7", "B", "yes", "valid"):
                prompt = method.prompt(problem_of(task, "p", "Which one is it?", part, answer, answer), task)
                opening = max((text for text in openings if prompt.startswith(text)), key=len)
                own = prompt.removeprefix(opening)
                assert own.split("\n") == [" Which one is it?", *(["A. a dog", "B. a cat", "C. a bird"] if "A. " in own else [])]
                shown.add(prompt)
            assert len(shown) == 1


def test_a_method_that_reaches_for_the_answer_finds_nothing() -> None:
    class Cheat(methods.METHODS["cot"]):  # type: ignore[misc,name-defined]
        name = "cheat"

        def prompt(self, problem: Problem, task: Task) -> str:
            return f"{problem.question} {problem.answer} {problem.rationale} {dataclasses.asdict(problem)}"

    found = asked(Cheat(RECIPE), every_task(["How many?", "And now?"], GOLD, WORKING))
    assert "How many?" in str(found) and GOLD not in str(found) and WORKING not in str(found)
