from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from bench import Bench
from hypothesis import given
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.evaluation.latency import ROUNDS, blocks, draw, measure, summarise
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe.schema import Evaluate, Problems, Recipe, TaskEntry
from cirf.records import Problem
from cirf.statistics import spread
from cirf.tasks import get as get_task

RECIPE = Recipe(name="test", problems=Problems(tasks=(TaskEntry(task="svamp"),)))
TASKS = {"svamp": get_task("svamp"), "coin_flip": get_task("coin_flip")}
TEST = {
    name: [Problem(f"{name}-{i}", name, f"question {i} of {name}", f"gold-{i}", rationale="SECRET") for i in range(30)]
    for name in TASKS
}
THREE = (("direct", "cot"), ("cirf_full",))


def run(groups=THREE, items=5, warmup=2, seed=1, test=TEST, work=None, **how):
    bench = Bench(*groups, **how)
    methods = {name: get(name, RECIPE) for group in groups for name in group}
    section = Evaluate(latency_questions=items, latency_warmup=warmup, max_new_tokens=99)
    return measure(methods, TASKS, test, bench, section, seed, SILENT, work=work), bench


def ids(made, method="cot"):
    return [(row["task"], row["id"]) for row in made["rows"] if row["method"] == method]


def test_warm_up_is_run_and_not_counted():
    made, bench = run((("cot",),))
    assert len(bench.calls) == 2 + 10
    assert [row["seconds"] for row in made["rows"]] == [float(i) for i in range(3, 13)]
    summary = made["methods"]["cot"]
    assert summary["overall"]["n"] == 10 and summary["overall"]["mean_s"] == 7.5
    assert summary["tasks"].keys() == {"svamp", "coin_flip"} and summary["tasks"]["svamp"]["n"] == 5
    assert (made["engine"], made["device"], made["batch_size"], made["warmup"]) == ("an engine", "a device", 1, 2)
    assert {cap for _, _, cap in bench.calls} == {99}
    assert made["rows"][0].keys() == {"method", "task", "id", "tokens", "seconds", "first_token_seconds"}
    assert made["loads"] == [{"together": True, "models": 1}]


def test_methods_take_turns_at_the_same_questions():
    made, bench = run()
    counted = bench.calls[3 * 2 :]
    for start in range(0, len(counted), 3):
        turn = counted[start : start + 3]
        assert {name for name, _, _ in turn} == {"direct", "cot", "cirf_full"}
        assert len({prompt.removeprefix("[").splitlines()[0].removesuffix("]") for _, prompt, _ in turn}) == 1
    assert bench.loads == [("direct", "cot", "cirf_full")]
    assert ids(made, "cot") == ids(made, "direct") == ids(made, "cirf_full")
    firsts = {counted[start][0] for start in range(0, len(counted), 3)}
    assert firsts == {"direct", "cot", "cirf_full"}  # none is always the first


def test_a_machine_that_slows_down_hits_all_methods_alike():
    drift, _ = run(items=30, seconds=lambda call: 1 + call / 100)
    means = [row["overall"]["mean_s"] for row in drift["methods"].values()]
    assert max(means) / min(means) < 1.005


def test_models_that_do_not_fit_are_measured_in_rounds_on_the_same_questions():
    made, bench = run(together=False)
    assert len(bench.loads) == 8 and len(bench.calls) == 30 + 2 * 3 * 4
    assert sorted(ids(made, "cot")) == sorted(ids(made, "cirf_full")) == sorted(ids(run()[0]))
    assert made["loads"] == [{"together": False, "models": 2}]


def test_the_questions_are_drawn_by_the_seed_alone():
    assert ids(run()[0]) != ids(run(seed=2)[0])
    backwards = {name: rows[::-1] for name, rows in TEST.items()}
    assert ids(run(test=backwards)[0]) == ids(run()[0])
    assert ids(run((("cot",),))[0]) == ids(run()[0])  # another method beside it changes nothing
    chosen = draw("svamp", TEST["svamp"], 5, 1)
    assert len({problem.id for problem in chosen}) == 5


def test_no_answer_reaches_a_prompt():
    _, bench = run(items=30)
    assert not any("gold" in prompt or "SECRET" in prompt for _, prompt, _ in bench.calls)


def test_fewer_problems_than_asked_for_and_none_at_all():
    few = {"svamp": TEST["svamp"][:3], "coin_flip": []}
    assert run(items=20, test=few)[0]["methods"]["cot"]["overall"]["n"] == 3
    made, bench = run(items=0)
    assert made["methods"]["cot"] == {
        "overall": {"n": 0},
        "tasks": {},
        "weights_bytes": None,
        "growth_bytes": None,
        "peak_bytes": None,
    }
    assert bench.calls == []


def test_memory_is_reported_where_the_device_reports_it():
    on_cpu, on_gpu = run()[0]["methods"]["cot"], run(device="cuda")[0]["methods"]["cot"]
    assert (on_cpu["weights_bytes"], on_cpu["growth_bytes"], on_cpu["peak_bytes"]) == (100, None, None)
    assert on_gpu["peak_bytes"] == 100 + on_gpu["growth_bytes"] > 100


def test_a_clock_that_does_not_move_is_refused():
    with pytest.raises(CirfError, match=r"reports 0\.0 s"):
        run(seconds=lambda call: 0.0)


