"""``cirf evaluate`` and ``cirf show``: saved models as they are, on the user's tasks, browsed answer by answer."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import yaml

from cirf.lm.decoding import generate as decode
from cirf.store.jsonl import read_rows


def rows(run: Path, method: str, folder: str = "evaluation") -> list[dict[str, Any]]:
    return read_rows(run / folder / method / "sums.jsonl")


def evaluated(out: Path, *arguments: str | Path, timed: int = 0) -> dict[str, Any]:
    more = ("--set", f"evaluate.latency_questions={timed}", "--quiet", "--json")
    said = tinyrun.cirf("evaluate", *arguments, "--out", out, *more)
    assert said.code == 0, said.err
    report: dict[str, Any] = json.loads(said.out)
    return report


@pytest.fixture(scope="module")
def again(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run's models evaluated anew under ``full``, greedy and sampled."""
    out = tmp_path_factory.mktemp("again") / "out"
    evaluated(out, finished, "--protocol", "full", timed=1)
    return out


def test_a_run_evaluated_anew_gives_its_own_greedy_rows_and_trains_nothing(finished: Path, again: Path) -> None:
    for method in ("cirf_full", "direct_sft", "cot"):
        assert rows(again, method) == rows(finished, method)
    assert not (again / "models").exists() and not (again / "rationales").exists()


def test_sampled_runs_are_shown_with_the_greedy_one(again: Path) -> None:
    for method in ("cirf_full", "direct_sft", "cot"):
        drawn = rows(again, method, "sampled")
        assert {row["run"] for row in drawn} == {0, 1, 2}
        assert {row["id"] for row in drawn} == {row["id"] for row in rows(again, method)}
    report = json.loads((again / "report.json").read_text())
    assert len(report["methods"]["cot"]["sampled"]["runs"]) == 3
    assert "Sampled runs</h3>" in (again / "report.html").read_text()


def test_a_saved_model_is_asked_and_read_by_its_functional_tokens(finished: Path, again: Path, tmp_path: Path) -> None:
    model = shutil.copytree(finished / "models" / "cirf_full", tmp_path / "mine")
    for name in ("recipe.yaml", "stage.json"):
        (model / name).unlink()
    settings = yaml.safe_load((finished / "recipe.yaml").read_text())
    entry = json.dumps(settings["problems"]["tasks"])
    caps = ("--set", "evaluate.max_completion_tokens=12", "--set", "backbone.dtype=float32", "--set", "evaluate.batch_size=16")
    evaluated(tmp_path / "out", model, "--tasks", "gsm8k", "--protocol", "own", "--set", f"problems.tasks={entry}", *caps)
    assert rows(tmp_path / "out", "cirf_full") == rows(again, "cirf_full")


