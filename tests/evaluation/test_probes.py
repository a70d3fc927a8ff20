"""Probes are asked in fixed batches, go on after a kill, and are compared question by question with the answers as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cirf.errors import CirfError
from cirf.evaluation.harness import Questions
from cirf.evaluation.probes import ProbedModel, probe, summary
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe.schema import Evaluate, Problems, Recipe, TaskEntry
from cirf.records import Problem
from cirf.statistics import compare, holm
from cirf.store.jsonl import read_rows
from cirf.tasks import get as get_task

RECIPE = Recipe(name="test", problems=Problems(tasks=(TaskEntry(task="svamp"),)))
DIRECT, TASKS, PROBES = get("direct", RECIPE), {"svamp": get_task("svamp")}, ("drop", "swap")


@dataclass(frozen=True)
class Written:
    text: str
    tokens: int = 2
    truncated: bool = False


@dataclass(frozen=True)
class Found:
    output: Written
    changed: bool
    partner: int | None = None


class Model:
    """Adds one, wrongly where the sum is ten; dropped it says nothing, swapped what the next of the batch would be."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.dies_at, self.calls = dies_at, list[list[str]]()

    def __call__(self, prompts: list[str], names: list[str], cap: int) -> Mapping[str, Sequence[Found]]:
        if len(self.calls) == self.dies_at:
            raise KeyboardInterrupt
        self.calls.append(names)
        assert all("SECRET" not in prompt for prompt in prompts) and cap == TASKS["svamp"].cap
        says = [str(int(prompt.split("What is ")[1].split(" ")[0]) + 1).replace("10", "99") for prompt in prompts]
        ring = [(place + 1) % len(says) for place in range(len(says))]
        as_is = [Found(Written(text), False) for text in says]
        swapped = [Found(Written(says[other]), other != place, other) for place, other in enumerate(ring)]
        return {"none": as_is, "keep": as_is, "drop": [Found(Written("?"), True) for _ in says], "swap": swapped}


def problems(count: int) -> list[Problem]:
    return [
        Problem(f"s{i}", "svamp", f"What is {i} + 1?" + " Think." * (i % 3), str(i + 1), rationale="SECRET") for i in range(count)
    ]


def probed(model: Model, work: Path, count: int = 13, size: int = 4) -> dict[str, dict[str, float]]:
    section, test = Evaluate(batch_size=size), {"svamp": problems(count)}
    details = probe(ProbedModel(DIRECT, model, str), Questions(TASKS, test), PROBES, section, work, SILENT, {"units": "thoughts"})
    assert details == json.loads((work / "probes.json").read_text())
    assert details["units"] == "thoughts" and list(details["probes"]) == ["none", "keep", "drop", "swap"]
    found: dict[str, dict[str, float]] = details["probes"]
    return found


def test_what_each_probe_says(tmp_path: Path) -> None:
    model = Model()
    found = probed(model, tmp_path)
    none, keep, drop, swap = found.values()
    assert none["accuracy"] == keep["accuracy"] == 12 / 13 and keep["moved"] == keep["changed"] == 0 and "against" not in keep
    assert drop["accuracy"] == 0 and drop["unparsed"] == drop["changed"] == drop["moved"] == 1
    assert swap["accuracy"] == 0 and swap["n_partner"] == 13 and swap["as_partner"] == 12 / 13
    rows = read_rows(tmp_path / "svamp.jsonl")
    assert [row["id"] for row in rows] == [f"s{i}" for i in range(13)] * 4
    right = {name: {row["id"]: row["correct"] for row in rows if row["probe"] == name} for name in found}
    p = [compare(right[name], right["none"]).p for name in PROBES]
    assert [found[name]["against"]["p"] for name in PROBES] == p  # type: ignore[index]
    assert [found[name]["against"]["p_holm"] for name in PROBES] == holm(p)  # type: ignore[index]
    swapped = [row for row in rows if row["probe"] == "swap"]
    assert all(row["partner"] != row["id"] and row["as_partner"] is (row["partner"] != "s9") for row in swapped)


def test_a_batch_is_never_of_one_question_where_there_are_two(tmp_path: Path) -> None:
    for count, size, sizes in ((13, 4, [4, 4, 3, 2]), (5, 4, [3, 2]), (4, 1, [2, 2]), (1, 4, [1]), (8, 4, [4, 4])):
        model = Model()
        probed(model, tmp_path / f"{count}-{size}", count, size)
        assert [len(names) for names in model.calls] == sizes


def test_a_killed_probing_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole = Model()
    probed(whole, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        probed(Model(dies_at=2), tmp_path / "killed")
    again = Model()
    probed(again, tmp_path / "killed")
    assert again.calls == whole.calls[2:]
    late = Model()  # after a kill between the last file and the stage's record
    probed(late, tmp_path / "killed")
    assert not late.calls
    for name in ("svamp.jsonl", "probes.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_nothing_to_ask_is_said(tmp_path: Path) -> None:
    with pytest.raises(CirfError, match="no test problem to probe with"):
        probe(ProbedModel(DIRECT, Model(), str), Questions(TASKS, {"svamp": []}), PROBES, Evaluate(), tmp_path, SILENT, {})


def test_tasks_are_pooled_and_distinguished() -> None:
    def row(name: str, item: str, correct: bool) -> dict[str, object]:
        details = {"probe": name, "id": item, "run": 0, "parsed": str(correct), "correct": correct, "tokens": 2}
        return details | {"truncated": False, "unparsed": False, "changed": name == "drop"}

    rows = {
        task: [row(name, item, name != "drop" or right) for name in ("none", "keep", "drop") for item in "ab"]
        for task, right in (("one", True), ("two", False))
    }
    drop = summary(rows, ["drop"])["drop"]
    assert drop["n"] == 4 and drop["accuracy"] == drop["moved"] == 0.5 and drop["against"]["losses"] == 2
    assert {task: found["accuracy"] for task, found in drop["tasks"].items()} == {"one": 1.0, "two": 0.0}
