"""Training adapters on frozen weights that are multiplied in eight bits (`finetune.weights: int8`), against multiplied as saved.

    python -m benchmarks.rounded --run RUN [--rows 12] [--rounds 2]

Rows are questions of a run with their rationales as they are, batches as the run's recipe has them, the backbone and the adapters
the run's; where these begin with zeros they have small numbers, so that all of them have gradients. Both ways make the same
passes in turns, loss and gradient; of each batch the fastest counts. Weights are rounded before, as they are once a training.
How far gradients are apart is told as the cosine of all adapters' together, of each batch. The last line is JSON; a ratio above 1
means that eight bits are faster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from pathlib import Path
from typing import Any

_SMALL = 0.005


def features(run: Path, tokenizer: Any, count: int) -> list[Any]:
    """Rationales from all over a run as rows, with their questions and without the answers."""
    from cirf.lm.batches import Row, tokenise
    from cirf.lm.prompt import prompt_text
    from cirf.rows import read_rows

    asked = {row["id"]: row["question"] for row in read_rows(run / "problems" / "train.jsonl")}
    told = [row for row in read_rows(run / "rationales" / "rationales.jsonl") if row["problem"] in asked]
    step = max(1, len(told) // count)  # tasks stand one after the other
    rows = [Row(prompt_text(tokenizer, asked[row["problem"]]), row["text"]) for row in told[::step][:count]]
    return tokenise(rows, tokenizer, 1024)[0]


def main() -> None:
    """Take both ways in turns, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if min(options.rows, options.rounds) < 1:
        parser.error("--rows, --rounds: one at least")
    import torch

    from cirf.commands.running import open_run
    from cirf.lm.adapters import put_adapters
    from cirf.lm.attention import for_rows
    from cirf.lm.backbone import load_model, load_tokenizer
    from cirf.lm.int8_products import weight_bits
    from cirf.lm.lora_linear import in_place
    from cirf.lm.memory import keep_freed_memory
    from cirf.lm.number_formats import computed_in
    from cirf.lm.objective import Objective
    from cirf.lm.prefix_tree import as_trees
    from cirf.lm.prompt import end_token
    from cirf.recipe_io import load

    open_run(options.run)
    recipe = load(str(options.run / "recipe.yaml"), [])
    section = recipe.finetune
    bits = weight_bits("cpu")
    if bits is None:
        raise SystemExit("this processor has no instructions for products in eight bits")
    keep_freed_memory()
    torch.manual_seed(1)
    tokenizer = load_tokenizer(recipe.backbone.model, recipe.backbone)
    rows = sorted(features(options.run, tokenizer, options.rows), key=lambda row: len(row.ids))
    base = load_model(recipe.backbone.model, recipe.backbone, "lora", "cpu")
    model = put_adapters(base.train(), section.lora)
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    for name, weight in trained.items():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=_SMALL)
    half = section.bf16 and computed_in("bfloat16", "cpu") == "bfloat16"
    objective = Objective()
    gradients: dict[str, list[Any]] = {}
    seconds: dict[str, list[list[float]]] = {"saved": [], "int8": []}
    longest = max(len(row.ids) for row in rows)
    with as_trees(base, longest, "cpu") as fits, contextlib.nullcontext() if fits else for_rows(base, longest, "cpu"):
        objective.trees = fits
        batches = [
            objective.collate(rows[start : start + section.batch_size], end_token(tokenizer))
            for start in range(0, len(rows), section.batch_size)
        ]
        for turn in range(options.rounds):
            for name in list(seconds)[:: -1 if turn % 2 else 1]:
                gradients[name] = []
                with in_place(model, bits if name == "int8" else None) as (layers, rounded):
                    if name == "int8" and rounded < layers:
                        raise SystemExit(f"only {rounded} of {layers} layers can be rounded: the recipe has dropout in adapters")
                    taken = []
                    for batch in batches:
                        model.zero_grad(set_to_none=True)
                        started = time.perf_counter()
                        with torch.autocast("cpu", torch.bfloat16) if half else contextlib.nullcontext():
                            loss = objective.loss(model, batch, None)
                        loss.backward()  # type: ignore[no-untyped-call]
                        taken.append(time.perf_counter() - started)
                        gradients[name].append(
                            torch.cat([one.grad.flatten() for one in trained.values() if one.grad is not None])
                        )
                seconds[name].append(taken)
                print(f"round {turn + 1}, {name}: {sum(taken):.1f} s", flush=True)
    near = [float(torch.cosine_similarity(one, two, 0)) for one, two in zip(gradients["int8"], gradients["saved"], strict=True)]
    peer, ours = (sum(map(min, zip(*seconds[name], strict=True))) for name in seconds)
    tokens = sum(len(row.ids) for row in rows)
    print(
        f"\n{tokens} tokens: {peer:.1f} s with weights as saved, {ours:.1f} s with {bits} bits, {peer / ours:.2f} times as fast"
    )
    print(f"cosine of gradients: {sum(near) / len(near):.4f}, least {min(near):.4f}")
    told = {"benchmark": "rounded", "ours": round(ours, 2), "peer": round(peer, 2), "ratio": round(peer / ours, 2), "unit": "s"}
    told |= {"n": len(rows), "tokens": tokens, "bits": bits, "threads": torch.get_num_threads()}
    print(json.dumps(told | {"cosines": [round(value, 4) for value in near]}))


if __name__ == "__main__":
    main()
