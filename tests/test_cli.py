"""The command line: every mistake is one clear line and exit code 2, every ``--json`` one document, finished work stays. How
libraries say that a disk is full, and that another process is gone.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nursery
import pytest
import tinyrun
from safetensors import SafetensorError

from cirf import cli, methods, tasks
from cirf.assets import resolve
from cirf.commands.run import serve_command
from cirf.errors import CirfError, is_disk_full, is_lost_process
from cirf.progress import Progress
from cirf.recipe.load import shipped
from cirf.store.run_folder import RunFolder


def lines(rows: list[Any]) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


# Rows


def third(**fields: Any) -> Callable[[list[Any]], None]:
    """Changes the third row; a field of ``...`` is taken out."""

    def change(rows: list[Any]) -> None:
        rows[2] = {key: value for key, value in (rows[2] | fields).items() if value is not ...}

    return change


def same_id(rows: list[Any]) -> None:
    rows[1]["id"] = rows[2]["id"] = "one"


def broken(rows: list[Any]) -> None:
    rows[2] = json.dumps(rows[2])[:-9]


def huge(rows: list[Any]) -> None:
    rows[2] = json.dumps(rows[2] | {"answer": 0}).replace(": 0", ": " + "7" * 5000)


ROWS: dict[str, tuple[Callable[[list[Any]], None], str]] = {
    "malformed": (broken, "not valid JSON"),
    "no question": (third(question=...), "question"),
    "no answer": (third(answer=...), "answer"),
    "empty question": (third(question="  "), "question is empty"),
    "empty rationale": (third(rationale=""), "rationale is empty"),
    "a rationale that is no text": (third(rationale=[1, 2]), "rationale is a list"),
    "duplicate id": (same_id, "id 'one' occurs already in line 2"),
    "a number of 5,000 digits": (huge, "a number of thousands of digits"),
    "an answer that is no number": (third(answer=None), "answer is null"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_bad_row_is_named_with_file_line_and_field(workshop: tinyrun.Workshop, tmp_path: Path, name: str) -> None:
    change, says = ROWS[name]
    rows: list[Any] = list(tinyrun.sums(12))
    change(rows)
    train = tmp_path / "mine.jsonl"
    train.write_text(lines(rows))
    recipe = workshop.recipe(tmp_path / "recipe.yaml", train=train)
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--set", "problems.max_unusable_share=0")
    assert f"{train}, line 3: " in said.error() and says in said.error()
    assert said.out == ""
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run")
    assert f"{train}: 1 of 12 rows (8.33 %) cannot be used" in said.error() and "(1: line 3)" in said.error()
    assert says in said.error() and said.error().endswith("; fix it, or raise problems.max_unusable_share") and said.out == ""
    assert not tinyrun.stages(tmp_path / "run")


def test_files_that_hold_no_rows_are_named(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    for train, says in ((empty, "holds no rows"), (tmp_path, "Is a directory"), (tmp_path / "none.jsonl", "no such file")):
        said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", train=train), "--out", tmp_path / "run")
        assert f"{train}: " in said.error() and says in said.error()
        said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", test=train), "--out", tmp_path / "run")
        assert f"{train}: " in said.error() and says in said.error()


def test_windows_files_and_extra_fields_are_fine(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    rows = [row | {"id": place, "note": {"deep": [1]}} for place, row in enumerate(tinyrun.sums(12))]
    train = tmp_path / "train.jsonl"
    train.write_bytes(("\ufeff" + "\r\n\r\n".join(map(json.dumps, rows))).encode())
    said = tinyrun.cirf("check", workshop.recipe(tmp_path / "recipe.yaml", train=train), "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["total"]["usable"] == 12


# Recipes, models, names


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"codebook__sise": 3}, "codebook.sise: no such key"),
    "wrong type": ({"finetune__epochs": "many"}, "finetune.epochs: expected"),
    "backbone, absolute": ({"backbone__model": "/no/such/model"}, "/no/such/model: no such folder"),
    "backbone, relative": ({"backbone__model": "./no/model"}, "./no/model: no such folder"),
    "backbone, no name": ({"backbone__model": "no such model!"}, "no such model!: neither a folder"),
    "backbone, bundled": ({"backbone__model": "bundled:smollm3"}, "smollm3"),
    "backbone, a folder without one": ({"backbone__model": "/usr"}, "/usr: the folder holds no config.json"),
    "embedder": ({"embeddings__model": "/no/such/model"}, "/no/such/model: no such folder"),
    "method": ({"methods": ["cirf_ful"]}, "no method 'cirf_ful'; the nearest is 'cirf_full'"),
    "task": ({"problems__tasks": [{"task": "gsm8"}]}, "no task 'gsm8'; the nearest is 'gsm8k'"),
    "task option": (
        {"problems__tasks": [{"task": "chain_sum", "options": {"colour": 1}, "train": 4, "test": 2}]},
        "colour",
    ),
    "results file": ({"results__by": "file", "results__file": "none.jsonl"}, "results.file: no file none.jsonl"),
    "rationale file": ({"rationales__files": ["none.jsonl"]}, "rationales.files: no file none.jsonl"),
    "reused codebook": ({"codebook__reuse": "/no/book"}, "/no/book"),
    "width": ({"codebook__dimension": 33}, "codebook.dimension: 33, but the backbone's embeddings"),
    "architecture": ({"backbone__architecture": {"layers": 9}}, "backbone.architecture.layers: the recipe says 9"),
    "device": ({"backbone__device": "abacus"}, "backbone.device: 'abacus' is not a device"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_recipe_is_one_line(workshop: tinyrun.Workshop, tmp_path: Path, name: str) -> None:
    keys, says = MISTAKES[name]
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", **keys), "--out", tmp_path / "run")
    assert says in said.error() and len(said.error()) < 500
    assert said.out == ""


def test_a_wrong_model_is_reported_before_any_work(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    for keys in (
        {"backbone__model": "/no/such/model"},
        {"embeddings__model": "./none"},
        {"backbone__architecture": {"hidden_size": 999}},
        {"codebook__dimension": 77},
        {"vocabulary__init_from_token": "apples and pears"},
    ):
        recipe = workshop.recipe(tmp_path / "recipe.yaml", **keys)
        said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run").error()
        tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--dry-run").error()
        assert not (tmp_path / "run").exists()
    assert "cirf: vocabulary.init_from_token: 'apples and pears' is " in said and "tokens of this model" in said


def test_a_model_that_another_method_reads_is_not_asked_for(
    workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``--until``, on a machine that has what this method needs and no more."""

    def there(model: str, progress: Progress) -> Path | str:
        if model.startswith("bundled:"):
            raise CirfError(f"{model}: cannot be fetched")
        return resolve(model, progress)

    monkeypatch.setattr("cirf.stages.model_checks.resolve", there)
    settings = {"soft_cot": {"method": "soft_cot", "settings": {"guide": "bundled:smollm2-135m-instruct"}}}
    recipe = workshop.recipe(tmp_path / "recipe.yaml", methods=["direct_sft", "soft_cot"], variants=settings)
    for until in ((), ("--until", "models/soft_cot"), ("--until", "evaluation")):
        for more in ((), ("--dry-run",)):
            said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", *until, *more).error()
            assert "bundled:smollm2-135m-instruct: cannot be fetched" in said
    assert not (tmp_path / "run").exists()
    assert tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "models/direct_sft", "--dry-run").code == 0
    assert tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "models/direct_sft").code == 0
    assert (tmp_path / "run" / "models" / "direct_sft" / "config.json").exists()


