"""Protocols set what they say and nothing else, and applying one twice changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cirf.evaluation.protocols import PROTOCOLS, by_protocol
from cirf.recipe import Evaluate, Problems, Recipe, Sampled, TaskEntry

ENTRIES = (
    TaskEntry(task="gsm8k", train=7, test=3),
    TaskEntry(task="multiarith", test_from_train=5),
    TaskEntry(task="coin_flip", name="coins"),
    TaskEntry(task="jsonl", name="mine", train_file="mine.jsonl", test=9),
    TaskEntry(task="jsonl", name="theirs", train_file="theirs.jsonl", test_file="test.jsonl", test=9),
)


def asked(protocol: str) -> Recipe:
    section = Evaluate(protocol=protocol, temperature=0.3, top_p=0.5, runs=9, sampled=Sampled(runs=2, temperature=1.1))
    return by_protocol(Recipe(name="x", problems=Problems(tasks=ENTRIES), evaluate=section))


def test_own_is_as_the_keys_say() -> None:
    recipe = asked("own")
    assert recipe.problems.tasks == ENTRIES
    assert (recipe.evaluate.temperature, recipe.evaluate.runs, recipe.evaluate.sampled.runs) == (0.3, 9, 2)


@pytest.mark.parametrize(
    ("protocol", "rows", "drawn", "sampled"),
    [
        ("quick", [50, 50, 50], (0.0, 1.0, 1), 0),
        ("full", [None, None, None], (0.0, 1.0, 1), 3),
        ("paper", [200, 180, 200], (0.7, 0.95, 3), 0),
    ],
)
def test_a_protocol_says_which_problems_and_how_they_are_answered(
    protocol: str, rows: list[int | None], drawn: tuple[float, float, int], sampled: int
) -> None:
    recipe = asked(protocol)
    published, (mine, theirs) = recipe.problems.tasks[:3], recipe.problems.tasks[3:]
    assert [entry.test for entry in published] == rows
    assert not any(entry.test_from_train for entry in published)
    assert mine == ENTRIES[3]  # cut from the training file: another cut would be another training set
    assert theirs.test == PROTOCOLS[protocol].rows
    assert published[0].train == 7
    section = recipe.evaluate
    assert (section.temperature, section.top_p, section.runs) == drawn
    assert (section.sampled.runs, section.sampled.temperature, section.sampled.top_p) == (sampled, 0.7, 0.95)
    assert by_protocol(recipe) == recipe


def test_the_paper_asks_500_of_what_nothing_can_be_trained_on(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from cirf.tasks.task import Task\n"
        "TASK = Task('o', 'O', 's', 'number', lambda *_: '', row=lambda row: None, files={'test': 'x.jsonl'})\n"
    )
    entries = (
        *(TaskEntry(task=task) for task in ("math500", "bbh", "strategyqa", "scienceqa")),
        TaskEntry(task="jsonl", name="rows", test_file="rows.jsonl"),
        TaskEntry(task=str(own), name="own"),
        TaskEntry(task=str(own), name="given", test_file="rows.jsonl"),
        TaskEntry(task=str(own), name="learnt", train_file="a.jsonl", test_file="rows.jsonl"),
        TaskEntry(task="chain_sum"),
    )
    recipe = by_protocol(Recipe(name="x", problems=Problems(tasks=entries), evaluate=Evaluate(protocol="paper")))
    assert [entry.test for entry in recipe.problems.tasks] == [500] * 7 + [200] * 2
