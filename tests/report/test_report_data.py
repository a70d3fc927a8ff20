from __future__ import annotations

import json
import re
import shutil
from collections import Counter

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from cirf.analysis.source import read_codes
from cirf.assets import published_hash
from cirf.errors import CirfError
from cirf.recipe.load import dump
from cirf.records import Trace
from cirf.report.data.codes import SEGMENTS, code_accuracy, count_transitions, shorten
from cirf.report.data.collect import collect
from cirf.report.data.measures import as_trained, read_settings
from cirf.report.page import render
from cirf.statistics import holm, mean_interval, wilson
from cirf.store.files import to_json, write_atomic, write_rows
from cirf.store.jsonl import read_rows

ASKED = {"accuracy", "n", "interval", "tokens", "latency_mean_s", "latency_p50_s", "latency_p95_s", "truncated", "unparsed"}
ENVIRONMENT = {"cpu": "a CPU"}


def test_every_method_has_the_promised_numbers(data):
    assert list(data["methods"]) == list(synthetic.METHODS)
    for name, row in data["methods"].items():
        assert row.keys() >= ASKED
        for task in row["tasks"].values():
            assert task.keys() >= ASKED
        trained, _, _, seconds = synthetic.METHODS[name]
        assert row["trained"] is trained
        assert row["latency_mean_s"] == seconds and row["latency_p95_s"] == seconds * 1.4


def test_of_a_damaged_file_at_a_runs_root_it_alone_is_to_be_removed(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "environment.json").write_text('{"cirf": "0.1')
    with pytest.raises(CirfError, match=r"environment\.json: not valid JSON; remove the file$"):
        collect(run)


def test_numbers_are_those_of_the_rows(finished, data):
    rows = [row for task in ("coin_flip", "svamp") for row in read_rows(finished / "evaluation" / "cot" / f"{task}.jsonl")]
    summary = data["methods"]["cot"]
    right = sum(row["correct"] for row in rows)
    assert summary["accuracy"] == right / 80 and summary["n"] == 80
    assert summary["interval"] == list(wilson(right, 80))
    assert summary["truncated"] == sum(row["truncated"] for row in rows) / 80 > 0
    assert summary["tokens"] == pytest.approx(sum(row["tokens"] for row in rows) / 80)


def test_comparisons_pair_the_same_questions(finished, data):
    assert list(data["comparisons"]) == ["direct_sft", "cot", "sft_cot"]
    found = data["comparisons"]["direct_sft"]
    wins = losses = 0
    for task in ("coin_flip", "svamp"):
        ours, theirs = (read_rows(finished / "evaluation" / name / f"{task}.jsonl") for name in ("cirf_full", "direct_sft"))
        for one, other in zip(ours, theirs, strict=True):
            wins += one["correct"] and not other["correct"]
            losses += other["correct"] and not one["correct"]
    assert (found["wins"], found["losses"], found["n"]) == (wins, losses, 80)
    assert found["significant"] and found["difference"] == (wins - losses) / 80
    assert data["comparisons"]["cot"]["speedup"] == pytest.approx(2.4 / 0.31)


def test_p_values_are_corrected_for_the_comparisons_of_the_table(data):
    pairs = data["comparisons"].values()
    assert [pair["p_holm"] for pair in pairs] == holm([pair["p"] for pair in pairs])
    assert all(pair["significant"] == (pair["p_holm"] < 0.05) and pair["family"] == 3 for pair in pairs)


def test_a_method_that_answered_other_questions_is_marked_and_not_compared(run):
    path = run / "evaluation" / "cot" / "svamp.jsonl"
    rows = read_rows(path)
    write_rows(path, rows[1:])
    found = collect(run, environment=ENVIRONMENT)
    assert set(found["comparisons"]) == {"direct_sft", "sft_cot"} and found["comparisons"]["sft_cot"]["family"] == 2
    assert {name for name, row in found["methods"].items() if not row["same_questions"]} == {"cot"}
    html = render(found)
    assert "cot, untrained, other questions" in html and "they answered other questions than CIRF" in html
    write_rows(path, [*rows, rows[0] | {"id": "one more"}])
    assert "cot" not in collect(run, environment=ENVIRONMENT)["comparisons"]


