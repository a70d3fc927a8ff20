"""SIGKILL inside every long stage, then the same command: the same bytes as an unbroken run, and nothing done twice.

Real processes, killed from outside at moments drawn from a seed. A ledger watches the run's folder all the while: a piece
of finished work (a stage, a chunk of embeddings, a phase of the codebook, a checkpoint, an answered batch) that appears a
second time was done a second time.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nursery
import pytest
import tinyrun
import torch
from safetensors.torch import load_file

KEYS: dict[str, Any] = {
    "methods": ["cirf_full"],
    "embeddings__batch_size": 4,
    "codebook__hidden": 64,
    "codebook__autoencoder_epochs": 3,
    "codebook__vq_epochs": 12,
    "finetune__batch_size": 4,
    "finetune__epochs": 0.4,
    "finetune__save_steps": 3,
    "finetune__eval_steps": 6,
    "evaluate__batch_size": 4,
    "evaluate__max_completion_tokens": 32,
    "evaluate__latency_questions": 1,
}
ASKED = 32
LONG = ("embeddings", "codebook-4", "models/cirf_full", "evaluation/cirf_full")


@pytest.fixture(scope="module")
def recipe(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Stages of a second or so: 1,200 segments (three chunks), 36 updates, 8 batches of questions; or of fewer rows."""
    folder = tmp_path_factory.mktemp("kill")
    rows = tinyrun.write_jsonl(folder / "train.jsonl", tinyrun.sums(getattr(request, "param", 400)))
    asked = tinyrun.write_jsonl(folder / "test.jsonl", tinyrun.sums(ASKED, seed=9, steps=2))
    return workshop.recipe(folder / "recipe.yaml", train=rows, test=asked, **KEYS)


@pytest.fixture(scope="module")
def unbroken(recipe: Path) -> dict[str, bytes]:
    """The artefacts of a run that no one killed."""
    said = tinyrun.cirf("run", recipe, "--out", recipe.parent / "unbroken")
    assert said.code == 0, said.err
    found = tinyrun.artefacts(recipe.parent / "unbroken")
    assert len(found) > 30
    return found


def there(folder: Path, pattern: str) -> list[Path]:
    """What matches a pattern in a folder that someone is at work in."""
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError):  # a folder went while it was looked into
            return list(folder.glob(pattern))
    raise AssertionError(f"{folder}: never at rest")


