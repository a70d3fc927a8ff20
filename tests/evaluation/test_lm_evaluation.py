"""The saved model in lm-evaluation-harness: the same prompts, the same generations, the same verdicts as ours."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import yaml

from cirf.export.formats import write_task
from cirf.methods import get as get_method
from cirf.recipe.schema import Evaluate, Problems, Recipe, TaskEntry
from cirf.records import Problem
from cirf.store.jsonl import read_rows
from cirf.tasks import get

RECIPE = Recipe(
    name="test",
    problems=Problems(tasks=(TaskEntry(task="svamp"),)),
    evaluate=Evaluate(max_trace_tokens=24, max_completion_tokens=12),
)
AS = (get_method("cirf_full", RECIPE), RECIPE.evaluate)
COINS = [Problem(f"c{i}", "coin_flip", f"{i} flips. Heads?", "no" if i % 2 else "yes") for i in range(4)]


def harness(model: Path, folder: Path, task: str, chat: bool) -> dict[str, Any]:
    """What the harness finds; its libraries' own warnings are not ours to fix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lm_eval.evaluator import simple_evaluate
        from lm_eval.tasks import TaskManager

        found = simple_evaluate(
            model="hf",
            model_args={"pretrained": str(model), "dtype": "float32"},
            tasks=[task],
            task_manager=TaskManager(include_path=str(folder), include_defaults=False),
            apply_chat_template=chat,
            batch_size=4,
            device="cpu",
            bootstrap_iters=0,
        )
    assert found is not None
    return dict(found)


