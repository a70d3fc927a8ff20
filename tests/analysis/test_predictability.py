"""What there is to know of the next functional token: what is planted is found, what is not there is not."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from safetensors.numpy import save_file

from cirf.analysis.analysis import Lacking, get
from cirf.analysis.predictability import predicted
from cirf.analysis.source import Source

PLACE, BEFORE, ALL = "place of the step", "code before", "task, place, code before"
ITSELF = "the step itself"
SIZE = 4


def codes(rule: Any, rationales: int = 60, steps: int = 5) -> dict[str, list[list[int]]]:
    """Codes of two tasks by a rule of dice, task, place and the code before."""
    dice, found = random.Random(3), {}
    for task in made.TASKS:
        found[task] = [list[int]() for _ in range(rationales)]
        for one in found[task]:
            for place in range(steps):
                one.append(rule(dice, task, place, one[-1] if one else None))
    return found


def losses(folder: Path, rule: Any) -> dict[str, dict[str, Any]]:
    run = made.run(folder, {"cirf_full": {"sums": 0.5}}, codes=codes(rule), codebook__size=SIZE)
    found = get("predictability").make(Source([run]))
    assert list(found.pictures) == ["predictability"] and found.pictures["predictability"].startswith("<svg")
    return {row["known"]: row for row in found.tables[0].rows}


def test_codes_at_random_are_foretold_by_nothing(tmp_path):
    rows = losses(tmp_path, lambda dice, *_: dice.randrange(SIZE))
    assert rows[f"nothing (1 of {SIZE})"]["loss"] == pytest.approx(math.log(SIZE))
    assert ITSELF not in rows  # its vectors are not there
    for row in list(rows.values())[1:]:
        assert math.log(SIZE) - 0.02 < row["loss"] < math.log(SIZE) + 0.1 and row["right"] < 0.35
        assert row["loss_low"] < row["loss"] < row["loss_high"] and (row["steps"], row["questions"]) == (600, 120)


@pytest.mark.parametrize(
    ("rule", "known", "unknown"),
    [
        (lambda dice, task, place, before: place % SIZE, (PLACE, ALL), ()),
        (
            lambda dice, task, place, before: dice.randrange(SIZE) if before is None else (before + 1) % SIZE,
            (BEFORE, ALL),
            (PLACE,),
        ),
        (lambda dice, task, place, before: made.TASKS.index(task), (ALL,), (PLACE,)),
    ],
)
def test_what_codes_hang_on_foretells_them(tmp_path, rule, known, unknown):
    rows = losses(tmp_path, rule)
    often = rows["how often each comes"]["loss"]
    for name in known:
        assert rows[name]["loss"] < 0.45 * often and rows[name]["right"] > 0.75, name
    for name in unknown:
        assert rows[name]["loss"] > 0.9 * often, name


def test_the_steps_own_vectors_foretell_codes_that_were_made_of_them_and_the_models_loss_stands_beside(tmp_path):
    run = made.run(
        tmp_path, {"cirf_full": {"sums": 0.5}}, codes=codes(lambda dice, *_: dice.randrange(SIZE)), codebook__size=SIZE
    )
    run.recipe["codebook"].update(representation="raw", single_step="zero")
    drawn = np.concatenate([one for task in codes(lambda dice, *_: dice.randrange(SIZE)).values() for one in task])
    noise = np.random.default_rng(0).normal(size=(len(drawn), 8))
    (tmp_path / "embeddings").mkdir()
    vectors = (np.eye(8)[drawn] + 0.1 * noise).astype(np.float32)
    save_file({"segments": vectors}, tmp_path / "embeddings" / "embeddings.safetensors")
    history = {"validation": [{"update": 0, "loss": 9.0}, {"update": 1, "loss": 1.0, "code_loss": 1.25}]}
    for name in ("cirf_full", "cirf_self"):  # the codes of the latter are no codebook's
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "history.json").write_text(json.dumps(history))
    rows = {row["known"]: row for row in get("predictability").make(Source([run])).tables[0].rows}
    assert rows[ITSELF]["loss"] < 0.3 and rows[ITSELF]["right"] > 0.98 and rows[PLACE]["loss"] > 1.3
    assert [row["loss"] for name, row in rows.items() if "cirf_" in name] == [1.25]


def test_codes_that_are_all_the_same_are_foretold(tmp_path):
    rows = losses(tmp_path, lambda *_: 1)
    assert all(row["loss"] < 0.1 and row["right"] == 1 for known, row in rows.items() if not known.startswith("nothing"))


def test_a_question_is_foretold_by_others_alone():
    """A classifier that saw the question itself would know the code of all its steps by heart."""
    dice = np.random.default_rng(1)
    questions = np.repeat(np.arange(40), 5)
    own = dice.integers(0, SIZE, 40)[questions]
    found, right = predicted(np.eye(40)[questions], own, questions, SIZE)
    assert found.mean() > math.log(SIZE) - 0.05 and right.mean() < 0.5


def test_a_code_that_no_other_question_has_costs_much_and_not_all():
    questions = np.repeat(np.arange(20), 3)
    own = np.where(questions == 7, 3, questions % 2)
    found, _ = predicted(np.eye(2)[questions % 2], own, questions, SIZE)
    assert np.isfinite(found).all() and found[questions == 7].min() > 3 > found[questions != 7].max()


@pytest.mark.parametrize("coded", [None, {"sums": [[0, 1]] * 9}, {"sums": [[0, 1]] * 9 + [[]] * 9}])
def test_too_few_questions_are_said(tmp_path, coded):
    run = made.run(tmp_path, {"cirf_full": {"sums": 0.5}}, codes=coded)
    with pytest.raises(Lacking, match="10 are needed"):
        get("predictability").make(Source([run]))
