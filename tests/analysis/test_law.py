"""The line through accuracies: which points count, how many models they are of, and what shows that it is no line."""

from __future__ import annotations

import json
import random
from typing import Any

import made
import numpy as np

from cirf.analysis import get
from cirf.analysis.accuracy import FUNCTIONAL
from cirf.analysis.analysis import Found
from cirf.analysis.line import drawn, fit
from cirf.analysis.source import Source
from cirf.files import write_rows

TOKENS = dict(zip(FUNCTIONAL, (4, 8, 16, 32, 64, 128), strict=False))


def make(*runs: Any) -> Found:
    return get("scaling_law").make(Source(runs))


def fits(found: Found, against: str = "log2 tokens") -> dict[str, Any]:
    (row,) = (row for row in found.tables[0].rows if row["against"] == against)
    return dict(row)


def nested(folder: Any, accuracies: list[float], questions: int = 400, **keys: Any) -> Any:
    """A run whose methods solve the same questions first, so that their differences are sure where their intervals are wide."""
    order = list(range(questions))
    random.Random(1).shuffle(order)
    found = made.run(folder, {name: {"sums": 0.5} for name in FUNCTIONAL[: len(accuracies)]}, questions=questions, **keys)
    for name, accuracy in zip(FUNCTIONAL, accuracies, strict=False):
        solved = set(order[: round(accuracy * questions)])
        rows = [
            {"id": f"sums-{number}", "run": 0, "output": "x", "correct": number in solved, "tokens": TOKENS[name]}
            for number in range(questions)
        ]
        write_rows(folder / "evaluation" / name / "sums.jsonl", rows)
    return found


def test_a_bend_is_seen_that_lies_within_each_points_interval(tmp_path):
    bent = make(nested(tmp_path / "bent", [0.50, 0.56, 0.60, 0.62, 0.63, 0.63]))
    assert fits(bent)["p_line"] < 0.01 and "no line" in fits(bent)["reading"] and "no line" in bent.notes[0]
    points = bent.tables[1].rows
    assert all(row["accuracy_low"] < row["accuracy"] - row["residual_tokens"] < row["accuracy_high"] for row in points)
    straight = make(nested(tmp_path / "straight", [0.50, 0.53, 0.56, 0.59, 0.62, 0.65]))
    assert fits(straight)["reading"] == "a trend that these questions do not tell from a line"


def test_a_line_is_seldom_called_none():
    dice, x = np.random.default_rng(0), np.arange(6.0)
    called = 0
    for _ in range(200):
        ease = dice.random((1, 300)) * 0.7 + dice.random((6, 300)) * 0.3  # a question that is easy for one is so for all
        solved = (ease < (0.4 + 0.03 * x)[:, None]).astype(float)
        heights = np.array([np.mean((dice.random((20000,)) * 0.7 + dice.random(20000) * 0.3) < 0.4 + 0.03 * at) for at in x])
        y = solved.mean(axis=1) - (heights - np.polyval(np.polyfit(x, heights, 1), x))  # the truth on a line
        draws = drawn([solved], 400) + (y - solved.mean(axis=1))
        line = fit(x, y, np.broadcast_to(x, draws.shape), draws, 0.5 / 300)
        called += line.p_line is not None and line.p_line < 0.05
    assert called <= 24


def test_models_count_once(tmp_path):
    run = made.run(tmp_path / "run", {name: {"sums": 0.5} for name in FUNCTIONAL[:4]}, tokens=TOKENS)
    run.data["recipe"]["variants"] = {FUNCTIONAL[3]: {"method": FUNCTIONAL[3], "model": FUNCTIONAL[0]}}
    assert (fits(make(run))["points"], fits(make(run))["models"]) == (4, 3)
    other = made.run(tmp_path / "other", {FUNCTIONAL[0]: {"sums": 0.5}}, draw=1, tokens={FUNCTIONAL[0]: 5}, seed=2)
    for one in (run, other):
        stage = one.folder / "models" / FUNCTIONAL[0] / "stage.json"
        stage.parent.mkdir(parents=True)
        stage.write_text(json.dumps({"key": "same"}))
    assert (fits(make(run, other))["points"], fits(make(run, other))["models"]) == (5, 3)


def test_points_of_the_same_settings_count_once(tmp_path):
    shares = {name: {"sums": 0.5} for name in FUNCTIONAL[:4]}
    runs = [made.run(tmp_path / "one", shares, tokens=TOKENS)]
    runs.append(made.run(tmp_path / "two", shares | {"direct": {"sums": 0.5}}, tokens=TOKENS, methods=[*shares, "direct"]))
    assert fits(make(*runs))["points"] == 4


def test_points_without_times_leave_the_others_theirs(tmp_path):
    shares = {name: {"sums": 0.5} for name in FUNCTIONAL[:4]}
    timed = made.run(tmp_path / "timed", shares, tokens=TOKENS, seconds={name: TOKENS[name] / 10 for name in shares})
    untimed = made.run(tmp_path / "untimed", shares, tokens=TOKENS, codebook__size=8)
    found = make(timed, untimed)
    assert fits(found)["points"] == 8 and fits(found, "seconds")["points"] == 4
    assert any("4 of 8 points have no time" in note for note in found.notes)


def test_backbones_of_one_last_part_have_lines_of_their_own(tmp_path):
    shares = {name: {"sums": 0.5} for name in FUNCTIONAL[:4]}
    runs = [made.run(tmp_path / name, shares, tokens=TOKENS, backbone__model=f"/{name}/model") for name in "ab"]
    found = make(*runs)
    assert [row["points"] for row in found.tables[0].rows] == [4, 4] and len(found.pictures) == 2
