"""A killed training, started again, ends with the same bytes; and two processes train like one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tinyrun

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


SAVED = {"step:2": 0, "step:7": 4, "SIGTERM:6": 6, "SIGTERM:7": 7, "SIGINT:1": 1, "SIGTERM:12": 12}


@pytest.mark.parametrize(
    ("adaptation", "kills"),
    [
        ("full", ["step:2", "step:7", "weights:8", "marker:8", "old:4", "SIGTERM:7"]),
        ("lora", ["step:8", "marker:4", "step:12", "SIGINT:1", "SIGTERM:12"]),
        ("removal", ["step:6", "marker:8", "SIGTERM:6"]),
    ],
)
def test_an_end_at_bad_moments_changes_no_byte(tmp_path: Path, adaptation: str, kills: list[str]) -> None:
    scenarios = ["-", *kills]
    done = tinyrun.python(HERE / "worker.py", tmp_path, adaptation, *scenarios)
    assert done.code == 0, done.err
    told = {scenario: [*map(int, line.split()[1:])] for scenario, line in zip(scenarios, done.out.splitlines(), strict=True)}
    attempts = {scenario: again for scenario, (_, again, _) in told.items()}
    assert all(told[scenario][2] == update for scenario, update in SAVED.items() if scenario in told)
    assert attempts == {scenario: int(scenario != "-") for scenario in scenarios}  # each killed once, then finished
    whole = _artefacts(tmp_path / "-")
    assert len(whole) >= 6
    for scenario in scenarios[1:]:
        assert _artefacts(tmp_path / scenario.replace(":", "-")) == whole, scenario
    history = json.loads(whole["history.json"])
    assert [row["update"] for row in history["losses"]] == list(range(1, 13))
    assert [row["update"] for row in history["validation"]] == [0, 6, 12]
    if adaptation == "removal":  # which goes on before, between and after the kills
        assert [entry["update"] for entry in history["curriculum"]["removed"]][:1] == [0]
        assert any(4 <= entry["update"] <= 8 for entry in history["curriculum"]["removed"])


def _artefacts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def _launch(folder: Path, kill: str, launcher: list[str]) -> int:
    command = [sys.executable, "-m", *launcher, str(HERE / "together.py"), str(folder), kill]
    environment = {**ENVIRONMENT, "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if kill == "-":
        assert done.returncode == 0, done.stderr[-3000:]
    return done.returncode


TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc_per_node=2"]
ACCELERATE = ["accelerate.commands.accelerate_cli", "launch", "--multi_gpu", "--num_processes=2", "--num_machines=1"]
ACCELERATE += ["--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0"]


@pytest.mark.slow
def test_two_processes_train_alike_and_resume(tmp_path: Path) -> None:
    _launch(tmp_path / "two", "-", TORCHRUN)
    assert _launch(tmp_path / "killed", "step:7", TORCHRUN) != 0
    assert not (tmp_path / "killed" / "history.json").exists()
    _launch(tmp_path / "killed", "-", ACCELERATE)
    assert _artefacts(tmp_path / "killed") == _artefacts(tmp_path / "two")
    history = json.loads((tmp_path / "two" / "history.json").read_text())
    assert history["updates"] == 12 and history["losses"][-1]["loss"] < history["losses"][0]["loss"]


@pytest.mark.slow
def test_sharded_training_is_refused_before_it_begins(tmp_path: Path) -> None:
    command = [sys.executable, "-m", *TORCHRUN, str(HERE / "together.py"), str(tmp_path / "sharded"), "-"]
    environment = {**ENVIRONMENT, "ACCELERATE_USE_CPU": "true", "ACCELERATE_USE_FSDP": "true"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0 and "sharded over devices (FSDP) is not supported" in done.stderr
    assert not list((tmp_path / "sharded").rglob("checkpoint-*"))
