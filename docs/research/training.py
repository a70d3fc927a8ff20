"""The cost of training: seconds per 1,000 examples of several methods, with the same model, rows and settings.

    python -m docs.research.training --run RUN [--methods cirf_full sft_cot coconut] [--rows 64] [--rounds 2] [--set KEY=VALUE]

Rows, recipe and start models are those of a run. In each round every method is trained in turn on the first rows, with its whole
curriculum; the fastest round counts. Forward passes are counted at the backbone's layers, positions include padding. The last
line is JSON; ``ratio`` is the time of an example relative to the first method.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock


@dataclass
class Passes:
    """Numbers of forward passes and positions."""

    passes: int = 0
    positions: int = 0


@contextlib.contextmanager
def counted() -> Iterator[Passes]:
    """Count the passes of every model loaded inside the context."""
    from cirf.lm import backbone

    found, load = Passes(), backbone.load_model

    def entered(module: Any, args: Any, keys: dict[str, Any]) -> None:
        given = keys.get("input_ids")
        given = keys["inputs_embeds"] if given is None else given
        found.passes += 1
        found.positions += given.shape[0] * given.shape[1]

    def loading(*args: Any, **keys: Any) -> Any:
        model = load(*args, **keys)
        model.get_decoder().register_forward_pre_hook(entered, with_kwargs=True)
        return model

    with mock.patch.object(backbone, "load_model", loading):
        yield found


def train(run: Path, name: str, rows: int, sets: list[str]) -> dict[str, float]:
    """Train one method without saving: seconds, updates, examples, passes, positions."""
    from cirf.methods import get
    from cirf.recipe.load import load, open_run
    from cirf.stages import models
    from cirf.stages.context import Context
    from cirf.store.run_folder import RunFolder

    open_run(run)
    always = ["finetune.save_steps=1000000", "finetune.eval_steps=1000000"]
    recipe = load(str(run / "recipe.yaml"), [*always, *sets])

    class Fewer(Context):
        def examples(self, method: Any) -> Any:
            return super().examples(method)[0][:rows], []

    context = Fewer(recipe, RunFolder(run))
    section = recipe.finetune.resolved(name, get(name, recipe).training)
    with tempfile.TemporaryDirectory() as folder, counted() as found:
        made = models.finetune(context, name, recipe.finetune, Path(folder))
        timed = json.loads((Path(folder) / "timings.json").read_text())
    examples = made["rows"] * float(section.settled(made["rows"]).epochs)
    return {
        "seconds": timed["training_seconds"],
        "updates": timed["updates"],
        "examples": examples,
        "passes": found.passes,
        "positions": found.positions,
    }


def main() -> None:
    """Train all in turns, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", default=["cirf_full", "sft_cot", "coconut"])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE")
    options = parser.parse_args()
    best: dict[str, dict[str, float]] = {}
    for turn in range(options.rounds):
        for name in options.methods[:: -1 if turn % 2 else 1]:
            one = train(options.run, name, options.rows, options.sets)
            print(f"{name}: {one['seconds']:.1f} s for {one['examples']:.0f} examples", flush=True)
            best[name] = min(one, best.get(name, one), key=lambda made: made["seconds"])
    first = best[options.methods[0]]
    each = {name: made["seconds"] / made["examples"] * 1000 for name, made in best.items()}
    print(f"\n{'':16}{'s per 1,000 examples':>21}{'ratio':>7}{'passes an update':>18}{'positions an example':>22}")
    summary = {}
    for name, made in best.items():
        ratio = each[name] / (first["seconds"] / first["examples"] * 1000)
        passes, positions = made["passes"] / made["updates"], made["positions"] / made["examples"]
        print(f"{name:16}{each[name]:21.0f}{ratio:7.2f}{passes:18.1f}{positions:22.0f}")
        summary[name] = {"seconds": round(each[name], 1), "ratio": round(ratio, 2), "passes": round(passes, 2)}
        summary[name] |= {"positions": round(positions, 1)}
    print(json.dumps({"benchmark": "training", "unit": "s per 1,000 examples", "n": options.rows, "methods": summary}))


if __name__ == "__main__":
    main()
