from typing import NamedTuple

import pytest

from cirf.errors import CirfError
from cirf.evaluation.latency import draw, measure, summarise
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe import Evaluate, Problems, Recipe, TaskEntry
from cirf.records import Problem
from cirf.tasks import get as get_task


class Timed(NamedTuple):
    tokens: int
    seconds: float
    first_token_seconds: float | None
    text: str = "not for a timings file"


RECIPE = Recipe(name="test", problems=Problems(tasks=(TaskEntry(task="svamp"),)))
TASKS = {"svamp": get_task("svamp"), "coin_flip": get_task("coin_flip")}
TEST = {
    name: [Problem(f"{name}-{i}", name, f"question {i} of {name}", f"gold-{i}", rationale="SECRET") for i in range(30)]
    for name in TASKS
}


def run(method="cot", items=5, warmup=2, seed=1, seconds=None, test=TEST, work=None, stop=None):
    calls = []

    def one(prompt, cap):
        if len(calls) == stop:
            raise KeyboardInterrupt
        calls.append((prompt, cap))
        return Timed(7, seconds if seconds is not None else float(len(calls)), 0.25)

    section = Evaluate(latency_items=items, latency_warmup=warmup, text_cap=99)
    made = measure(
        get(method, RECIPE),
        TASKS,
        test,
        one,
        lambda text: f"[{text}]",
        section,
        seed,
        SILENT,
        engine="an engine",
        device="a device",
        work=work,
    )
    return made, calls


def test_warm_up_is_run_and_not_counted():
    made, calls = run()
    assert len(calls) == 2 + 10
    assert [row["seconds"] for row in made["rows"]] == [float(i) for i in range(3, 13)]
    assert made["tasks"]["svamp"] == {"n": 5, "mean_s": 5.0, "p50_s": 5.0, "p95_s": 6.8, "tokens": 7.0, "first_token_s": 0.25}
    assert made["overall"]["n"] == 10 and made["overall"]["mean_s"] == 7.5
    assert (made["engine"], made["device"], made["batch_size"], made["warmup"]) == ("an engine", "a device", 1, 2)
    assert {cap for _, cap in calls} == {99}
    assert made["rows"][0].keys() == {"task", "id", "tokens", "seconds", "first_token_seconds"}


def test_no_answer_reaches_a_prompt():
    _, calls = run(items=30)
    assert not any("gold" in prompt or "SECRET" in prompt for prompt, _ in calls)


def test_every_method_is_timed_on_the_same_items_drawn_by_the_seed():
    def ids(made):
        return [row["id"] for row in made["rows"]]

    assert ids(run("cot")[0]) == ids(run("direct")[0]) != ids(run("cot", seed=2)[0])
    backwards = {name: rows[::-1] for name, rows in TEST.items()}
    assert ids(run(test=backwards)[0]) == ids(run()[0])
    chosen = draw("svamp", TEST["svamp"], 5, 1)
    assert len({problem.id for problem in chosen}) == 5


def test_fewer_problems_than_asked_for_and_none_at_all():
    few = {"svamp": TEST["svamp"][:3], "coin_flip": []}
    assert run(items=20, test=few)[0]["overall"]["n"] == 3
    made, calls = run(items=0)
    assert made["overall"] == {"n": 0} and made["tasks"] == {} and calls == []


def test_a_clock_that_stands_still_is_refused():
    with pytest.raises(CirfError, match=r"reports 0\.0 s"):
        run(seconds=0.0)


def test_unknown_first_tokens_stay_unknown():
    rows = [{"seconds": 1.0, "tokens": 2, "first_token_seconds": None}]
    assert summarise(rows)["first_token_s"] is None


def test_a_killed_measurement_goes_on_behind_the_last_item(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(work=tmp_path, stop=6)  # two to warm up, four timed
    made, calls = run(work=tmp_path)
    assert len(calls) == 2 + 6
    assert [row["id"] for row in made["rows"]] == [row["id"] for row in run()[0]["rows"]]
    assert not run(work=tmp_path)[1]
