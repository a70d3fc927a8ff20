import json
import shutil
from collections import Counter

import pytest
import synthetic

from cirf.errors import CirfError
from cirf.evaluation.bootstrap import mean_interval
from cirf.evaluation.statistics import holm, wilson
from cirf.files import to_json, write_atomic, write_rows
from cirf.report.collect import collect
from cirf.report.page import render
from cirf.rows import read_rows

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
    told = data["methods"]["cot"]
    right = sum(row["correct"] for row in rows)
    assert told["accuracy"] == right / 80 and told["n"] == 80
    assert told["interval"] == list(wilson(right, 80))
    assert told["truncated"] == sum(row["truncated"] for row in rows) / 80 > 0
    assert told["tokens"] == pytest.approx(sum(row["tokens"] for row in rows) / 80)


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
    assert "cot, untrained, other questions" in html and "answered were other questions than those of CIRF" in html
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


def test_means_have_intervals_that_hold_them(finished, data):
    for name, row in data["methods"].items():
        assert row["tokens_interval"][0] < row["tokens"] < row["tokens_interval"][1]
        low, high = row["mean_of_tasks_interval"]
        assert low < row["mean_of_tasks"] < high and high - low < 0.3
        for task, told in row["tasks"].items():
            rows = read_rows(finished / "evaluation" / name / f"{task}.jsonl")
            assert told["tokens_interval"] == list(mean_interval([[one["tokens"] for one in rows]]))


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


def test_data_tells_what_was_dropped_and_why(data):
    told = data["data"]
    assert told["train"] == {"coin_flip": 54, "svamp": 54} and told["test"] == {"coin_flip": 40, "svamp": 40}
    lost = {
        "problems": {"question is also in the test": 2},
        "rationales": {"another answer": 3},
        "segments": {"no step found": 1},
    }
    assert told["dropped"] == lost
    assert told["segmented"] == 120 and told["cut"] == 248
    assert told["segmentable"] == pytest.approx(248 / 250) and told["paper_segmentable"] == pytest.approx(0.992)
    assert told["reports"]["problems"]["leaks"] == {"svamp": 2}


def test_examples_are_the_first_of_each_task_in_turn(finished, data):
    firsts = {
        task: [row["id"] for row in read_rows(finished / "problems" / "test" / f"{task}.jsonl")]
        for task in ("coin_flip", "svamp")
    }
    assert [example["id"] for example in data["examples"]] == [
        firsts[task][i] for i in range(6) for task in ("coin_flip", "svamp")
    ]
    example = data["examples"][1]
    assert list(example["answers"]) == list(synthetic.METHODS)
    assert example["answers"]["cirf_full"]["codes"][0][0] in (3, 4) and "codes" not in example["answers"]["cot"]


def test_training_is_read_with_curves_and_timings(data):
    assert list(data["training"]) == ["cirf_full", "direct_sft", "sft_cot"]
    told = data["training"]["cirf_full"]
    assert len(told["train"]) == 120 and [update for update, _ in told["validation"]] == [60, 120]
    assert told["numbers"]["rows"] == 108 and told["timings"]["tokens_per_second"] == 421.3
    assert told["functional_rows"][0]["cosine"] == 0.42


def test_the_same_folder_gives_the_same_bytes(finished, data):
    assert to_json(collect(finished, environment=data["environment"])) == to_json(data)
    assert json.loads(to_json(data)) == json.loads(json.dumps(data))


@pytest.mark.parametrize(
    "gone", ["latency", "throughput", "models", "codebook-24", "problems", "segments", "rationales", "results", "traces"]
)
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
        ("throughput/timings.json", '{"methods": 3}', r"throughput/timings\.json: holds no times of methods"),
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