def test_runs_of_other_questions_and_tasks_without_rows_are_refused(run):
    path = run / "evaluation" / "cot" / "svamp.jsonl"
    rows = read_rows(path)
    for more in ([row | {"run": 1} for row in rows[1:]], rows[:1]):
        write_rows(path, [*rows, *more])
        with pytest.raises(CirfError, match=r"evaluation/cot/svamp\.jsonl: run . answers other questions"):
            collect(run, environment=ENVIRONMENT)
    path.write_text("")
    with pytest.raises(CirfError, match=r"evaluation/cot/svamp\.jsonl: no rows in it"):
        collect(run, environment=ENVIRONMENT)


def test_several_runs_have_a_standard_deviation_next_to_the_interval(run):
    for name in ("cirf_full", "direct_sft", "cot", "sft_cot"):
        for task in ("coin_flip", "svamp"):
            path = run / "evaluation" / name / f"{task}.jsonl"
            rows = read_rows(path)
            worse = [row | {"run": 1, "correct": row["correct"] and place >= 6} for place, row in enumerate(rows)]
            write_rows(path, rows + worse + [row | {"run": 2} for row in rows])
    times = run / "latency" / "timings.json"
    summary = json.loads(times.read_text())
    for method in summary["methods"].values():
        for one in (method["overall"], *method["tasks"].values()):
            one["runs_s"] = [one["mean_s"], one["mean_s"], one["mean_s"] + 0.3]
    times.write_text(json.dumps(summary))
    data = collect(run, environment=ENVIRONMENT)
    row = data["methods"]["cirf_full"]
    first, second, third = row["tasks"]["svamp"]["runs"]
    assert first == third > second
    assert row["tasks"]["svamp"]["accuracy_sd"] == pytest.approx((first - second) * 2**0.5 / 3)
    assert row["mean_of_tasks_sd"] > 0
    assert row["latency_sd_s"] == row["tasks"]["svamp"]["latency_sd_s"] == pytest.approx(0.1 * 2**0.5)
    html = render(data)
    assert f"± {100 * row['accuracy_sd']:.2f}" in html and "± 0.14" in html
    assert "±: the standard deviation over them" in html


def test_means_have_intervals_that_hold_them(finished, data):
    for name, row in data["methods"].items():
        assert row["tokens_interval"][0] < row["tokens"] < row["tokens_interval"][1]
        low, high = row["mean_of_tasks_interval"]
        assert low < row["mean_of_tasks"] < high and high - low < 0.3
        for task, summary in row["tasks"].items():
            rows = read_rows(finished / "evaluation" / name / f"{task}.jsonl")
            assert summary["tokens_interval"] == list(mean_interval([[one["tokens"] for one in rows]]))


def test_times_of_a_run_whose_methods_were_timed_apart_are_not_read(run):
    shutil.rmtree(run / "latency")
    write_atomic(run / "latency" / "cot" / "timings.json", "{")
    found = collect(run, environment=ENVIRONMENT)
    assert found["latency"] == {} and found["methods"]["cot"]["latency_mean_s"] is None
    render(found)


def test_a_method_that_was_not_timed_has_no_speedup(run):
    path = run / "latency" / "timings.json"
    timings = json.loads(path.read_text())
    del timings["methods"]["cot"]
    path.write_text(json.dumps(timings))
    found = collect(run, environment=ENVIRONMENT)
    assert found["comparisons"]["cot"]["speedup"] is None and found["comparisons"]["sft_cot"]["speedup"] is not None
    assert found["comparisons"]["cot"]["token_ratio"] is not None
    render(found)