def test_places_that_are_not_what_is_asked_for(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    recipe = workshop.recipe(tmp_path / "recipe.yaml")
    assert "no such folder" in tinyrun.cirf("run", recipe, "--data", tmp_path / "none", "--out", tmp_path / "run").error()
    published = workshop.recipe(tmp_path / "gsm8k.yaml", problems__tasks=[{"task": "gsm8k"}])
    assert (
        "gsm8k/train.jsonl: no such file" in tinyrun.cirf("run", published, "--data", tmp_path, "--out", tmp_path / "run").error()
    )
    for more in ([], ["--dry-run"]):
        assert "no such stage" in tinyrun.cirf("run", recipe, "--until", "finetune", "--out", tmp_path / "run", *more).error()
    for command in ("status", "report"):
        assert "not a run's folder" in tinyrun.cirf(command, tmp_path / "none").error()
    for arguments in (["ask", tmp_path, "What?"], ["codes", tmp_path]):
        assert "neither a model's folder" in tinyrun.cirf(*arguments).error()
    assert "not a run's folder" in tinyrun.cirf("codes", tmp_path / "none", "Step 1: a").error()
    assert "codebook-4: there is no codebook yet" in tinyrun.cirf("codes", tmp_path, "Step 1: a").error()
    assert "no such file" in tinyrun.cirf("check", tmp_path / "none.jsonl").error()
    for ending in (".jsonl", ".csv", ".parquet", ".jsonl.gz"):
        rows = tmp_path / f"mine{ending}"
        rows.write_bytes(b"\xff{}")
        said = f"{rows} holds rows, not a recipe: cirf init {rows} > {tmp_path / 'mine.yaml'}"
        assert said in tinyrun.cirf("run", rows, "--out", tmp_path / "run").error()
    assert "none.yaml" in tinyrun.cirf("run", tmp_path / "none.yaml").error()
    assert "no shipped recipe 'none'" in tinyrun.cirf("recipes", "none").error()
    assert "expected KEY=VALUE" in tinyrun.cirf("run", recipe, "--set", "seed").error()


def test_a_run_folder_where_nothing_can_be_written(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml"), "--out", tmp_path / "file")
    assert f"{tmp_path / 'file'}: cannot be used" in said.error()
    for command in ("run", "check", "status"):  # no file's name may be so long
        assert "name too long" in tinyrun.cirf(command, "x" * 5000).error() and len(said.error()) < 500


def test_a_run_folder_in_which_another_process_works(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    recipe = workshop.recipe(tmp_path / "recipe.yaml", methods=["cot"])
    with RunFolder(tmp_path / "run").alone():
        said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "problems")
        assert f"another process ({os.getpid()} on {socket.gethostname()}, since 20" in said.error()
        assert "works on this run" in said.error() and tinyrun.stages(tmp_path / "run") == {}
    assert not list((tmp_path / "run").iterdir())
    assert tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "problems").code == 0


# Data that lead nowhere: said by the stage that finds out, with all before it kept


NOWHERE: dict[str, tuple[dict[str, Any], str, str]] = {
    "no segment fits": ({"segments__minimum": 20}, "segments", "segments"),
    "more codes than segments": ({"codebook__size": 5000}, "codebook", "codebook-5000"),
    "every row too long": ({"finetune__max_length": 5}, "finetune.max_length", "models/cirf_full"),
    "a rate that explodes": (
        {"finetune__learning_rate": 1e30, "finetune__max_grad_norm": 1e30},
        "lower finetune.learning_rate",
        "models/cirf_full",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "a rate that explodes" else []) for name in NOWHERE]
)
def test_a_stage_that_cannot_go_on_keeps_what_is_finished(workshop: tinyrun.Workshop, tmp_path: Path, name: str) -> None:
    keys, says, stage = NOWHERE[name]
    run = tmp_path / "run"
    common: dict[str, Any] = {"methods": ["cirf_full"], "evaluate__latency_questions": 0}
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", **common | keys), "--out", run)
    assert says in said.error()
    before = tinyrun.stages(run)
    order = ["problems", "rationales", "segments", "results", "embeddings", stage if "book" in stage else "codebook-4", "traces"]
    assert set(before) == set(order[: order.index(stage)] if stage in order else order)
    mended = tinyrun.cirf(
        "run", workshop.recipe(tmp_path / "recipe.yaml", **common), "--out", run, "--until", re.split("[-/]", stage)[0]
    )
    assert mended.code == 0, mended.err
    after = tinyrun.stages(run)
    kept = {stage for stage in before if after.get(stage) == before[stage]}
    assert kept == set(before) - ({"segments"} if stage == "segments" else set())