class Ledger:
    """What was finished when, over all the lives of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: dict[str, list[tuple[int, int]]] = {}
        self.phases: list[tuple[int, int]] = []
        self.answered: dict[str, int] = {}

    def look(self) -> None:
        """Take down every piece of finished work that is new, or there again."""
        for pattern in ("**/stage.json", ".work/*/scratch/**/chunk-*.safetensors", ".work/*/scratch/checkpoints/*/complete"):
            for path in there(self.folder, pattern):
                self.note(path)
        for path in there(self.folder, ".work/codebook-*/scratch/vqvae.pt"):
            self.note_phase(path)
        for pattern in (".work/evaluation*/scratch/*.jsonl", "evaluation/*/*.jsonl"):  # the log, and what it becomes
            for path in there(self.folder, pattern):
                with contextlib.suppress(FileNotFoundError):
                    self.answered[path.name] = max(self.answered.get(path.name, 0), path.read_bytes().count(b"\n"))

    def note(self, path: Path) -> None:
        try:
            state = path.stat()
        except FileNotFoundError:
            return
        name = path.relative_to(self.folder).as_posix()
        if ".work" in path.parts and path.name == "stage.json":
            return  # on its way to its place
        times = self.seen.setdefault(name, [])
        if (state.st_ino, state.st_mtime_ns) not in times:
            times.append((state.st_ino, state.st_mtime_ns))

    def note_phase(self, path: Path) -> None:
        """Epochs in a saved state of the codebook."""
        try:
            facts = torch.load(path, weights_only=True)
        except FileNotFoundError:
            return
        epochs = (len(facts["losses"]["autoencoder"]), len(facts["losses"]["vq"]))
        if not self.phases or self.phases[-1] != epochs:
            self.phases.append(epochs)

    def pieces(self) -> int:
        """How much is finished."""
        return len(self.seen) + len(self.phases) + sum(self.answered.values())

    def twice(self) -> dict[str, list[tuple[int, int]]]:
        """What was finished more than once."""
        return {name: times for name, times in self.seen.items() if len(times) > 1}


def started(recipe: Path, folder: Path) -> nursery.Child:
    log = folder.parent / "log"
    return nursery.python("-m", "cirf", "run", recipe, "--out", folder, env=tinyrun.ENVIRONMENT, out=log, err=log)


def live(recipe: Path, folder: Path, ledger: Ledger, doom: Callable[[], bool] | None, delay: float) -> int:
    """One life of a run: killed ``delay`` seconds after ``doom`` first holds, or let be; how it ended."""
    end = None
    with started(recipe, folder) as process:
        while process.poll() is None:
            ledger.look()
            if doom is not None and end is None and doom():
                end = time.monotonic() + delay
            if end is not None and time.monotonic() >= end:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.02)
        code = process.wait(timeout=60)
    ledger.look()
    return code


def begun(folder: Path, stage: str) -> Path | None:
    """The folder that a stage is being made in."""
    return next(iter(there(folder, f".work/{stage.replace('/', '--')}-*")), None)


def progress(folder: Path, stage: str) -> bool:
    """Whether a stage has finished some of its work, and not all."""
    work = begun(folder, stage)
    pattern = {
        "embeddings": "**/chunk-*",
        "codebook-4": "**/vqvae.*",
        "models/cirf_full": "**/complete",
        "evaluation/cirf_full": "**/*.jsonl",
    }
    found = there(work, f"scratch/{pattern[stage]}") if work is not None else []
    if stage.startswith("evaluation"):  # three batches, so that all of them answered anew would be too many
        with contextlib.suppress(FileNotFoundError):  # it is finished just now
            return sum(path.read_bytes().count(b"\n") for path in found) >= 12
        return False
    return bool(found)


def check(folder: Path, ledger: Ledger, unbroken: dict[str, bytes]) -> None:
    """The run ended like the unbroken one, and did nothing twice."""
    found = tinyrun.artefacts(folder)
    assert found.keys() == unbroken.keys()
    assert [name for name in unbroken if found[name] != unbroken[name]] == []
    assert ledger.twice() == {}
    assert ledger.phases == sorted(set(ledger.phases))  # no epoch count comes again
    # A batch that was being written down when the kill came may be written again.
    assert ledger.answered and all(ASKED <= count <= ASKED + 4 for count in ledger.answered.values()), ledger.answered


@pytest.mark.parametrize(
    ("recipe", "stages"), [(80, LONG[-1:]), pytest.param(400, LONG, marks=pytest.mark.slow)], indirect=["recipe"]
)
def test_a_run_killed_inside_a_long_stage_ends_like_an_unbroken_one(
    recipe: Path, tmp_path: Path, unbroken: dict[str, bytes], stages: Sequence[str]
) -> None:
    folder, ledger, draw = tmp_path / "run", Ledger(tmp_path / "run"), random.Random(20)
    for stage in stages:
        code = live(recipe, folder, ledger, lambda stage=stage: progress(folder, stage), draw.uniform(0, 0.15))  # type: ignore[misc]
        assert code == -signal.SIGKILL, (tmp_path / "log").read_text()
        assert begun(folder, stage) is not None and not (folder / stage).exists(), (tmp_path / "log").read_text()
    assert live(recipe, folder, ledger, None, 0) == 0, (tmp_path / "log").read_text()
    check(folder, ledger, unbroken)
    said = (tmp_path / "log").read_text()
    assert said.count("problems ...") == 1 and said.count("problems: finished before") == len(stages)


@pytest.mark.slow
@pytest.mark.parametrize("until", ["results", "evaluation"])
def test_an_interpreter_that_hashes_strings_otherwise_writes_the_same(finished: Path, tmp_path: Path, until: str) -> None:
    """Children of `nursery` hash them as this process does."""
    run = tmp_path / "run"
    said = tinyrun.command("run", finished / "recipe.yaml", "--out", run, "--until", until)
    assert said.code == 0, said.err
    made = tinyrun.artefacts(run)
    assert len(tinyrun.stages(run)) >= 4 and made == {name: tinyrun.artefacts(finished).get(name) for name in made}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_run_killed_again_and_again_ends_like_an_unbroken_one(
    recipe: Path, tmp_path: Path, unbroken: dict[str, bytes], seed: int
) -> None:
    folder, ledger, draw = tmp_path / "run", Ledger(tmp_path / "run"), random.Random(seed)
    kills = 0
    while True:
        stages = len(tinyrun.stages(folder)) if folder.exists() else 0
        count = ledger.pieces()
        code = live(recipe, folder, ledger, lambda count=count: ledger.pieces() > count, draw.uniform(0, 0.8))  # type: ignore[misc]
        if code == 0:
            break
        assert code == -signal.SIGKILL, (tmp_path / "log").read_text()
        assert len(tinyrun.stages(folder)) >= stages
        kills += 1
        assert kills < 60
    assert kills >= 5
    check(folder, ledger, unbroken)
    chunks = [name for name in ledger.seen if "chunk-" in name]
    assert len(chunks) >= 2  # the third and last one lives for a moment


# Two processes


def family(process: int) -> list[int]:
    """A process and all that it started, whatever sessions they are in."""
    found = [process]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, children.read_text().split())
    return found


def launch(
    recipe: Path,
    folder: Path,
    ledger: Ledger | None = None,
    doom: Callable[[], bool] | None = None,
    program: Sequence[str] = ("-m", "cirf"),
    sharded: bool = False,
) -> tuple[int, str]:
    """A run under ``accelerate launch`` with two processes on the CPU, or with FSDP2; all of it killed when ``doom`` holds."""
    # "--cpu" alone would start one process; "--multi_gpu" with this variable starts several on the CPU, joined by gloo.
    environment = tinyrun.ENVIRONMENT | {"ACCELERATE_USE_CPU": "true"}
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--num_processes", "2"]
    command += ["--use_fsdp", "--fsdp_version", "2"] if sharded else ["--multi_gpu"]
    command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    command += [*program, "run", str(recipe), "--out", str(folder)]
    with open(folder.parent / "log", "w+") as log:
        with subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True) as process:
            until = time.monotonic() + 200
            while process.poll() is None:
                if ledger is not None:
                    ledger.look()
                if time.monotonic() > until or (doom is not None and doom()):
                    for one in family(process.pid):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(one, signal.SIGKILL)
                    break
                time.sleep(0.002)
            code = process.wait(timeout=60)
        log.seek(0)
        return code, log.read()


@pytest.mark.slow
def test_two_processes_train_and_go_on_after_a_kill(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    rows = tinyrun.write_jsonl(tmp_path / "train.jsonl", tinyrun.sums(120))
    keys = {
        "methods": ["cirf_full", "cot"],
        "finetune__batch_size": 2,
        "finetune__save_steps": 3,
        "evaluate__latency_questions": 1,
    }
    recipe = workshop.recipe(tmp_path / "recipe.yaml", train=rows, **keys)
    code, said = launch(recipe, tmp_path / "whole")
    assert code == 0, said
    assert said.count("models/cirf_full ...") == 1 and "Traceback" not in said
    whole = tinyrun.artefacts(tmp_path / "whole")
    history = json.loads(whole["models/cirf_full/history.json"])
    assert history["updates"] == 54 and history["losses"][-1]["loss"] < history["losses"][0]["loss"]

    folder = tmp_path / "run"
    ledger = Ledger(folder)
    code, said = launch(recipe, folder, ledger, lambda: progress(folder, "models/cirf_full"))
    assert code == -signal.SIGKILL and not (folder / "models").exists(), said
    assert tinyrun.cirf("status", folder).out.count("begun, will continue") == 1
    code, said = launch(recipe, folder, ledger)
    assert code == 0, said
    assert tinyrun.artefacts(folder) == whole
    assert ledger.twice() == {}
    code, said = launch(recipe, folder)  # and a third time: nothing to do
    assert code == 0 and said.count("finished before") == len(tinyrun.stages(folder)), said


@pytest.mark.slow
def test_a_sharded_run_is_killed_and_goes_on_as_one_process(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    rows = tinyrun.write_jsonl(tmp_path / "train.jsonl", tinyrun.sums(120))
    keys = {"methods": ["cirf_full"], "finetune__batch_size": 2, "finetune__save_steps": 3, "evaluate__latency_questions": 0}
    recipe = workshop.recipe(tmp_path / "recipe.yaml", train=rows, **keys)
    alone = tinyrun.cirf("run", recipe, "--out", tmp_path / "alone")
    assert alone.code == 0, alone.err
    code, said = launch(recipe, tmp_path / "run", None, lambda: progress(tmp_path / "run", "models/cirf_full"), sharded=True)
    assert code == -signal.SIGKILL, said
    assert tinyrun.cirf("status", tmp_path / "run").out.count("begun, will continue") == 1
    until = time.monotonic() + 30
    finished = tinyrun.cirf("run", recipe, "--out", tmp_path / "run")
    while finished.code and "another process" in finished.err and time.monotonic() < until:  # one of the killed is not gone yet
        time.sleep(0.2)
        finished = tinyrun.cirf("run", recipe, "--out", tmp_path / "run")
    assert finished.code == 0, finished.err
    losses = [
        [row["loss"] for row in json.loads((tmp_path / name / "models/cirf_full/history.json").read_text())["losses"]]
        for name in ("alone", "run")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3) and losses[0][-1] < losses[0][0]
    saved = [load_file(tmp_path / name / "models/cirf_full/model.safetensors") for name in ("alone", "run")]
    assert saved[0].keys() == saved[1].keys()
    for name, weight in saved[0].items():
        torch.testing.assert_close(saved[1][name], weight, rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_two_processes_embed_prune_and_evaluate_to_the_files_of_one(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    rows = tinyrun.write_jsonl(tmp_path / "train.jsonl", tinyrun.sums(200))
    asked = tinyrun.write_jsonl(tmp_path / "test.jsonl", tinyrun.sums(24, seed=9, steps=2))
    keys = {"methods": ["cirf_full", "cirf_fast"], "evaluate__batch_size": 4, "evaluate__latency_questions": 0}
    recipe = workshop.recipe(tmp_path / "recipe.yaml", train=rows, test=asked, **keys)
    said_alone = tinyrun.cirf("run", recipe, "--out", tmp_path / "alone")
    assert said_alone.code == 0, said_alone.err
    whole, folder = tinyrun.artefacts(tmp_path / "alone"), tmp_path / "run"
    shutil.copytree(tmp_path / "alone", folder)
    for stage in ("embeddings", "compression", "evaluation"):  # models stay: two processes train other ones
        shutil.rmtree(folder / stage)
    code, said = launch(recipe, folder, doom=lambda: bool(there(folder, ".work/*/scratch/process-1/*")))
    assert code == -signal.SIGKILL, said
    code, said = launch(recipe, folder)
    assert code == 0 and "Traceback" not in said, said
    assert tinyrun.artefacts(folder) == whole


@pytest.mark.slow
def test_two_processes_make_a_large_damaged_file_again(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    """A file too large to be read when a run begins is read before something is made of it, by any number of processes."""
    program = tmp_path / "program.py"
    program.write_text(
        "from cirf.cli import main\n"
        "from cirf.store.integrity import set_damaged_aside\n"
        "set_damaged_aside.__defaults__ = (1000,)  # bytes, in place of 64 MiB\n"
        "main()\n"
    )
    rows = tinyrun.write_jsonl(tmp_path / "train.jsonl", tinyrun.sums(60))
    recipe = workshop.recipe(tmp_path / "recipe.yaml", train=rows, methods=["cirf_full"], evaluate__latency_questions=0)
    folder, weights = tmp_path / "run", "models/cirf_full/model.safetensors"
    code, said = launch(recipe, folder)
    assert code == 0, said
    whole = tinyrun.artefacts(folder)
    data = bytearray(whole[weights])
    data[len(data) // 2] ^= 1
    (folder / weights).chmod(0o644)
    (folder / weights).write_bytes(bytes(data))
    code, said = launch(recipe, folder, program=[str(program)])  # nothing is to be made of it
    assert code == 0 and "made again" not in said and (folder / weights).read_bytes() == bytes(data), said
    shutil.rmtree(folder / "evaluation")
    code, said = launch(recipe, folder, program=[str(program)])
    assert code == 0 and said.count(f"{folder / weights}: missing or changed; made again") == 1, said
    kept = {name: data for name, data in tinyrun.artefacts(folder).items() if not name.startswith(".work/")}
    assert kept == whole
