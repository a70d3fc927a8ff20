import pytest
from bench import Bench

from cirf.errors import CirfError
from cirf.evaluation.latency import draw, measure, summarise
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe import Evaluate, Problems, Recipe, TaskEntry
from cirf.records import Problem
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
    section = Evaluate(latency_items=items, latency_warmup=warmup, text_cap=99)
    return measure(methods, TASKS, test, bench, section, seed, SILENT, work=work), bench


def ids(made, method="cot"):
    return [(row["task"], row["id"]) for row in made["rows"] if row["method"] == method]


def test_warm_up_is_run_and_not_counted():
    made, bench = run((("cot",),))
    assert len(bench.calls) == 2 + 10
    assert [row["seconds"] for row in made["rows"]] == [float(i) for i in range(3, 13)]
    told = made["methods"]["cot"]
    assert told["overall"]["n"] == 10 and told["overall"]["mean_s"] == 7.5
    assert told["tasks"].keys() == {"svamp", "coin_flip"} and told["tasks"]["svamp"]["n"] == 5
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


def test_memory_is_told_where_the_device_tells_it():
    on_cpu, on_gpu = run()[0]["methods"]["cot"], run(device="cuda")[0]["methods"]["cot"]
    assert (on_cpu["weights_bytes"], on_cpu["growth_bytes"], on_cpu["peak_bytes"]) == (100, None, None)
    assert on_gpu["peak_bytes"] == 100 + on_gpu["growth_bytes"] > 100


def test_a_clock_that_stands_still_is_refused():
    with pytest.raises(CirfError, match=r"reports 0\.0 s"):
        run(seconds=lambda call: 0.0)


def test_times_before_and_after_the_first_token():
    rows = [
        {"task": "a", "seconds": 1.0, "tokens": 6, "first_token_seconds": 0.5},
        {"task": "a", "seconds": 3.0, "tokens": 11, "first_token_seconds": 0.5},
        {"task": "b", "seconds": 0.5, "tokens": 1, "first_token_seconds": None},
    ]
    told = summarise(rows)
    assert (told["first_token_s"], told["decode_s"], told["decode_tokens_per_s"]) == (0.5, 1.5, 15 / 3)
    assert told["mean_s_interval"] is None  # a task of one item
    low, high = summarise(rows[:2])["mean_s_interval"]
    assert 1.0 <= low < 2.0 < high <= 3.0
    unknown = summarise(rows[2:])
    assert (unknown["first_token_s"], unknown["decode_s"], unknown["decode_tokens_per_s"]) == (None, None, None)


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
