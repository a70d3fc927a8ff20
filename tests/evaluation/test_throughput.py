import pytest
from bench import Bench

from cirf.evaluation.throughput import measure
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe import Evaluate, Problems, Recipe, TaskEntry
from cirf.records import Problem
from cirf.tasks import get as get_task

RECIPE = Recipe(name="test", problems=Problems(tasks=(TaskEntry(task="svamp"),)))
TASKS = {"svamp": get_task("svamp"), "coin_flip": get_task("coin_flip")}
TEST = {
    name: [Problem(f"{name}-{i}", name, f"{'A ' * (i % 7)}question {i} of {name}", "gold", None, "SECRET") for i in range(30)]
    for name in TASKS
}
GROUPS = (("direct", "cot"), ("cirf_full",))


def run(batches=(4, 16), items=20, work=None, test=TEST, **how):
    bench = Bench(*GROUPS, **how)
    methods = {name: get(name, RECIPE) for group in GROUPS for name in group}
    section = Evaluate(throughput_batches=batches, throughput_items=items, text_cap=99)
    return measure(methods, TASKS, test, bench, section, 1, SILENT, work=work), bench


def test_every_method_answers_the_same_questions_at_every_batch_size():
    made, bench = run()
    warm = 3 * 2  # a batch a method and size
    asked = {}
    for name, prompts, _ in bench.calls[warm:]:
        asked.setdefault(name, []).append([prompt.strip("[]").splitlines()[0] for prompt in prompts])
    assert asked["cot"] == asked["direct"] == asked["cirf_full"]
    assert sorted(map(len, asked["cot"])) == [4] * 12 + [16] * 2
    flat = [question for batch in asked["cot"] for question in batch]
    assert len(set(flat)) == 40 and len(flat) == 80
    assert made["questions"] == 40
    assert not any("gold" in prompt or "SECRET" in prompt for _, prompts, _ in bench.calls for prompt in prompts)


def test_rates_are_of_all_batches_of_a_size():
    made, _ = run(seconds=lambda call: 0.5)
    told = made["methods"]["cot"]
    assert list(told) == ["4", "16"]
    assert told["4"] == {"problems": 40, "seconds": 5.0, "problems_per_s": 8.0, "tokens_per_s": 56.0}
    assert told["16"]["seconds"] == 2.0  # two whole batches and two of what was left


def test_methods_take_turns_batch_by_batch():
    _, bench = run()
    counted = bench.calls[6:]
    for start in range(0, len(counted), 3):
        assert {name for name, _, _ in counted[start : start + 3]} == {"direct", "cot", "cirf_full"}


def test_a_killed_measurement_goes_on(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(work=tmp_path, stop=15)
    made, bench = run(work=tmp_path)
    whole, _ = run()

    def keys(one):
        return [(row["method"], row["batch_size"], row["task"], row["batch"]) for row in one["rows"]]

    assert keys(made) == keys(whole) and len(set(keys(made))) == len(keys(made))
    assert len(bench.calls) == 6 + len(whole["rows"]) - 9


def test_nothing_to_measure():
    made, bench = run(test={"svamp": []})
    assert made["questions"] == 0 and made["methods"]["cot"] == {} and bench.calls == []
