"""SIM-CoT's auxiliary decoder: its steps in passes with little padding, against one padded pass over all of them.

    python -m benchmarks.explaining --run RUN [--rows 4] [--batches 4] [--thoughts 3]

Steps are those of the last stage of a run's rationales, in seeded batches of rows of similar length; the model is the run's
backbone with adapters. Each batch's gradients are computed both ways in turn and must agree; seconds are sums. ``positions`` are
the decoder's positions a row, ``held`` the peak bytes kept for the backward pass. The last line is JSON; a ratio above 1 means
that split passes are faster.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

_SLACK = {True: 1e-3, False: 0.1}  # allowed relative difference of gradients, in 32 and in 16 bits


def batches(run: Path, tokenizer: Any, rows: int, count: int, groups: int) -> list[list[list[list[int]]]]:
    """The targets of ``count`` batches: ids by group by row."""
    from cirf.lm.prompt import end_token
    from cirf.lm.training.batches import LengthSampler
    from cirf.methods.curricula import aligned, groups_of

    lines = (run / "segments" / "segments.jsonl").read_text(encoding="utf-8").splitlines()
    end = end_token(tokenizer)
    summary = [groups_of(tokenizer, aligned(json.loads(line)["segments"], groups, "0"), end) for line in lines]
    order = list(LengthSampler([sum(map(len, row)) for row in summary], rows, seed=1))
    cuts = [order[start : start + rows] for start in range(0, len(order) - rows + 1, rows)]
    return [[[list(ids) for ids in summary[row]] for row in cut] for cut in random.Random(1).sample(cuts, count)]


def passed(explaining: Any, model: Any, said: Callable[[], Any]) -> dict[str, Any]:
    """One loss with its gradients: seconds, positions, bytes held for the backward pass, and the gradient of its adapters."""
    import torch

    held: dict[int, int] = {}
    positions = 0

    def entered(module: Any, args: Any, given: dict[str, Any]) -> None:
        nonlocal positions
        positions += given["inputs_embeds"].shape[0] * given["inputs_embeds"].shape[1]

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            held[storage.data_ptr()] = storage.nbytes()
        return tensor

    model.zero_grad(set_to_none=True)
    hook = model.get_decoder().register_forward_pre_hook(entered, with_kwargs=True)
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    try:
        started = time.perf_counter()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = said()
        loss.backward()
        seconds = time.perf_counter() - started
    finally:
        hook.remove()
    gradient = torch.cat([weight.grad.flatten() for weight in explaining.decoder._learns if weight.grad is not None])
    return {"seconds": seconds, "positions": positions, "held": sum(held.values()), "gradient": gradient}


def main() -> None:
    """Take both ways in turns, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--thoughts", type=int, default=3, help="groups of a row")
    options = parser.parse_args()
    import torch

    from cirf.cpu.memory import keep_freed_memory
    from cirf.lm.adapters import put_adapters
    from cirf.lm.backbone import load_model, load_tokenizer
    from cirf.lm.training.attention import for_rows
    from cirf.lm.training.batches import pass_price
    from cirf.lm.training.loss import IGNORED
    from cirf.methods.latent import loss as explain
    from cirf.methods.latent.loss import LatentObjective
    from cirf.recipe.load import load, open_run

    open_run(options.run)
    recipe = load(str(options.run / "recipe.yaml"), [])
    keep_freed_memory()
    tokenizer = load_tokenizer(recipe.backbone.model, recipe.backbone)
    base = load_model(recipe.backbone.model, recipe.backbone, training="lora").train()
    model = put_adapters(base, recipe.finetune.lora)
    made = explain.ExplainedObjective(LatentObjective(), explain.StepDecoder(), 2, False, 1.0, False)
    made.join(model, recipe.finetune, 1)
    ways = {"cut": pass_price("cpu"), "one": 10**9}
    total: dict[str, dict[str, float]] = {name: {"seconds": 0.0, "positions": 0, "held": 0} for name in ways}
    apart = 0.0
    with for_rows(base, 0, "cpu"):
        for turn, rows in enumerate(batches(options.run, tokenizer, options.rows, options.batches, options.thoughts)):
            longest = max(len(ids) for row in rows for ids in row)
            groups = torch.tensor([[ids + [IGNORED] * (longest - len(ids)) for ids in row] for row in rows])
            counts = torch.full((len(rows),), 2 * options.thoughts)
            width = base.get_input_embeddings().weight.shape[1]
            vectors = torch.randn(len(rows), 2 * options.thoughts, width, generator=torch.Generator().manual_seed(turn))
            found = {}
            for name in list(ways)[:: -1 if turn % 2 else 1]:
                with mock.patch.object(explain, "pass_price", lambda device, price=ways[name]: price):
                    one = passed(made, base, partial(made.said, model, vectors.requires_grad_(True), counts, groups))
                found[name] = one.pop("gradient")
                total[name]["seconds"] += one["seconds"]
                total[name]["positions"] += one["positions"]
                total[name]["held"] = max(total[name]["held"], one["held"])
            apart = max(apart, float((found["cut"] - found["one"]).norm() / found["one"].norm()))
            print(f"batch {turn + 1}: " + ", ".join(f"{name} {row['seconds']:.1f} s" for name, row in total.items()), flush=True)
    ratio = total["one"]["seconds"] / total["cut"]["seconds"]
    count = options.rows * options.batches
    print(f"\n{'':6}{'seconds':>9}{'positions a row':>17}{'held, GB':>10}")
    for name, row in total.items():
        print(f"{name:6}{row['seconds']:9.1f}{row['positions'] / count:17.0f}{row['held'] / 1e9:10.2f}")
    print(f"gradients differ by {apart:.1e} of their length")
    if apart > _SLACK[base.dtype == torch.float32]:
        raise SystemExit("the two ways have different gradients")
    summary = {name: {key: round(value, 3) for key, value in row.items()} for name, row in total.items()}
    print(json.dumps({"benchmark": "explaining", "ratio": round(ratio, 2), "n": count, "apart": apart, "ways": summary}))


if __name__ == "__main__":
    main()