def test_the_harness_reads_the_same_prompts_generations_and_answers(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    ours = read_rows(finished / "evaluation" / "cirf_full" / "sums.jsonl")
    problems = [Problem.from_dict(row) for row in read_rows(finished / "problems" / "test" / "sums.jsonl")]
    task = get("svamp")  # number answers, as the run's own task
    name = write_task(tmp_path, "sums", task, problems, *AS)  # the run's caps
    found = harness(finished / "models" / "cirf_full", tmp_path, name, chat=True)
    theirs = {sample["doc"]["id"]: sample for sample in found["samples"][name]}
    assert theirs.keys() == {row["id"] for row in ours}
    assert {sample["doc"]["prompt"] for sample in theirs.values()} == {row["prompt"] for row in ours}
    for row in ours:
        assert theirs[row["id"]]["resps"][0][0] == row["output"]
        assert bool(theirs[row["id"]]["exact_match"]) == row["correct"]
    accuracy = sum(row["correct"] for row in ours) / len(ours)
    assert found["results"][name]["exact_match,answer"] == pytest.approx(accuracy)


@pytest.mark.parametrize(
    ("output", "gold", "right"),
    [
        ("<cirf_001>9<cirf_002>12</cirf>12", "12", True),  # the prompt ends with <cirf>
        ("<cirf><cirf_001>9<cirf_002>12</cirf>12", "12", True),
        ("<think><cirf_001>9</think> 12", "12", True),
        ("9 and 3 make 12.\n#### 12", "12", True),
        ("<cirf_001>12</cirf>9", "12", False),
        ("<cirf_001>12", "12", True),
        ("<cirf><cirf_001>12</cirf>9", "12", False),
        ("<cirf><cirf_001>12", "12", True),
        ("</cirf>1,200.00", "1200", True),
        ("</cirf>Yes", "yes", True),
    ],
)
def test_the_answer_is_behind_the_trace_or_the_mark(output: str, gold: str, right: bool, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lm_eval.api.metrics import exact_match_fn  # type: ignore[attr-defined]
        from lm_eval.filters.extraction import RegexFilter
    summary = yaml.safe_load((tmp_path / f"{write_task(tmp_path, 'coins', get('coin_flip'), COINS, *AS)}.yaml").read_text())
    pattern = summary["filter_list"][0]["filter"][0]["regex_pattern"]
    (metric,) = summary["metric_list"]
    said = RegexFilter(pattern).apply([[output]], [{}])[0][0]
    settings = {key: metric[key] for key in ("ignore_case", "regexes_to_ignore")}
    assert bool(exact_match_fn(predictions=[said], references=[gold], **settings)["exact_match"]) == right


@pytest.mark.engine
def test_inspect_ai_reads_the_same_rows_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inspect_ai = pytest.importorskip("inspect_ai", reason="inspect_ai is not installed (pip install inspect-ai)")
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    name = write_task(tmp_path, "coins", get("coin_flip"), COINS, *AS)
    written = ["<cirf_001>yes<cirf_002>no</cirf>Yes", "<cirf_001>yes</cirf>yes", "</cirf>yes.", "<cirf_001>"]
    outputs = [ModelOutput.from_content("m", text) for text in written]
    for output in outputs:
        output.usage = ModelUsage()  # else it counts tokens by a vocabulary that it downloads
    model = get_model("mockllm/model", custom_outputs=outputs)
    monkeypatch.chdir(tmp_path)  # it finds task files by relative paths alone
    (log,) = inspect_ai.eval(f"{name}.py", model=model, max_connections=1, log_dir=str(tmp_path), display="none")
    assert log.status == "success" and log.eval.task == name
    summary = {sample.id: (sample.scores["exact_match"].answer, sample.scores["exact_match"].value) for sample in log.samples}
    assert summary == {"c0": ("Yes", "C"), "c1": ("yes", "I"), "c2": ("yes.", "C"), "c3": ("", "I")}
    assert [sample.input for sample in log.samples] == [row["prompt"] for row in read_rows(tmp_path / f"{name}.jsonl")]


def test_a_task_file_of_inspect_ai_is_python_under_any_name(tmp_path: Path) -> None:
    for name in ("coins", "my-coins.2"):
        there = write_task(tmp_path, name, get("coin_flip"), COINS, *AS)
        code = compile((tmp_path / f"{there}.py").read_text(), there, "exec")
        assert there.replace("-", "_").replace(".", "_") in code.co_names


def test_the_command_writes_what_the_harness_is_pointed_to(tmp_path: Path) -> None:
    data = tmp_path / "data" / "coin_flip"
    rows = [{"inputs": f"Q: A coin is heads up. {i} flips. Heads?", "targets": "yes"} for i in range(3)]
    for split in ("train", "test"):
        tinyrun.write_jsonl(data / f"{split}.jsonl", rows if split == "test" else [])
    said = tinyrun.cirf("lm-eval", tmp_path / "out", "--tasks", "coin_flip", "--data", data.parent, "--limit", "2", "--json")
    assert said.code == 0, said.err
    summary = json.loads(said.out)
    assert summary["tasks"] == {"cirf_coin_flip": 2} and "--apply_chat_template" in summary["command"]
    assert (tmp_path / "out" / "cirf_coin_flip.yaml").is_file()
    assert summary["inspect"].startswith(f"inspect eval {tmp_path / 'out' / 'cirf_coin_flip.py'} --model hf/local")
    assert "--tasks" in tinyrun.cirf("lm-eval", tmp_path / "out", "--tasks", "").error()


def test_files_of_ones_own_are_written_too(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    own = Path(__file__).parents[2] / "docs" / "how-to" / "own_task.py"
    task = tmp_path / "clock.py"
    task.write_text(own.read_text())
    rows = [{"ask": f"It is 9:{m}. What time is it 5 minutes later?", "time": f"9:{m + 5}", "how": "-"} for m in range(10, 40)]
    tinyrun.write_jsonl(tmp_path / "clock.jsonl", rows)
    said = tinyrun.cirf("lm-eval", tmp_path / "out", "--tasks", f"{workshop.test},{task}", "--limit", "4", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["tasks"] == {"cirf_test": 4, "cirf_clock": 4}
    assert "clock: the harness compares texts" in said.err and "test:" not in said.err
    assert len(read_rows(tmp_path / "out" / "cirf_test.jsonl")) == 4
    missing = tinyrun.cirf("lm-eval", tmp_path / "out", "--tasks", "gone.jsonl").error()
    assert "gone.jsonl" in missing
    twice = tinyrun.write_jsonl(tmp_path / "again" / "test.jsonl", [{"question": "1 + 1?", "answer": 2}])
    assert "test occurs twice" in tinyrun.cirf("lm-eval", tmp_path / "out", "--tasks", f"{workshop.test},{twice}").error()


def test_a_method_asks_and_caps_as_in_an_evaluation(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    def summary(*arguments: str) -> tuple[str, int, str]:
        said = tinyrun.cirf("lm-eval", tmp_path / "out", "--tasks", workshop.test, *arguments, "--json")
        assert said.code == 0, said.err
        (name,) = json.loads(said.out)["tasks"]
        made = yaml.safe_load((tmp_path / "out" / f"{name}.yaml").read_text())
        return name, made["generation_kwargs"]["max_gen_toks"], read_rows(tmp_path / "out" / f"{name}.jsonl")[0]["prompt"]

    assert summary()[:2] == ("cirf_test", 128 + 32)
    name, cap, prompt = summary("--method", "cot")
    assert (name, cap) == ("cirf_test_cot", 512) and "step by step" in prompt
    assert summary("--method", "cot", "--set", "evaluate.max_new_tokens=99")[1] == 99
    assert summary("--method", "direct_sft")[:2] == ("cirf_test_direct_sft", 32)
    assert "no method 'cott'" in tinyrun.cirf("lm-eval", tmp_path / "out", "--tasks", workshop.test, "--method", "cott").error()