def test_rationales_that_all_end_elsewhere(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    rows = [row | {"answer": "999"} for row in tinyrun.sums(12)]
    train = tinyrun.write_jsonl(tmp_path / "train.jsonl", [row | {"rationale": row["rationale"] + "\n#### 1"} for row in rows])
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", train=train), "--out", tmp_path / "run")
    assert "no rationale" in said.error() and "another answer" in said.error()
    assert set(tinyrun.stages(tmp_path / "run")) == {"problems"}


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_one_line_and_finished_work_is_kept(workshop: tinyrun.Workshop, tmp_path: Path, small_disk: Path) -> None:
    recipe = workshop.recipe(tmp_path / "recipe.yaml", methods=["cirf_full"], evaluate__latency_questions=0)
    run = small_disk / "run"
    full = tinyrun.forked("run", recipe, "--out", run)
    assert "free some space" in full.error() or "disk is full" in full.error()
    before = tinyrun.stages(run)
    assert {"problems", "embeddings", "codebook-4"} <= set(before) and "models/cirf_full" not in before
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    again = tinyrun.cirf("run", recipe, "--out", run)
    assert again.code == 0, again.err
    assert tinyrun.remade(before, tinyrun.stages(run)) == {"models/cirf_full", "evaluation/cirf_full"}


def test_a_finished_run_can_be_read_where_nothing_can_be_written(
    finished: Path, workshop: tinyrun.Workshop, tmp_path: Path, small_disk: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    run, recipe = shutil.copytree(finished, small_disk / "run"), workshop.recipe(tmp_path / "recipe.yaml")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    before = tinyrun.artefacts(run)
    for command in (["status", run, "--verify"], ["show", run, "--json"], ["codes", run], ["ask", run, "How many?"]):
        said = tinyrun.cirf(*command)
        assert said.code == 0, said.err
    said = tinyrun.cirf("run", recipe, "--out", run)
    assert said.code == 0, said.err
    assert tinyrun.cirf("report", run).code == 0  # nothing to change
    error = tinyrun.cirf("run", recipe, "--out", run, "--set", "seed=2").error()
    assert f"{run}" in error and "Read-only file system" in error
    assert tinyrun.artefacts(run) == before


@pytest.mark.parametrize("limit", [1000, 4000, 9000, 60_000])
def test_a_file_that_may_not_grow_is_one_line_wherever_it_happens(workshop: tinyrun.Workshop, tmp_path: Path, limit: int) -> None:
    recipe = workshop.recipe(tmp_path / "recipe.yaml", methods=["cirf_full"], evaluate__latency_questions=0)
    with tinyrun.files_no_longer_than(limit):
        said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run")
    assert "free some space" in said.error() or "disk is full" in said.error()


# What lists and reports


def one_document(*arguments: str | Path) -> Any:
    said = tinyrun.cirf(*arguments, "--json")
    assert said.code == 0, said.err
    assert said.out.endswith("\n") and not said.out.startswith("\n")
    return json.loads(said.out)


def test_lists_are_one_json_document() -> None:
    assert [row["name"] for row in one_document("methods")] == list(methods.names())
    assert [row["name"] for row in one_document("tasks")] == list(tasks.names())
    assert [row["name"] for row in one_document("recipes")] == list(shipped())
    keys = [row["key"] for row in one_document("recipes", "--schema")]
    assert "codebook.sinkhorn.temperature" in keys and len(keys) == len(set(keys)) > 80
    for name in shipped():
        assert one_document("recipes", name)["name"] == name
    assert {"cirf", "python", "packages", "bundled models"} <= set(one_document("env"))


def test_what_is_printed_of_a_run_is_one_json_document(finished: Path, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    assert {row["state"] for row in one_document("status", run)} == {"done"}
    assert set(one_document("report", run)["methods"]) == {"cirf_full", "direct_sft", "cot"}
    summary = one_document("run", workshop.recipe(tmp_path / "recipe.yaml"), "--out", run)
    assert set(summary["methods"]) == {"cirf_full", "direct_sft", "cot"}
    assert summary == json.loads((run / "report.json").read_text())
    codes = one_document("codes", run)
    assert 1 <= len(codes) <= 4 and sum(row["count"] for row in codes) == 36 * 3
    written = one_document("codes", run, "Step 1: There are 2 + 3 = 5 coins.\nStep 2: There are 5 + 1 = 6 coins.")
    assert [row["segment"] for row in written] == ["There are 2 + 3 = 5 coins.", "There are 5 + 1 = 6 coins."]
    assert {row["code"] for row in written} <= set(range(4))
    for model in (run, run / "models" / "cirf_full", run / "models" / "direct_sft"):
        answer = one_document("ask", model, "Box 1 gets 2 and 3 coins. How many coins are in it?")
        assert {"answer", "steps", "output", "tokens", "seconds", "truncated"} <= set(answer)
    checked = one_document("check", workshop.train)
    assert checked["total"]["usable"] == 40 and checked["total"]["share_segmentable"] == 1.0
    assert one_document("check", workshop.recipe(tmp_path / "recipe.yaml"))["total"]["usable"] == 40


@pytest.mark.slow
def test_the_same_for_people(finished: Path, workshop: tinyrun.Workshop) -> None:
    wanted: dict[tuple[str | Path, ...], list[str]] = {
        ("status", finished): ["models/cirf_full", "a rerun would do nothing"],
        ("methods",): ["cirf_full", "sft_cot"],
        ("tasks",): ["gsm8k", "made_coin_flip"],
        ("recipes",): list(shipped()),
        ("recipes", "--schema"): ["codebook.size"],
        ("env",): ["python", "torch"],
        ("codes", finished): ["<cirf_00"],
        ("codes", finished, "Step 1: 2 + 3 = 5 coins."): ["2 + 3 = 5 coins."],
        ("ask", finished, "How many?", "--choice", "one", "--choice", "two"): ["tokens"],
        ("check", workshop.train): ["jsonl", "speed-up"],
    }
    for arguments, parts in wanted.items():
        said = tinyrun.cirf(*arguments)
        assert said.code == 0, said.err
        assert all(part in said.out for part in parts), said.out


def test_the_last_line_of_a_run_says_which_method_to_use(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    summary = tinyrun.cirf("report", run).out.splitlines()[-1]
    verdict = json.loads((run / "report.json").read_text())["verdict"]
    assert summary == verdict["sentence"] and verdict["n"] == 8
    assert summary.startswith(("use ", "too few test questions to tell which to use")) and "n = 8" in summary
    assert 'id="verdict"' in (run / "report.html").read_text(encoding="utf-8")


def test_the_command_that_serves_a_model_fits_what_it_writes(finished: Path, tmp_path: Path) -> None:
    names = [path.name for path in (finished / "models").iterdir() if (path / "functions.json").is_file()]
    model, served = finished / "models" / names[0], ["vllm", "serve"]
    assert shlex.split(serve_command(finished, names[0]) or "") == [
        *(*served, str(model), "--served-model-name", finished.name),
        *("--reasoning-parser", "hf"),
    ]
    plain = tmp_path / "of mine" / "models" / "prose"
    shutil.copytree(model, plain, ignore=shutil.ignore_patterns("functions.json", "*.safetensors"))
    assert shlex.split(serve_command(plain.parents[1], "prose") or "") == [*served, str(plain), "--served-model-name", "of mine"]
    (plain / "latent.json").write_text(json.dumps({"begin": "<latent>", "end": "</latent>", "count": 6}))
    assert serve_command(plain.parents[1], "prose") is None and serve_command(finished, "cot") is None


def test_a_dry_run_says_that_fewer_rows_exist_than_are_requested(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    recipe = workshop.recipe(tmp_path / "recipe.yaml")
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--dry-run", "--set", "problems.tasks.0.test=90")
    assert said.code == 0 and "warning: sums: 90 test rows were requested, 8 exist" in said.out, said.err


def test_a_shipped_recipe_is_printed_as_it_is(tmp_path: Path) -> None:
    for name, path in shipped().items():
        assert tinyrun.cirf("recipes", name).out == path.read_text(encoding="utf-8")


def test_codes_of_a_model_without_any(finished: Path) -> None:
    assert "no functional tokens" in tinyrun.cirf("codes", finished / "models" / "direct_sft").error()


# Real processes


def test_in_a_process_of_its_own_standard_output_is_json_and_progress_is_apart(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    said = tinyrun.forked("run", run / "recipe.yaml", "--out", run, "--json")
    assert said.code == 0, said.err
    assert set(json.loads(said.out)["methods"]) == {"cirf_full", "direct_sft", "cot"}
    assert said.err.count("finished before") == 13 and "Traceback" not in said.err
    quiet = tinyrun.cirf("status", run, "--json")
    assert quiet.code == 0 and quiet.err == "" and json.loads(quiet.out)


def test_in_a_process_of_its_own_a_mistake_ends_with_2_and_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"question": "a"\n')
    own = tinyrun.command("run", "quikstart")
    here = [tinyrun.cirf(*arguments) for arguments in (["check", tmp_path / "mine.jsonl"], ["status", tmp_path])]
    for said in (own, *here):
        assert said.error() and said.out == "" and said.err.count("\n") == 1
    assert tinyrun.cirf("--version").out.strip()[0].isdigit()
    assert tinyrun.cirf("run", "quickstart", "--limit", "0").code == 2


FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    OSError(errno.EFBIG, "File too large"),
    OSError("I/O error: No space left on device (os error 28)"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
    RuntimeError("PytorchStreamWriter failed writing file data/3: file write failed"),
    RuntimeError("basic_ios::clear: iostream error"),
    Exception("No space left on device (os error 28)"),
]
OTHER = [
    OSError(errno.EACCES, "Permission denied"),
    FileNotFoundError(errno.ENOENT, "No such file or directory", "no space left"),
    RuntimeError("The size of tensor a (3) must match"),
    CirfError("the recipe has no tasks"),
    OSError("413 Client Error: File too large for url"),
    ValueError("recipe key 'disk quota' unknown"),
]


@pytest.mark.parametrize("error", FULL, ids=repr)
def test_a_full_disk_is_known_by_any_of_its_names(error: Exception) -> None:
    assert is_disk_full(error)


@pytest.mark.parametrize("error", OTHER, ids=repr)
def test_nothing_else_is_taken_for_one(error: Exception) -> None:
    assert not is_disk_full(error)


def test_while_saving_more_messages_mean_a_full_disk() -> None:
    error = RuntimeError("error writing file model.safetensors")
    assert is_disk_full(error, saving=True) and not is_disk_full(error)


DESERTED = """
import os, sys, torch, torch.distributed as dist
from cirf import cli
dist.init_process_group("gloo", init_method=sys.argv[1], rank=int(os.environ["RANK"]), world_size=2)
dist.barrier()
if os.environ["RANK"] == "1":
    os._exit(9)
cli.app = lambda: [dist.all_reduce(torch.ones(1)) for _ in range(1000)]
cli.main()
"""
"""The first of two processes of a run goes on to a place where it waits for the second, which is gone."""


def test_a_process_that_is_left_alone_says_so(tmp_path: Path) -> None:
    both = []
    for rank in range(2):
        log = tmp_path / f"{rank}"
        env = tinyrun.ENVIRONMENT | {"RANK": f"{rank}", "WORLD_SIZE": "2"}
        both.append(nursery.python("-c", DESERTED, f"file://{tmp_path / 'meet'}", env=env, out=log, err=log))
    assert [process.wait(120) for process in both] == [2, 9]
    said = (tmp_path / "0").read_text()
    last = said.splitlines()[-1]
    assert last.startswith("cirf: another process of this run has ended") and "Traceback" not in said


def test_a_process_that_is_alone_has_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("Read error: Connection reset by peer.")
    assert not is_lost_process(error)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert is_lost_process(error) and not is_lost_process(ConnectionResetError(str(error)))


@pytest.mark.parametrize(("code", "said"), [(130, True), (143, True), (1, False)])
def test_what_was_stopped_says_how_to_go_on(
    code: int, said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def app() -> None:
        raise SystemExit(code)

    monkeypatch.setattr(cli, "app", app)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code and ("run the same command to resume" in capsys.readouterr().err) == said
