"""A killed training, started again, ends with the same bytes; and two processes train like one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tinyrun
import torch
from safetensors.torch import load_file

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


SAVED = {"step:2": 0, "step:7": 4, "SIGTERM:6": 6, "SIGTERM:7": 7, "SIGINT:1": 1, "SIGTERM:12": 12}


@pytest.mark.parametrize(
    ("adaptation", "kills"),
    [
        ("lora", ["old:4", "SIGTERM:7"]),
        pytest.param("full", ["weights:8", "old:4", "SIGTERM:7"], marks=pytest.mark.slow),
        pytest.param("lora", ["marker:4", "SIGINT:1"], marks=pytest.mark.slow),
        pytest.param("removal", ["step:6"], marks=pytest.mark.slow),
        pytest.param("full", ["step:2", "step:7", "marker:8"], marks=pytest.mark.slow),
        pytest.param("lora", ["step:8", "step:12", "SIGTERM:12"], marks=pytest.mark.slow),
        pytest.param("removal", ["marker:8", "SIGTERM:6"], marks=pytest.mark.slow),
    ],
)
def test_an_end_at_bad_moments_changes_no_byte(tmp_path: Path, adaptation: str, kills: list[str]) -> None:
    scenarios = ["-", *kills]
    done = tinyrun.python(HERE / "worker.py", tmp_path, adaptation, *scenarios)
    assert done.code == 0, done.err
    summary = {scenario: [*map(int, line.split()[1:])] for scenario, line in zip(scenarios, done.out.splitlines(), strict=True)}
    attempts = {scenario: again for scenario, (_, again, _) in summary.items()}
    assert all(summary[scenario][2] == update for scenario, update in SAVED.items() if scenario in summary)
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


def _alike(one: Path, other: Path) -> None:
    """The same losses, gradients and final weights up to the rounding of sums."""
    summary, again = (json.loads((folder / "history.json").read_text()) for folder in (one, other))
    for key in ("losses", "validation"):
        for row, same in zip(summary.pop(key), again.pop(key), strict=True):
            assert same == pytest.approx(row, rel=1e-4), (other.name, key)
    assert summary.pop("functional_rows") == [pytest.approx(row, abs=1e-4) for row in again.pop("functional_rows")]
    assert summary == again
    weights, same_weights = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    assert weights.keys() == same_weights.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(same_weights[name], weight, rtol=1e-3, atol=1e-4, msg=f"{other.name}: {name}")
    assert (one / "config.json").read_bytes() == (other / "config.json").read_bytes()


@pytest.mark.parametrize(
    ("adaptation", "steps"),
    [
        pytest.param("lora", ["sharded:2:sharded:-", "back:2:sharded:step:6", "back:1:plain:-"], marks=pytest.mark.slow),
        pytest.param(
            "full",
            [
                "plain:2:plain:-",
                "sharded:2:sharded:-",
                "back:2:sharded:step:6",
                "back:1:plain:-",
                "forth:1:plain:step:6",
                "forth:3:sharded:-",
            ],
            marks=pytest.mark.slow,
        ),
        pytest.param("tied", ["sharded:2:sharded:step:6", "sharded:2:sharded:-"], marks=pytest.mark.slow),
    ],
)
def test_any_number_of_processes_sharded_or_not_trains_as_one_and_goes_on_from_a_kill(
    tmp_path: Path, adaptation: str, steps: list[str]
) -> None:
    asked = [step.replace(":", f":{adaptation}:", 1) for step in ["one:1:plain:-", *steps]]
    done = tinyrun.python(HERE / "together.py", tmp_path, *asked)
    assert done.code == 0, done.err[-3000:]
    for name in {step.partition(":")[0] for step in steps}:
        _alike(tmp_path / "one", tmp_path / name)