def test_codes_count_training_segments_and_answers(finished, data):
    book = data["codebook"]
    training = {row["id"] for row in read_rows(finished / "problems" / "train.jsonl")}
    counts = Counter(
        c for row in read_rows(finished / "codebook-24" / "codes.jsonl") if row["problem"] in training for c in row["codes"]
    )
    assert {row["code"]: row["count"] for row in book["codes"] if row["count"]} == dict(counts)
    assert [row["count"] for row in book["codes"]] == sorted((row["count"] for row in book["codes"]), reverse=True)
    assert book["size"] == 24 and book["used"] == len(counts) and len(book["codes"]) == 24
    outputs = "".join(
        row["output"] for t in ("svamp", "coin_flip") for row in read_rows(finished / "evaluation" / "cirf_full" / f"{t}.jsonl")
    )
    assert {row["code"]: row["written"] for row in book["codes"]} == {
        code: outputs.count(f"<cirf_{code:03d}>") for code in range(24)
    }
    assert sum(row["share"] for row in book["codes"]) == pytest.approx(1)
    labels = {row["code"]: row["label"] for row in book["codes"]}
    assert (
        labels[3].startswith("multiplies") and labels[7].startswith("adds") and "not flip" in labels[15] and labels[1] == "unused"
    )
    for row in book["codes"]:
        assert len(row["examples"]) == len(set(row["examples"])) <= 4


def test_data_shows_what_was_dropped_and_why(data):
    summary = data["data"]
    assert summary["train"] == {"coin_flip": 54, "svamp": 54} and summary["test"] == {"coin_flip": 40, "svamp": 40}
    lost = {
        "problems": {"question is also in the test": 2},
        "rationales": {"another answer": 3},
        "segments": {"no step found": 1},
    }
    assert summary["dropped"] == lost
    assert summary["segmented"] == 120 and summary["cut"] == 248
    assert summary["segmentable"] == pytest.approx(248 / 250) and summary["paper_segmentable"] == pytest.approx(0.992)
    assert summary["reports"]["problems"]["leaks"] == {"svamp": 2}


def test_an_example_is_the_first_right_output(finished, data):
    rows = [
        row for task in data["methods"]["cot"]["tasks"] for row in read_rows(finished / "evaluation" / "cot" / f"{task}.jsonl")
    ]
    assert data["examples"]["cot"] == next(row["output"] for row in rows if row["correct"])
    assert data["examples"].keys() <= data["methods"].keys()


def test_training_is_read_with_curves_and_timings(data):
    assert list(data["training"]) == ["cirf_full", "direct_sft", "sft_cot"]
    summary = data["training"]["cirf_full"]
    assert len(summary["train"]) == 120 and [update for update, _ in summary["validation"]] == [60, 120]
    assert summary["numbers"]["rows"] == 108 and summary["timings"]["tokens_per_second"] == 421.3
    assert summary["functional_rows"][0]["cosine"] == 0.42


def test_the_same_folder_gives_the_same_bytes(finished, data):
    assert to_json(collect(finished, environment=data["environment"])) == to_json(data)
    assert json.loads(to_json(data)) == json.loads(json.dumps(data))


@pytest.mark.parametrize("gone", ["latency", "models", "codebook-24", "problems", "segments", "rationales", "results", "traces"])
def test_missing_parts_are_fine(run, gone):
    shutil.rmtree(run / gone)
    if gone == "segments":
        shutil.rmtree(run / "codebook-24")
    data = collect(run, environment=ENVIRONMENT)
    assert set(data["methods"]) == set(synthetic.METHODS)
    if gone == "latency":
        assert all(row["latency_mean_s"] is None for row in data["methods"].values())
        assert all(pair["speedup"] is None for pair in data["comparisons"].values())


def test_an_empty_folder_has_an_empty_report(tmp_path):
    data = collect(tmp_path, environment=ENVIRONMENT)
    assert data["methods"] == {} and data["codebook"] is None and data["reference"] is None and data["comparisons"] == {}


