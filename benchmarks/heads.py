"""Train a projection to input vectors of a frozen backbone (SoftCoT, SemCoT): prefix computed once and cached, or in every pass.

    python -m benchmarks.heads --run RUN [--rows 16] [--passes 3]

Rows are questions and answers of a run's training split in batches of four, and the backbone is the run's. Both ways make the
same passes in turn, loss and gradient, from the same projection. Without the cache, a batch's questions are read in one padded
pass. Gradients of the last pass must agree. The last line is JSON; a ratio above 1 means caching is faster over all passes,
including the first one, which fills the cache.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

_BATCH, _VECTORS, _WIDTH = 4, 5, 576
_SLACK = {True: 1e-3, False: 0.1}  # allowed relative difference of gradients, in 32 and in 16 bits


def features(run: Path, tokenizer: Any, count: int) -> list[Any]:
    """The first rows of a run's training split, each with its number."""
    from cirf.lm.prompt import prompt_text
    from cirf.lm.training.batches import Row, tokenise
    from cirf.store.jsonl import read_rows

    problems = read_rows(run / "problems" / "train.jsonl")[:count]
    rows = [
        Row(prompt_text(tokenizer, problem["question"]), problem["answer"], given=place) for place, problem in enumerate(problems)
    ]
    return tokenise(rows, tokenizer, 1024)[0]


def main() -> None:
    """Take both ways in turns, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--passes", type=int, default=3, help="two or more")
    options = parser.parse_args()
    if options.passes < 2:
        parser.error("--passes: what was kept is first used in the second one")
    import torch

    from cirf.lm.backbone import load_model, load_tokenizer
    from cirf.lm.prompt import end_token
    from cirf.methods.base import around_turn
    from cirf.methods.soft.loss import FrozenGuideVectors, SoftObjective
    from cirf.methods.soft.prompts import PromptCache, placeholder
    from cirf.recipe.load import load, open_run

    open_run(options.run)
    recipe = load(str(options.run / "recipe.yaml"), [])
    tokenizer = load_tokenizer(recipe.backbone.model, recipe.backbone)
    model = load_model(recipe.backbone.model, recipe.backbone).requires_grad_(False)
    holder = placeholder(tokenizer)
    tokenizer.chat_template = around_turn(tokenizer.chat_template, "", holder * _VECTORS)
    token = int(tokenizer.convert_tokens_to_ids(holder))
    rows = features(options.run, tokenizer, options.rows)
    states = torch.randn(options.rows, _VECTORS, _WIDTH, generator=torch.Generator().manual_seed(1))
    ways = {}
    for name, kept in (("kept", PromptCache()), ("again", PromptCache(0, together=True))):
        ways[name] = SoftObjective(
            token, FrozenGuideVectors(states, range(options.rows), model.get_input_embeddings().weight.shape[1], 1)
        )
        ways[name].join(model, recipe.finetune, 1)
        ways[name].heads = kept
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(options.passes):
        for name in list(ways)[:: -1 if turn % 2 else 1]:
            objective = ways[name]
            objective.module.zero_grad(set_to_none=True)
            started = time.perf_counter()
            for start in range(0, len(rows), _BATCH):
                loss = objective.loss(model, objective.collate(rows[start : start + _BATCH], end_token(tokenizer)), None)
                loss.backward()  # type: ignore[no-untyped-call]
            seconds[name].append(time.perf_counter() - started)
            print(f"pass {turn + 1}, {name}: {seconds[name][-1]:.1f} s", flush=True)
    mine, other = (
        torch.cat([weight.grad.flatten() for weight in ways[name].module.parameters() if weight.grad is not None])
        for name in ("kept", "again")
    )
    apart = float((mine - other).norm() / other.norm())
    ratio, later = (sum(seconds["again"][first:]) / sum(seconds["kept"][first:]) for first in (0, 1))
    print(f"\nall passes {ratio:.2f} times as fast, those after the first {later:.2f}; gradients differ by {apart:.1e}")
    if apart > _SLACK[model.dtype == torch.float32]:
        raise SystemExit("the two ways have different gradients")
    summary = {name: [round(value, 2) for value in row] for name, row in seconds.items()}
    print(json.dumps({"benchmark": "heads", "ratio": round(ratio, 2), "later": round(later, 2), "n": len(rows), "apart": apart}
                     | {"seconds": summary}))  # fmt: skip


if __name__ == "__main__":
    main()
