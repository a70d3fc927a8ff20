"""Memory of each process in sharded training.

    python -m benchmarks.sharding RECIPE --shape llama-70b|qwen3-8b --processes 8
    python -m benchmarks.sharding --measure MODEL [--adaptation full|lora] [--updates 3]

The first form computes it without weights. A model of that shape is built on the meta device with the recipe's adapters and new
rows, and sharded as in training, rank by rank. It counts the bytes of the shards, the peak of gathered parameters (the two
largest of layers and embedding matrices, and the gradients of one), and the activations of `cirf run --dry-run`. The last row has
what `cirf run --dry-run` computes from the shape alone.

The second form measures it: a few updates of ``MODEL`` on the CPU by one process, by two with the whole model each, and by two
sharded ones. It prints the peak resident memory of each process, and the losses. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import shape_model
from benchmarks.shape_model import Lengths

GIB = 2**30
_ROW = (512, 256)
"""Tokens of a row, and of its target: about the longest of the paper's chain-of-thought on GSM8K."""


def by_rank(recipe: Any, shape: str, processes: int, rank: int) -> dict[str, float]:
    """GiB of one process, counted."""
    return _in_gib(counted(recipe, shape, processes, rank))


def by_formula(recipe: Any, shape: str, processes: int) -> dict[str, float]:
    """GiB of each process, by the formula of `cirf run --dry-run`."""
    return _in_gib(computed(recipe, shape, processes))


def _in_gib(held: dict[str, float]) -> dict[str, float]:
    return {name: round(size / GIB, 2) for name, size in held.items()} | {"sum": round(sum(held.values()) / GIB, 2)}


def computed(recipe: Any, shape: str, processes: int) -> dict[str, float]:
    """Bytes of each process, by the formula of `cirf run --dry-run`."""
    from cirf.fitting.cost import activations, shard_memory, sizes_of

    sizes = sizes_of(shape_model.build_model(shape, "meta", "bfloat16"))
    held = shard_memory(recipe.finetune, sizes, 2.0, processes, recipe.codebook.codes + 2)
    return held | {"activations": activations(recipe.finetune, sizes, *_ROW, 2.0)}


def counted(recipe: Any, shape: str, processes: int, rank: int) -> dict[str, float]:
    """Bytes of one process, counted."""
    import torch
    from accelerate.state import AcceleratorState
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from cirf.fitting.cost import activations, most_gathered, sizes_of
    from cirf.lm.training.finetune import adapt
    from cirf.lm.training.sharding import local, shard
    from cirf.lm.training.spec import TrainingSpec

    section, full = recipe.finetune, recipe.finetune.adaptation == "full"
    launched = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    with mock.patch.dict(os.environ, launched | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}):
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=processes)
        try:
            base = shape_model.build_model(shape, "meta", "bfloat16")
            new = list(range(base.config.vocab_size - recipe.codebook.codes - 2, base.config.vocab_size))
            sizes = sizes_of(base)
            model, _ = adapt(base, TrainingSpec(section, "cirf_full", new, Path(), 0))
            groups = [*base.model.layers, base.get_input_embeddings(), base.get_output_embeddings()]
            a_weight = 4 if full else 2
            parts = [
                (
                    float(sum(p.numel() * (a_weight if full or not p.requires_grad else 4) for p in part.parameters())),
                    float(sum(4 * p.numel() for p in part.parameters() if p.requires_grad)),
                )
                for part in groups
            ]
            shard(model, base, full, "cpu")
        finally:
            AcceleratorState._reset_state(reset_partial_state=True)
            torch.distributed.destroy_process_group()
    held = {"weights": 0.0, "gradients": 0.0, "moments": 0.0}
    for parameter in model.parameters():
        part = local(parameter)
        held["weights"] += part.numel() * part.element_size()
        if parameter.requires_grad:
            held["gradients"] += 4 * part.numel()
            held["moments"] += 8 * part.numel()
    held["gathered"] = most_gathered(parts)
    return held | {"activations": activations(section, sizes, *_ROW, 2.0)}


def measured(model: str, adaptation: str, processes: int, sharded: bool, updates: int) -> list[dict[str, Any]]:
    """Peak resident memory and losses of each of some processes that train together, forks of this one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(processes):
            child = os.fork()
            if child == 0:
                os.environ |= {"ACCELERATE_USE_CPU": "true", "ACCELERATE_USE_FSDP": str(sharded).lower()}
                if processes > 1:
                    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
                    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                _train(model, adaptation, updates, Path(folder), rank)
            children.append(child)
        if any([os.waitpid(child, 0)[1] for child in children]):
            sys.exit("a process failed")
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(processes)]


def _train(model: str, adaptation: str, updates: int, folder: Path, rank: int) -> None:
    try:
        from cirf.lm import backbone
        from cirf.lm.training.finetune import finetune
        from cirf.lm.training.spec import TrainingSpec
        from cirf.lm.training.trainer import TargetTrainer
        from cirf.recipe import schema

        section = schema.Finetune(
            adaptation="full" if adaptation == "full" else "lora",
            epochs=1,
            batch_size=2,
            gradient_accumulation_steps=2,
            warmup_steps=0,
            max_length=512,
        )
        tokenizer = backbone.load_tokenizer(model)
        loaded = backbone.load_model(model, schema.Backbone(device="cpu"), section.adaptation)
        rows = shape_model.rows(4 * updates, Lengths(30), 40)
        with mock.patch.object(TargetTrainer, "_save_checkpoint"):
            _, history, _ = finetune(
                loaded, tokenizer, rows, [], TrainingSpec(section, "sft_cot", [], folder / "work", 0, device="cpu")
            )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
        summary = {"peak_gib": round(peak, 2), "losses": [row["loss"] for row in history.losses]}
        (folder / f"{rank}.json").write_text(json.dumps(summary))
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(arguments: list[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", help="its finetune section and codebook size are taken")
    parser.add_argument("--shape", choices=sorted(shape_model.SHAPES), default="qwen3-8b")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--measure", metavar="MODEL")
    parser.add_argument("--adaptation", choices=["full", "lora"], default="full")
    parser.add_argument("--updates", type=int, default=3)
    options = parser.parse_args(arguments)
    made: dict[str, Any]
    if options.measure:
        made = {}
        for name, processes, sharded in (("one", 1, False), ("two, whole", 2, False), ("two, sharded", 2, True)):
            found = measured(options.measure, options.adaptation, processes, sharded, options.updates)
            made[name] = found
            losses = " ".join(f"{loss:.6f}" for loss in found[0]["losses"])
            print(f"{name:14}{' '.join(str(each['peak_gib']) for each in found):>12} GiB a process, losses {losses}", flush=True)
    else:
        from cirf.recipe.load import load

        recipe = load(options.recipe)
        made = {"ranks": [by_rank(recipe, options.shape, options.processes, rank) for rank in range(options.processes)]}
        made["formula"] = by_formula(recipe, options.shape, options.processes)
        print(f"{'rank':7}" + "".join(f"{name:>13}" for name in made["formula"]) + "  GiB")
        for title, row in [*enumerate(made["ranks"]), ("formula", made["formula"])]:
            print(f"{title:<7}" + "".join(f"{row[part]:13.2f}" for part in made["formula"]))
    print(json.dumps(made))


if __name__ == "__main__":
    main()