def test_without_cirf_the_first_method_is_the_reference(run):
    shutil.rmtree(run / "evaluation" / "cirf_full")
    data = collect(run, environment=ENVIRONMENT)
    assert data["reference"] == "direct_sft" and set(data["comparisons"]) == {"cot", "sft_cot"}


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("latency/timings.json", "{", r"timings\.json: not valid JSON"),
        ("latency/timings.json", '{"methods": 3}', r"latency/timings\.json: holds no times of methods"),
        ("models/cirf_full/history.json", "[]", r"history\.json: expected a JSON object"),
        ("models/cirf_full/history.json", '{"losses": [{"step": 1}]}', r"history\.json: not a training's history"),
        ("codebook-24/codes.jsonl", '{"problem": "svamp-train-1", "sample": 0, "codes": [1]}\n', "do not match its segments"),
        ("evaluation/cot/svamp.jsonl", "nonsense\n", r"svamp\.jsonl, line 1: not valid JSON"),
    ],
)
def test_damage_is_named(run, path, content, message):
    (run / path).write_text(content)
    with pytest.raises(CirfError, match=message):
        collect(run, environment=ENVIRONMENT)


# The functional tokens of a run: transitions, and whose answers are right

CODES = st.lists(st.lists(st.integers(0, 6), max_size=8), max_size=12)


def test_the_worked_example():
    summary = count_transitions([[3, 7], [3, 3, 7]])
    assert summary == {"traces": 2, "pairs": [[3, 7, 2], [3, 3, 1]], "first": [[3, 2]], "last": [[7, 2]]}
    assert count_transitions([]) == {"traces": 0, "pairs": [], "first": [], "last": []}


@given(CODES)
def test_transitions_sum_to_steps_minus_traces_and_by_code_to_its_steps(traces):
    summary = count_transitions(traces)
    held = [codes for codes in traces if codes]
    steps = Counter(code for codes in held for code in codes)
    assert summary["traces"] == len(held)
    assert sum(count for *_, count in summary["pairs"]) == steps.total() - len(held)
    for place, ends in ((0, summary["last"]), (1, summary["first"])):
        found = Counter(dict(map(tuple, ends)))
        for pair in summary["pairs"]:
            found[pair[place]] += pair[2]
        assert found == steps


def test_transitions_of_a_run_are_those_of_its_training_traces_as_text(finished, data):
    training = {row["id"] for row in read_rows(finished / "problems" / "train.jsonl")}
    rows = [row for row in read_rows(finished / "traces" / "traces.jsonl") if row["problem"] in training]
    text = "\n".join("".join(f"<{code}>" for code in row["codes"]) for row in rows)
    summary, book = data["codebook"]["transitions"], data["codebook"]
    for before, after, count in summary["pairs"]:
        assert len(re.findall(rf"<{before}>(?=<{after}>)", text)) == count
    assert sum(count for *_, count in summary["pairs"]) == len(re.findall(r"><", text)) == book["segments"] - len(rows)
    assert summary["traces"] == len(rows)
    counts = [count for *_, count in summary["pairs"]]
    assert counts == sorted(counts, reverse=True)


def test_answers_with_a_code_are_counted_once_a_question(finished, data):
    rows = [row for t in ("svamp", "coin_flip") for row in read_rows(finished / "evaluation" / "cirf_full" / f"{t}.jsonl")]
    for summary in data["codebook"]["codes"]:
        marks = [row["correct"] for row in rows if f"<cirf_{summary['code']:03d}>" in row["output"]]
        if not marks:
            assert summary["answers"] is None
            continue
        assert summary["answers"]["questions"] == summary["answers"]["answers"] == len(marks)
        assert summary["answers"]["right"] == pytest.approx(sum(marks) / len(marks))
        assert summary["answers"]["interval"][0] <= summary["answers"]["right"] <= summary["answers"]["interval"][1]


def test_of_several_runs_a_question_weighs_as_one():
    row = {"id": "a", "output": "<cirf><cirf_002>3<cirf_002>4</cirf>4", "correct": True}
    rows = [row, row | {"correct": False}, row | {"id": "b"}, row | {"id": "c", "output": "4"}]
    summary = code_accuracy({"svamp": rows})
    assert list(summary) == [2]
    assert (summary[2]["questions"], summary[2]["answers"], summary[2]["right"]) == (2, 3, 0.75)


