"""The launcher settings of docs/how-to/several-machines.md, and the memory that docs/reference/scale.md states."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import DistributedType
from benchmarks.shape_model import build_model
from benchmarks.sharding import GIB, by_formula, by_rank, computed, counted
from torch.distributed.run import get_args_parser

from cirf.fitting.cost import idle, sizes_of, training_memory
from cirf.methods import METHODS
from cirf.methods.base import Method
from cirf.recipe.load import load

ROOT = Path(__file__).parents[1]
HOW_TO = ROOT / "docs" / "how-to"
PAGE = (HOW_TO / "several-machines.md").read_text(encoding="utf-8")


def test_accelerate_reads_the_settings_and_shards_by_them() -> None:
    config = load_config_from_file(str(HOW_TO / "fsdp2.yaml"))  # refuses keys that it does not know
    assert config.distributed_type == DistributedType.FSDP and config.num_processes == 8
    known = {action.dest for action in launch_command_parser()._actions}
    assert set(config.fsdp_config) <= known and config.fsdp_config["fsdp_version"] == 2


def runs_cirf(words: list[str]) -> Any:
    """What torchrun makes of its words; it runs `cirf run`."""
    asked = get_args_parser().parse_args(words)
    assert asked.module and asked.training_script == "cirf" and asked.training_script_args[0] == "run"
    return asked


def test_torchrun_reads_its_examples() -> None:
    lines = [line for line in PAGE.splitlines() if "torchrun --" in line and not line.startswith("`")]
    asked = [runs_cirf(shlex.split(line)[shlex.split(line).index("torchrun") + 1 :]) for line in lines]
    assert [each.nproc_per_node for each in asked] == ["2", "8"]


def test_torchrun_reads_its_example_in_the_container() -> None:
    text = (HOW_TO / "install.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = [line for line in text.splitlines() if "--entrypoint torchrun" in line]
    words = shlex.split(line, comments=True)
    place = words.index("--entrypoint")
    assert "--shm-size" in words[:place] and words[place : place + 3] == ["--entrypoint", "torchrun", "cirf"]
    assert runs_cirf(words[place + 3 :]).nproc_per_node == "8"


def test_the_slurm_script_is_one_and_starts_torchrun_on_each_machine() -> None:
    script = HOW_TO / "fsdp2.slurm"
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    text = script.read_text(encoding="utf-8").replace("\\\n", " ")
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?", text, re.MULTILINE))
    assert options["nodes"] == "2" and options["ntasks-per-node"] == "1" and "requeue" in options
    (line,) = [line for line in text.splitlines() if line.startswith("srun torchrun")]
    summary = {"SLURM_NNODES": options["nodes"], "SLURM_JOB_ID": "7", "first": "node-1"}
    asked = runs_cirf(shlex.split(re.sub(r"\$(\w+)", lambda found: summary.get(found[1], found[0]), line))[2:])
    assert asked.nnodes == options["nodes"] and asked.nproc_per_node == options["gpus-per-node"]
    assert asked.rdzv_endpoint == "node-1:29500" and "export ACCELERATE_USE_FSDP=true" in text
    exports = "\n".join(line for line in text.splitlines() if line.startswith("export "))
    said = subprocess.run(
        ["bash", "-euc", exports + "\nenv"], env={"SLURM_CPUS_PER_TASK": options["cpus-per-task"]}, capture_output=True, text=True
    )
    assert {"SRUN_CPUS_PER_TASK=64", "OMP_NUM_THREADS=8"} <= {*said.stdout.splitlines()}  # the cores, shared by eight processes


def test_every_example_gives_each_process_passes_of_an_update() -> None:
    text = PAGE.replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in text.splitlines() if re.search(r"^\S.*recipes/\S+\.yaml", line)]
    trained = [words for words in lines if not {"--dry-run", "benchmarks.sharding"} & {*words}]
    assert len(trained) == 3
    for words in trained:
        (recipe,) = [word for word in words if word.startswith("recipes/")]
        sets = [word for before, word in itertools.pairwise(words) if before == "--set"]
        section = load(str(ROOT / recipe), sets).finetune
        assert idle(section, 16 if words[0] == "sbatch" else 8) is None
        assert section.batch_size * section.gradient_accumulation_steps == 32


def test_the_page_names_all_methods_that_cannot_be_sharded() -> None:
    own = {name for name, method in METHODS.items() if method.objective is not Method.objective}
    for line in re.findall(r"methods with a loss of their own[^.]*[.]", PAGE, re.IGNORECASE):
        named = {name for name in own if name.replace("_", "") in line.lower().replace("-", "")}
        assert named == own, line
    assert "soft_cot" in own


def test_commands_of_the_page_name_recipes_that_are_there() -> None:
    named = set(re.findall(r"recipes/[\w.-]+\.yaml", PAGE))
    assert len(named) == 2 and all(load(str(ROOT / name)).finetune.gradient_checkpointing for name in named)


@pytest.mark.parametrize(
    ("size", "recipe"), [("8B", "full-qwen3-8b-8gpu"), pytest.param("70B", "lora-llama3.3-70b-8gpu", marks=pytest.mark.slow)]
)
def test_the_memory_that_is_stated_is_that_of_the_recipe(size: str, recipe: str) -> None:

    shape, (row,) = {"8B": "qwen3-8b", "70B": "llama-70b"}[size], re.findall(rf"^\| `{recipe}` .*$", SCALE, re.MULTILINE)
    ranks = [by_rank(load(recipe), shape, 8, rank) for rank in (0, 7)]
    assert abs(ranks[0]["sum"] - ranks[1]["sum"]) < 0.1
    stated = [float(cell) for cell in row.split("|")[2:-1]]
    assert stated == pytest.approx([max(rank[name] for rank in ranks) for name in ranks[0]], abs=0.051)


@pytest.mark.parametrize(("shape", "recipe"), [("qwen3-8b", "full-qwen3-8b-8gpu"), ("llama-70b", "lora-llama3.3-70b-8gpu")])
def test_a_dry_run_computes_the_memory_that_is_stated(shape: str, recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = re.findall(rf"^\| `{recipe}` .*$", SCALE, re.MULTILINE)
    stated = [float(cell) for cell in row.split("|")[2:-1]]
    assert [*by_formula(load(recipe), shape, 8).values()] == pytest.approx(stated, rel=0.03, abs=0.051)
    monkeypatch.setattr("cirf.lm.backbone.pick_device", lambda device: "cuda")
    sizes, chosen = sizes_of(build_model(shape, "meta", "bfloat16")), load(recipe)
    found = training_memory(chosen.backbone, chosen.finetune, sizes, 512, 256, shards=8) / GIB
    assert found == pytest.approx(stated[-1], rel=0.01)


@pytest.mark.parametrize("processes", [2, 3, 5])
@pytest.mark.parametrize("recipe", ["full-qwen3-8b-8gpu", "lora-llama3.3-70b-8gpu"])
def test_a_dry_run_computes_the_bytes_that_are_counted(recipe: str, processes: int) -> None:
    found = computed(load(recipe), "tiny", processes)
    assert found == pytest.approx(counted(load(recipe), "tiny", processes, 0), rel=0.05)  # the first has the largest part


SCALE = (ROOT / "docs" / "reference" / "scale.md").read_text(encoding="utf-8")
