"""Seconds of votes: every number of them in turn on the same questions, in an order that no drift favours."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bench import Bench

from cirf.evaluation.harness import Questions
from cirf.evaluation.self_consistency import Contest, measure, with_fallback
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe.schema import Evaluate, Problems, Recipe, TaskEntry
from cirf.records import Problem
from cirf.tasks import get as get_task

RECIPE = Recipe(name="test", problems=Problems(tasks=(TaskEntry(task="svamp"),)))
TEST = {"svamp": [Problem(f"s{i}", "svamp", f"What is {i} + 1?", str(i + 1), rationale="SECRET") for i in range(20)]}
COUNTS = (1, 2, 4)


def timed(
    work: Path | None = None, other: str | None = "cot", items: int = 20, voting: Any = None, **how: Any
) -> tuple[dict[str, Any], Bench]:
    turns = [str(count) for count in COUNTS]
    bench = Bench(*([turns] if other is None else [turns, ["0"]]), **how)
    alone = None if other is None else get(other, RECIPE)
    section = Evaluate(latency_questions=items, latency_warmup=1, voting=voting or {})
    tasks = {"svamp": get_task("svamp")}
    made = measure(
        Contest(get("direct", RECIPE), alone, COUNTS), Questions(tasks, TEST), bench, section, 1, SILENT, work, bench.now
    )
    return made, bench


def test_every_number_of_votes_and_the_one_answer_take_turns_on_the_same_questions() -> None:
    made, bench = timed()
    assert [point["votes"] for point in made["votes"]] == [1, 2, 4, 0] and made["n"] == 20
    assert {point["n"] for point in made["votes"]} == {20} and made["engine"] == "an engine"
    counted = bench.calls[4:]  # the warm-up's are not counted
    orders = [tuple(turn for turn, _, _ in counted[start : start + 4]) for start in range(0, len(counted), 4)]
    assert len(orders) == 20 and all(Counter(order) == Counter("0124") for order in orders)
    for place in range(4):
        assert Counter(order[place] for order in orders) == dict.fromkeys("0124", 5)
    assert not any("SECRET" in prompt for _, prompt, _ in bench.calls)
    assert timed(items=3)[1].calls != timed(items=3, other=None)[1].calls


def test_a_machine_that_slows_down_hits_all_alike() -> None:
    made, _ = timed(seconds=lambda call: 1 + call / 100)
    means = [point["mean_s"] for point in made["votes"]]
    assert max(means) / min(means) < 1.01
    assert [point["tokens"] for point in made["votes"]] == [7, 14, 28, 7]


def test_a_killed_measurement_goes_on_and_what_another_machine_began_is_begun_anew(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        timed(tmp_path, stop=30)
    made, bench = timed(tmp_path)
    assert len(bench.calls) < 60 and len(made["loads"]) == 2 and made["discarded"] == 0
    assert timed(tmp_path)[1].calls == []
    with pytest.raises(KeyboardInterrupt):
        timed(tmp_path, device="another device", stop=10)
    made, bench = timed(tmp_path, device="another device")
    assert made["discarded"] == 80 and made["device"] == "another device"  # told by the life that was cut short
    assert [row["votes"] for row in made["rows"]] == [row["votes"] for row in timed()[0]["rows"]]


def test_the_fallbacks_seconds_are_added_where_votes_disagree() -> None:
    def say(prompt: str, place: int) -> str:
        return str(place) if "is 3 +" in prompt else "none" if "is 5 +" in prompt else "7"

    made, _ = timed(say=say)
    seconds = {(row["votes"], row["id"]): row["seconds"] for row in made["rows"]}
    shares = {(row["votes"], row["id"]): row["share"] for row in made["rows"] if row["votes"]}
    assert (shares[4, "s3"], shares[4, "s5"], shares[1, "s3"]) == (0.25, 0, 1)
    assert shares[4, "s0"] == 0.75  # three of four settle it
    joint = with_fallback(made["rows"], 0.5)
    means = {point["votes"]: point["mean_s"] for point in made["votes"]}
    assert joint[4] == pytest.approx(means[4] + (seconds[0, "s3"] + seconds[0, "s5"]) / 20)
    assert joint[1] == pytest.approx(means[1] + seconds[0, "s5"] / 20)
    assert with_fallback(made["rows"], 0.0)[4] == pytest.approx(means[4] + seconds[0, "s5"] / 20)
    assert with_fallback(timed(other=None)[0]["rows"], 0.5) == {}


@pytest.mark.parametrize(
    ("fallback", "agreement", "written"), [(None, 0.5, 3), ("cot", 0.5, 3), ("cot", 1.0, 4), ("cot", 0.1, 3)]
)
def test_votes_are_written_until_those_left_could_change_nothing(fallback: str | None, agreement: float, written: int) -> None:
    made, bench = timed(voting={"fallback": fallback, "agreement": agreement})
    counted = {(turn, finished) for turn, _, finished in bench.sampled}
    assert counted == {("1", 1), ("2", 2), ("4", written)}
    assert {row["share"] for row in made["rows"] if row["votes"] == 4} == {written / 4}