def test_steps_of_a_code_are_different_ones_of_their_tasks(data):
    for row in data["codebook"]["codes"]:
        assert len(row["segments"]) == min(row["distinct"], SEGMENTS) == len({tuple(one) for one in row["segments"]})
        assert {task for task, _ in row["segments"]} <= row["tasks"].keys()
        assert row["distinct"] <= row["count"] == sum(row["tasks"].values())
    assert any(row["distinct"] > SEGMENTS for row in data["codebook"]["codes"])
    assert shorten("abc", 3) == "abc" and shorten("ab cd", 3) == "ab…"


# A report of a run whose recipe, machine or labels have changed since its models were trained


def section(recipe, **changes):
    """What `cirf.run` keeps of a recipe in a model's ``stage.json``."""
    finetune = recipe.finetune.model_dump(mode="json", exclude={"overrides", "save_steps", "report_to"})
    backbone = recipe.backbone.model_dump(mode="json", include={"dtype", "attn_implementation", "empty_system"})
    found = {"finetune": finetune, "override": None, "seed": recipe.seed}
    return found | {"backbone": backbone | {"content": published_hash(recipe.backbone.model)}} | changes


def put(folder, name, value):
    (folder / name).write_text(json.dumps(value))


def test_settings_are_read_from_the_models_folder(tmp_path):
    assert read_settings(tmp_path) is None
    recipe = synthetic.recipe()
    for content, known in (
        (published_hash(recipe.backbone.model), {"model": recipe.backbone.model}),
        ("Qwen/Qwen3-8B", {"model": "Qwen/Qwen3-8B", "revision": None}),
        ("Qwen/Qwen3-8B@main", {"model": "Qwen/Qwen3-8B", "revision": "main"}),
    ):
        put(tmp_path, "stage.json", {"section": section(recipe, backbone={"dtype": "float32", "content": content})})
        assert read_settings(tmp_path)["backbone"] == known | {"dtype": "float32"}
    put(tmp_path, "stage.json", {"section": section(recipe, backbone={"content": "0" * 64})})
    assert read_settings(tmp_path)["backbone"] == {}, "a folder is known by its hash alone"
    put(tmp_path, "functions.json", {"backbone": "/a/folder"})
    assert read_settings(tmp_path)["backbone"] == {"model": "/a/folder"}
    put(tmp_path, "stage.json", {"key": "of an older version"})
    assert read_settings(tmp_path) is None


def test_an_unchanged_recipe_is_the_one_trained_by(run):
    for name in ("cirf_full", "sft_cot"):
        put(run / "models" / name, "stage.json", {"section": section(synthetic.recipe())})
    data = collect(run, environment=ENVIRONMENT)
    assert data["changed"] == []
    assert data["training"]["sft_cot"]["settings"]["finetune"]["learning_rate"] == 1e-3
    assert data["training"]["direct_sft"]["settings"] is None
    assert as_trained(data["recipe"], data["training"]["sft_cot"]["settings"], "sft_cot") == data["recipe"]
    assert "has changed since" not in render(data)


def test_a_model_that_opens_its_traces_is_distinguished_from_one_whose_prompt_does(run):
    vocabulary = synthetic.recipe().vocabulary.model_dump(mode="json")
    written = {name: value for name, value in vocabulary.items() if name != "opening"}  # as archives of before there was the key
    for kept, opening in ((written, "written"), (vocabulary, "prompt")):
        put(run / "models" / "cirf_full", "stage.json", {"section": section(synthetic.recipe(), vocabulary=kept)})
        data = collect(run, environment=ENVIRONMENT)
        found = as_trained(data["recipe"], data["training"]["cirf_full"]["settings"], "cirf_full")
        assert found["vocabulary"] == vocabulary | {"opening": opening}


