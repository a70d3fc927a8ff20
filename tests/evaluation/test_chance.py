"""Unrelated text against chance: fair parsers stay within it, careless ones are found out."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from benchmarks.chance import Text, find, loosely_right, unrelated

from cirf.records import Problem
from cirf.tasks import get
from cirf.tasks.steps import calculated
from cirf.tasks.task import Task

DRAWS = 500


def numbers(count: int) -> tuple[list[Problem], list[Text]]:
    draw = random.Random(1)
    problems = [Problem(f"p{n}", "sums", f"Question {n}?", str(draw.randint(1, 6))) for n in range(count)]
    return problems, [Text(p.question, f"{p.question} We find {p.answer}.\n#### {p.answer}") for p in problems]


def letters(count: int) -> tuple[list[Problem], list[Text]]:
    draw = random.Random(2)
    things = ("roof", "boat", "lamp", "tree", "well")
    problems = []
    for n in range(count):
        few = things[: draw.randint(2, 5)]  # an answer is never beyond the last option, and no parser reads one there
        problems.append(Problem(f"q{n}", "picks", f"Which one {n}?", draw.choice("ABCDE"[: len(few)]), few))
    said = [f"Because of such a decade the answer is {draw.choice('ABCDE')}." for _ in problems]
    return problems, [Text(f"Another {n}?", text) for n, text in enumerate(said)]


def test_texts_are_of_other_questions_and_each_is_used() -> None:
    problems, texts = numbers(30)
    given = unrelated(problems, texts, 3)
    assert all(problem.question not in found for problem, found in zip(problems, given, strict=True))
    assert unrelated(problems, texts, 3) == given != unrelated(problems, texts, 4)
    mine = [Text(" QUESTION 0?", "a"), Text("other", "b")]
    assert unrelated(problems[:1] * 3, mine, 1) == ["b"] * 3
    with pytest.raises(ValueError, match="p0"):
        unrelated(problems[:1], mine[:1], 1)


def test_fair_parsers_are_within_chance() -> None:
    sums, worked = numbers(120)
    picks, said = letters(120)
    tasks = {"sums": (get("gsm8k"), sums), "picks": (get("commonsense_qa"), picks)}
    found = {row.task: row for row in find(tasks, {"sums": worked, "picks": said}, draws=DRAWS)}
    assert all(row.within_chance and 0 < row.p <= row.adjusted <= 1 for row in found.values())
    assert found["sums"].parsed == 1 and abs(found["sums"].chance - 1 / 6) < 0.05
    assert found["picks"].loose > 0.9 > 2 * found["picks"].accuracy
    again = {row.task: row for row in find(tasks, {"sums": worked, "picks": said}, draws=DRAWS)}
    assert again == found


def test_a_parser_that_peeks_is_found_out() -> None:
    problems, texts = numbers(60)
    peeking = {problem.question: problem.answer for problem in problems}
    task = replace(get("gsm8k"), parser=lambda text, problem: peeking[problem.question])
    (row,) = find({"sums": (task, problems)}, {"sums": texts}, draws=DRAWS)
    assert row.accuracy == 1 and not row.within_chance


def test_subsets_are_findings_of_their_own_and_a_task_without_texts_borrows() -> None:
    kinds = {"b": "yesno"}
    task = Task("t", "T", "s", "number", calculated, kinds=kinds)  # type: ignore[arg-type]
    problems = [Problem(f"{n}", "t", f"Q{n}", "3" if n % 2 else "yes", subset="a" if n % 2 else "b") for n in range(20)]
    found = find({"t": (task, problems)}, {"t": [], "u": [Text("other", "#### 3"), Text("third", "so yes.")]}, draws=DRAWS)
    assert [(row.task, row.subset, row.n) for row in found] == [("t", None, 20), ("t", "a", 10), ("t", "b", 10)]
    assert all(row.within_chance for row in found)


def test_the_loose_rule() -> None:
    pick = Problem("p", "t", "?", "C", ("x", "y", "z"))
    assert loosely_right(get("commonsense_qa"), "Such a fact", pick) and not loosely_right(get("commonsense_qa"), "Nothing", pick)
    total = Problem("p", "t", "?", "7")
    assert loosely_right(get("gsm8k"), "7 of 12", total) and not loosely_right(get("gsm8k"), "17", total)
    assert loosely_right(get("coin_flip"), "yesterday", Problem("p", "t", "?", "yes"))
    assert loosely_right(get("math500"), r"7 or \pi", Problem("p", "t", "?", r"\pi"))