def test_a_model_of_a_run_is_asked_as_it_was_trained(finished: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(finished / "models" / "cirf_full", tmp_path / "cirf_full")
    for model, method in ((finished / "models" / "direct_sft", "direct_sft"), (moved, "cirf_full")):
        out = tmp_path / f"{method}-out"
        said = tinyrun.cirf("evaluate", model, "--protocol", "own", "--set", "evaluate.latency_questions=0", "--out", out)
        assert said.code == 0, said.err
        assert f"evaluated with the recipe in the model's folder: {method}; at most 24 tokens of a trace" in said.err
        assert rows(out, method) == rows(finished, method)
        assert "in the model&#39;s folder" in (out / "report.html").read_text()
    codes = json.loads((moved / "functions.json").read_text())["codes"]
    labels = json.loads((tmp_path / "cirf_full-out" / "report.json").read_text())["labels"]
    assert labels == {code: row["label"] for code, row in codes.items()} != {}
    sets = ("--method", "direct", "--set", "evaluate.latency_questions=0", "--set", "evaluate.batch_size=2", "--limit", "2")
    evaluated(tmp_path / "otherwise", finished / "models" / "direct_sft", *sets)
    assert [row["id"] for row in rows(tmp_path / "otherwise", "direct")] == [row["id"] for row in rows(finished, "cot")][:2]
    assert yaml.safe_load((tmp_path / "otherwise" / "recipe.yaml").read_text())["evaluate"]["max_new_tokens"] == 8


def test_test_questions_are_looked_for_in_what_the_model_was_trained_on(
    workshop: tinyrun.Workshop, finished: Path, tmp_path: Path
) -> None:
    trained = read_rows(finished / "problems" / "train.jsonl")
    held_out = read_rows(finished / "problems" / "validation.jsonl")
    lines = [
        {"question": trained[3]["question"].upper(), "answer": trained[3]["answer"]},
        {"question": f"Listen. {trained[4]['question']}", "answer": trained[4]["answer"]},
        {"question": held_out[0]["question"], "answer": held_out[0]["answer"]},
        *tinyrun.sums(2, seed=5, steps=2),
    ]
    entry = json.dumps([{"task": "jsonl", "name": "odd", "test_file": str(tinyrun.write_jsonl(tmp_path / "odd.jsonl", lines))}])
    keys = ("--set", f"problems.tasks={entry}", "--set", "evaluate.latency_questions=0", "--quiet")
    moved = shutil.copytree(finished / "models" / "direct_sft", tmp_path / "direct_sft")
    summary = {}
    for name, model, method in (("in", finished / "models" / "direct_sft", "direct_sft"), ("run", finished, "direct_sft"),
                                ("moved", moved, "direct_sft"), ("bare", workshop.backbone, "cot")):  # fmt: skip
        out = tmp_path / name
        more = (
            ("--set", "backbone.dtype=float32", "--set", "evaluate.max_new_tokens=4", "--tasks", "gsm8k")
            if name == "bare"
            else ()
        )
        said = tinyrun.cirf("evaluate", model, "--method", method, "--out", out, *keys, *more)
        assert said.code == 0, said.err
        overlap = json.loads((out / "problems" / "problems.json").read_text())["overlap"]
        (row,) = overlap["models"]
        assert overlap["tasks"] == {} and row["methods"] == [method]
        summary[name] = (row["known"], row["tasks"].get("odd", {}).get("exact"), row["tasks"].get("odd", {}).get("near"))
        page = (out / "report.html").read_text()
        if row["known"]:
            line = "of 5 test questions of odd, 2 were trained on"
            assert row["questions"] == 40 and row["runs"] == ["run"] and line in said.out and line in page
        else:
            assert f"{method}: the model's training data are unknown" in said.out and "are unknown" in page
    assert summary == {"in": (True, 2, 3), "run": (True, 2, 3), "moved": (False, None, None), "bare": (False, None, None)}


def test_commands_that_ask_otherwise_have_folders_of_their_own(
    workshop: tinyrun.Workshop, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = shutil.copytree(workshop.backbone, tmp_path / "other" / workshop.backbone.name)
    more = shutil.copy(workshop.train, tmp_path / "more.jsonl")
    few = (
        "--set",
        "evaluate.latency_questions=0",
        "--set",
        "evaluate.max_new_tokens=4",
        "--set",
        "backbone.dtype=float32",
        "--limit",
        "2",
    )

    def folders(*arguments: str | Path) -> set[Path]:
        before = {path: path.stat().st_ino for path in tmp_path.rglob("stage.json")}
        said = tinyrun.cirf("evaluate", *arguments, *few, "--quiet")
        assert said.code == 0, said.err
        assert all(path.stat().st_ino == inode for path, inode in before.items())  # nothing that was there is touched
        return {path.parents[1] for path in tmp_path.glob("runs/*/problems/stage.json")}

    one = folders(workshop.backbone, "--tasks", workshop.test)
    assert len(one) == 1 and next(iter(one)).name.startswith("evaluate-backbone-quick-limit-2-")
    assert folders(workshop.backbone, "--tasks", os.path.relpath(workshop.test)) == one  # the same file by another name
    two = folders(workshop.backbone, "--tasks", more)
    three = folders(other, "--tasks", workshop.test)
    assert len(two) == 2 and len(three) == 3
    said = tinyrun.cirf("evaluate", finished, "--out", finished)
    assert "a run that trained models is there" in said.error()


def test_any_model_is_asked_for_its_own_chain_of_thought(
    workshop: tinyrun.Workshop, again: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = json.dumps([{"task": "jsonl", "name": "sums", "train_file": str(workshop.train), "test_file": str(workshop.test)}])
    sets = ("--set", f"problems.tasks={entry}", "--set", "evaluate.max_new_tokens=8", "--set", "backbone.dtype=float32")
    monkeypatch.chdir(tmp_path)
    report = evaluated(tmp_path / "out", workshop.backbone, "--tasks", "gsm8k", "--limit", "3", "--protocol", "own", *sets)
    assert list(report["methods"]) == ["cot"] and report["methods"]["cot"]["n"] == 3
    assert [row["prompt"] for row in rows(tmp_path / "out", "cot")] == [row["prompt"] for row in rows(again, "cot")][:3]


def test_a_method_named_twice_is_asked_once(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    sets = ("--set", "evaluate.max_new_tokens=4", "--set", "backbone.dtype=float32", "--limit", "2")
    report = evaluated(tmp_path / "out", workshop.backbone, "--tasks", workshop.test, "--method", "cot", "--method", "cot", *sets)
    assert list(report["methods"]) == ["cot"]


def test_models_of_one_run_are_reported_in_one_sentence(finished: Path, tmp_path: Path) -> None:
    keys = ("--set", "evaluate.latency_questions=0", "--limit", "2", "--quiet")
    said = tinyrun.cirf("evaluate", finished, *keys, "--out", tmp_path / "out")
    lines = [line for line in said.out.splitlines() if "were trained on" in line or "training data are unknown" in line]
    assert [line.partition(":")[0] for line in lines] == ["cirf_full, direct_sft", "cot"]


def test_a_file_of_rows_is_a_task_to_test_on(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    sets = ("--set", "evaluate.max_new_tokens=8", "--set", "backbone.dtype=float32")
    report = evaluated(tmp_path / "out", workshop.backbone, "--tasks", str(workshop.test), "--protocol", "quick", *sets)
    assert report["methods"]["cot"]["n"] == 8 and report["protocol"]["partial"] == {"test": [8, 50]}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Protocol quick: the first 50 problems of a task, greedy" in page and "Partial: test, 8 of 50" in page


@pytest.mark.slow
def test_a_limit_makes_a_protocol_partial_and_is_in_the_saved_recipe(finished: Path, tmp_path: Path) -> None:
    one = ("--method", "direct_sft", "--set", "evaluate.sampled.runs=0")
    report = evaluated(tmp_path / "out", finished, "--protocol", "full", "--limit", "3", *one)
    assert report["methods"]["direct_sft"]["n"] == 3 and report["protocol"]["partial"] == {"sums": [3, 8]}
    assert "Partial: sums, 3 of 8" in (tmp_path / "out" / "report.html").read_text()
    before = tinyrun.artefacts(tmp_path / "out")
    stages = tinyrun.stages(tmp_path / "out")
    said = tinyrun.cirf("run", tmp_path / "out" / "recipe.yaml", "--out", tmp_path / "out")
    assert said.code == 0, said.err
    assert tinyrun.stages(tmp_path / "out") == stages and tinyrun.artefacts(tmp_path / "out") == before
    # a run's own limit is not that of its evaluation
    whole = evaluated(tmp_path / "whole", tmp_path / "out", "--protocol", "full", *one)
    assert whole["methods"]["direct_sft"]["n"] == 8 and whole["protocol"]["partial"] == {}


def test_a_run_with_a_limit_is_the_same_by_its_saved_recipe(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    made = workshop.recipe(tmp_path / "recipe.yaml", methods=["cot"], evaluate__protocol="quick", evaluate__latency_questions=0)
    out = tmp_path / "out"
    assert tinyrun.cirf("run", made, "--out", out, "--limit", "3").code == 0
    before = tinyrun.artefacts(out)
    assert len(rows(out, "cot")) == 3
    said = tinyrun.cirf("run", out / "recipe.yaml", "--out", out)
    assert said.code == 0 and tinyrun.artefacts(out) == before


def test_a_killed_evaluation_goes_on_by_item(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    generate = decode.generate

    def dying(model: Any, tokenizer: Any, prompts: Sequence[str], *more: Any, **named: Any) -> Any:
        decoded.append(len(prompts))
        if len(decoded) == 2:
            raise KeyboardInterrupt
        return generate(model, tokenizer, prompts, *more, **named)

    monkeypatch.setattr(decode, "generate", dying)
    arguments = ("evaluate", finished, "--method", "cot", "--protocol", "own", "--set", "evaluate.latency_questions=0")
    arguments += ("--set", "evaluate.batch_size=4")
    assert tinyrun.cirf(*arguments, "--out", tmp_path / "out").code != 0
    assert tinyrun.cirf(*arguments, "--out", tmp_path / "out").code == 0
    assert decoded == [4, 4, 4]  # the batch that was done is not decoded again
    assert rows(tmp_path / "out", "cot") == rows(finished, "cot")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--protocol", "thorough"), "no such protocol"),
        (("--method", "sft_cot"), "the run has no such method"),
        (("--tasks", "sums,gsm9k"), "the nearest is 'gsm8k'"),
    ],
)
def test_mistakes_are_said_in_a_line(finished: Path, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in tinyrun.cirf("evaluate", finished, *arguments, "--out", tmp_path / "out").error()


def test_a_model_of_no_run_must_be_given_its_tasks_and_its_method(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    assert "--tasks" in tinyrun.cirf("evaluate", workshop.backbone).error()
    plain = tinyrun.cirf("evaluate", workshop.backbone, "--tasks", "gsm8k", "--method", "cirf_full", "--out", tmp_path / "a")
    assert "functional tokens" in plain.error()


def test_what_another_recipe_left_in_the_folder_is_not_reported(finished: Path, again: Path, tmp_path: Path) -> None:
    out = shutil.copytree(again, tmp_path / "out")
    arguments = ("--method", "cot", "--method", "direct_sft", "--protocol", "quick", "--limit", "5")
    said = tinyrun.cirf("evaluate", finished, *arguments, "--set", "evaluate.latency_questions=0", "--out", out, "--quiet")
    assert said.code == 0, said.err
    assert "left out" in said.out and "evaluation/cirf_full, sampled/cirf_full" in said.out
    report = json.loads((out / "report.json").read_text())
    assert {name: (row["n"], row["sampled"], row["latency_mean_s"]) for name, row in report["methods"].items()} == {
        "cot": (5, None, None), "direct_sft": (5, None, None),
    }  # fmt: skip
    assert report["latency"] == {} and "latency" in report["left_out"] and "evaluation/cirf_full" in report["left_out"]
    assert "evaluation/cirf_full" in (out / "report.html").read_text()
    assert "not evaluated in this run (evaluated: cot, direct_sft)" in tinyrun.cirf("show", out, "--method", "cirf_full").error()

    recipe = (out / "recipe.yaml").read_text()
    (out / "recipe.yaml").write_text(recipe.replace("max_new_tokens: 8", "max_new_tokens: 9"))  # as a kill leaves it
    report = json.loads(tinyrun.cirf("report", out, "--json").out)
    assert list(report["methods"]) == ["direct_sft"] and "evaluation/cot" in report["left_out"]
    (out / "recipe.yaml").write_text(recipe.replace("batch_size: 16", "batch_size: 3"))
    before = (out / "report.html").read_bytes()
    assert "its evaluations are out of date: recipe, data, models or cirf have changed" in tinyrun.cirf("report", out).error()
    assert (out / "report.html").read_bytes() == before
    assert "none by the current recipe" in tinyrun.cirf("show", out).error()


def test_an_evaluation_whose_models_are_gone_shows_what_is_known(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    evaluated(run / "evaluations" / "mine", run, "--method", "direct_sft")
    run.rename(tmp_path / "elsewhere")
    out = tmp_path / "elsewhere" / "evaluations" / "mine"
    said = tinyrun.cirf("status", out, "--json")
    assert said.code == 0, said.err
    assert {row["state"] for row in json.loads(said.out)} == {"unknown"}
    said = tinyrun.cirf("status", out)
    assert "is unknown here" in said.out and "models/direct_sft" in said.out and "Traceback" not in said.err
    for command in ("report", "show"):
        assert tinyrun.cirf(command, out).code == 0


def test_answers_are_browsed(finished: Path) -> None:
    there = rows(finished, "cot")
    wrong = [row for row in there if not row["correct"]]
    said = tinyrun.cirf("show", finished, "--method", "cot", "--wrong", "--limit", "2")
    assert said.code == 0, said.err
    assert wrong[0]["prompt"].splitlines()[0] in said.out and f"gold answer: {wrong[0]['gold']}" in said.out
    assert said.out.rstrip().endswith(f"cot: {len(wrong)} of {len(there)} answers (2 shown: --limit)")
    one = json.loads(tinyrun.cirf("show", finished, "--method", "cirf_full", "--id", there[3]["id"], "--json").out)
    assert [row["id"] for row in one] == [there[3]["id"]] and one[0]["task"] == "sums"


def test_what_is_not_there_is_said(finished: Path) -> None:
    assert "not evaluated" in tinyrun.cirf("show", finished, "--method", "direct").error()
    assert "there is no such question (there are 8, such as sums/test/" in tinyrun.cirf("show", finished, "--id", "nope").error()
    assert "no such question" in tinyrun.cirf("show", finished, "--id", "nope", "--json").error()
    assert "not a task" in tinyrun.cirf("show", finished, "--task", "gsm8k").error()
    assert "no answer is both" in tinyrun.cirf("show", finished, "--wrong", "--right").error()


def test_a_test_cut_from_the_training_file_stays_the_one_that_was_cut(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(
        "from cirf.records import Problem\n"
        "from cirf.tasks.task import Task\n"
        "def row(row):\n"
        "    return Problem(id='', task='', question=row['question'], answer=row['answer'], rationale=row['rationale'])\n"
        f"FILES = {{'train': {str(workshop.train)!r}}}\n"
        "TASK = Task(name='m', title='m', summary='s', answer='number', rule=lambda *_: '', row=row, files=FILES)\n"
    )
    for name, entry in (("jsonl", {"task": "jsonl", "train_file": str(workshop.train)}), ("own", {"task": str(own)})):
        keys: dict[str, Any] = {"methods": ["direct"], "evaluate__max_completion_tokens": 8}
        keys["evaluate__latency_questions"] = 0
        recipe = workshop.recipe(tmp_path / f"{name}.yaml", **keys, problems__tasks=[entry | {"name": "cut"}])
        run, out = tmp_path / name, tmp_path / f"{name}-again"
        assert tinyrun.cirf("run", recipe, "--out", run).code == 0
        trained = {row["question"] for row in read_rows(run / "problems" / "train.jsonl")}
        report = evaluated(out, run, "--protocol", "quick", "--trust-remote-code")
        assert report["protocol"]["partial"] == {} and report["protocol"]["cut"] == {"cut": 8}
        assert "cut: 8 questions split from its training file" in (out / "report.html").read_text()
        tested = {row["question"] for row in read_rows(out / "problems" / "test" / "cut.jsonl")}
        assert len(tested) == 8 and not tested & trained
        options = ("--limit", "3", "--set", "evaluate.sampled.runs=0", "--trust-remote-code")
        few = evaluated(tmp_path / f"{name}-few", run, "--protocol", "full", *options)
        assert few["protocol"]["partial"] == {"cut": [3, 8]}
        kept = read_rows(tmp_path / f"{name}-few" / "problems" / "test" / "cut.jsonl")
        assert {row["question"] for row in kept} < tested
        wrong = tinyrun.cirf("evaluate", run, "--set", "seed=5", "--out", out, options[-1]).error()
        assert "was cut from its training file" in wrong