def test_a_recipe_changed_since_is_reported_and_not_mixed_in(run):
    recipe = synthetic.recipe()
    for name in ("cirf_full", "direct_sft", "sft_cot"):
        put(run / "models" / name, "stage.json", {"section": section(recipe)})
    faster = recipe.finetune.model_copy(update={"learning_rate": 5e-5})
    other = recipe.backbone.model_copy(update={"model": "Qwen/Qwen3-8B"})
    (run / "recipe.yaml").write_text(dump(recipe.model_copy(update={"finetune": faster, "seed": 77, "backbone": other})))
    data = collect(run, environment=ENVIRONMENT)
    assert data["recipe"]["seed"] == 77 and data["changed"] == ["cirf_full", "direct_sft", "sft_cot"]
    assert (data["seed"], data["backbone"]) == (recipe.seed, recipe.backbone.model)
    trained = as_trained(data["recipe"], data["training"]["cirf_full"]["settings"], "cirf_full")
    assert trained["finetune"]["learning_rate"] == 1e-3 and trained["seed"] == recipe.seed
    html = render(data)
    assert "since CIRF, Direct, fine-tuned and CoT, fine-tuned were trained" in html
    assert f"Backbone {recipe.backbone.model} · seed {recipe.seed}<" in html.replace(" · coin_flip, svamp", "")


def test_the_environment_is_that_of_the_run(run):
    here = collect(run)["environment"]
    assert here["python"] and "cache" not in here
    put(run, "environment.json", {"cpu": "another CPU", "cache": "/home/me", "bundled models": {}, "packages": {"torch": "1"}})
    assert collect(run)["environment"] == {"cpu": "another CPU", "packages": {"torch": "1"}}


def test_labels_are_those_that_the_model_carries(run):
    plain = {row["code"]: row["label"] for row in collect(run, environment=ENVIRONMENT)["codebook"]["codes"]}
    training = {row["id"] for row in read_rows(run / "problems" / "train.jsonl")}
    used = {c for row in read_rows(run / "codebook-24" / "codes.jsonl") if row["problem"] in training for c in row["codes"]}
    codes = {str(code): {"label": f"does {code}", "count": 1, "examples": ["x"]} for code in used}
    put(run / "models" / "cirf_full", "functions.json", {"size": 24, "delimiters": "cirf", "codes": codes})
    labels = {row["code"]: row["label"] for row in collect(run, environment=ENVIRONMENT)["codebook"]["codes"]}
    assert labels == {code: f"does {code}" if code in used else "unused" for code in range(24)}
    codes.popitem()
    put(run / "models" / "cirf_full", "functions.json", {"size": 24, "delimiters": "cirf", "codes": codes})
    again = {row["code"]: row["label"] for row in collect(run, environment=ENVIRONMENT)["codebook"]["codes"]}
    assert again == plain, "labels of other codes are not taken"


def test_the_codebook_is_the_models_and_not_the_one_a_changed_recipe_names(run):
    put(run / "models" / "cirf_full", "functions.json", {"size": 24, "delimiters": "cirf", "codes": {}})
    (run / "codebook-8").mkdir()
    put(run / "codebook-8", "codebook.json", {"size": 8, "report": {}})
    (run / "codebook-8" / "codes.jsonl").write_text("")
    recipe = synthetic.recipe()
    (run / "recipe.yaml").write_text(dump(recipe.model_copy(update={"codebook": recipe.codebook.model_copy(update={"size": 8})})))
    assert collect(run, environment=ENVIRONMENT)["codebook"]["size"] == 24


RESULTS = st.text(alphabet="0123456789+-= abc", max_size=6)


@given(st.lists(st.tuples(st.integers(0, 1200), RESULTS), max_size=5), RESULTS, st.sampled_from(["cirf", "think"]))
def test_traces_are_read_as_the_models_side_reads_them(steps, answer, delimiters):
    vocabulary = pytest.importorskip("cirf.lm.vocabulary")
    names = vocabulary.token_names(1201, delimiters)
    trace = Trace("p", 0, tuple(code for code, _ in steps), tuple(result for _, result in steps), answer)
    output = vocabulary.write_trace(trace, names)
    theirs = vocabulary.parse_trace(vocabulary.read_trace(output, names)[0])
    assert read_codes(output) == [(code, result.strip()) for code, result in theirs]