def test_times_before_and_after_the_first_token():
    rows = [
        {"task": "a", "id": "0", "seconds": 1.0, "tokens": 6, "first_token_seconds": 0.5},
        {"task": "a", "id": "1", "seconds": 3.0, "tokens": 11, "first_token_seconds": 0.5},
        {"task": "b", "id": "2", "seconds": 0.5, "tokens": 1, "first_token_seconds": None},
    ]
    summary = summarise(rows)
    assert (summary["first_token_s"], summary["decode_s"], summary["decode_tokens_per_s"]) == (0.5, 1.5, 15 / 3)
    assert (summary["mean_s"], summary["p50_s"], summary["p95_s"]) == (1.5, 1.0, pytest.approx(2.8))
    assert summary["mean_s_interval"] is None  # a task of one item
    low, high = summarise(rows[:2])["mean_s_interval"]
    assert 1.0 <= low < 2.0 < high <= 3.0
    unknown = summarise(rows[2:])
    assert (unknown["first_token_s"], unknown["decode_s"], unknown["decode_tokens_per_s"]) == (None, None, None)


def test_sampled_answers_are_timed_in_several_runs_of_their_own():
    bench = Bench(("cot",))
    section = Evaluate(latency_questions=2, latency_warmup=1, temperature=0.7, latency_runs=3)
    made = measure({"cot": get("cot", RECIPE)}, TASKS, TEST, bench, section, 1, SILENT)
    assert bench.runs == [0] + [0, 1, 2] * 4
    summary = made["methods"]["cot"]["overall"]
    assert summary["n"] == 4 and summary["runs_s"] == [6.5, 7.5, 8.5] and summary["mean_s"] == 7.5
    assert spread(summary["runs_s"]) == pytest.approx((2 / 3) ** 0.5)
    greedy = section.model_copy(update={"temperature": 0.0})
    made = measure({"cot": get("cot", RECIPE)}, TASKS, TEST, Bench(("cot",)), greedy, 1, SILENT)
    assert len(made["rows"]) == 4 and "runs_s" not in made["methods"]["cot"]["overall"]


@pytest.mark.parametrize("together", [True, False])
def test_a_killed_measurement_goes_on_and_ends_with_the_same_rows(tmp_path, together):
    def turns(made):
        return [(row["method"], row["task"], row["id"]) for row in made["rows"]]

    whole, bench = run(together=together)
    calls = len(bench.calls)
    with pytest.raises(KeyboardInterrupt):
        run(work=tmp_path, together=together, stop=14)
    timed = (tmp_path / "scratch" / "latency.jsonl").read_text().count('"method"')
    assert timed > 0
    made, again = run(work=tmp_path, together=together)
    assert turns(made) == turns(whole)
    assert len(again.calls) < calls
    counted = [row["seconds"] for row in made["rows"]]
    assert len(counted) == 30 and len(made["loads"]) == 2
    made, third = run(work=tmp_path, together=together)
    assert third.calls == [] and third.loads == [] and [row["seconds"] for row in made["rows"]] == counted
    assert len(made["loads"]) == 2


def test_what_another_machine_began_is_begun_anew(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(work=tmp_path, stop=20)
    made, bench = run(work=tmp_path, device="another device")
    assert len(bench.calls) == 3 * 2 + 30 and len(made["loads"]) == 1 and made["device"] == "another device"


GROUPS = st.lists(st.integers(1, 3), min_size=1, max_size=5).map(
    lambda sizes: [[f"m{group}{place}" for place in range(size)] for group, size in enumerate(sizes)]
)


@given(GROUPS, st.integers(0, 40), st.integers(0, 9), st.booleans())
def test_every_method_takes_every_piece_once(groups, count, seed, together):
    made = blocks(groups, range(count), seed, together)
    turns = [turn for block in made for turn in block.turns]
    assert Counter(turns) == Counter((piece, name) for piece in range(count) for group in groups for name in group)
    for block in made:
        assert {name for _, name in block.turns} == set(block.methods)
        pieces = [piece for piece, _ in block.turns]
        assert pieces == sorted(pieces)  # the methods of a piece come one behind the other, the pieces in their order
    assert made == blocks(groups, range(count), seed, together)


@given(GROUPS, st.integers(1, 4), st.integers(0, 9))
def test_each_method_is_at_each_place_equally_often(groups, cycles, seed):
    methods = [name for group in groups for name in group]
    (block,) = blocks(groups, range(cycles * len(methods)), seed, True)
    names = [name for _, name in block.turns]
    for place in range(len(methods)):
        assert Counter(names[place :: len(methods)]) == dict.fromkeys(methods, cycles)


def test_the_order_is_the_seeds_and_no_method_always_follows_the_same_one():
    groups = [["a"], ["b"], ["c"], ["d"]]
    (block,) = blocks(groups, range(400), 1, True)
    assert block != blocks(groups, range(400), 2, True)[0]
    names = [name for _, name in block.turns]
    behind_a = Counter(after for before, after in pairwise(names) if before == "a")
    assert set(behind_a) >= {"b", "c", "d"} and max(behind_a.values()) < 200


def test_models_that_do_not_fit_are_loaded_a_few_times_in_turn():
    groups = [["direct", "cot"], ["full"]]
    made = blocks(groups, range(10), 1, together=False)
    assert [block.methods for block in made] == [("direct", "cot"), ("full",), ("full",), ("direct", "cot")] * (ROUNDS // 2)
    assert [len({piece for piece, _ in block.turns}) for block in made[::2]] == [2, 3, 2, 3]
    assert len(blocks(groups, range(1), 1, together=False)) == 2
    assert len(blocks([["direct", "cot"]], range(10), 1, together=False)) == 1  # one model need not be loaded again
    assert blocks(groups, [], 1, together=True) == []
