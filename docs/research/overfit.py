"""Check that a method memorises a few rows: train on them, then ask their questions.

    python -m docs.research.overfit RECIPE --data DIR --out DIR [--method sft_cot] [--task svamp] [--rows 64] [--epochs 20]

A model that cannot reproduce its training rows points to a fault in rows, loss, saving or decoding, which accuracy on other
questions does not show. The recipe's backbone and settings are used, except for the rows (``--rows`` of one task, none held out),
the epochs and ``--set``. `cirf run` trains, saves and reloads the model, and resumes after a kill. Answers are written to
``DIR/overfit``. The last line is JSON: ``ours`` is the accuracy on the training questions, ``peer`` that of the untrained
backbone with ``--untrained``.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path as File
from typing import Any


def answered(context: Any, name: str, recipe: Any) -> dict[str, Any]:
    """Ask a method the questions of its training rows; the score as a dictionary."""
    from cirf.methods import get
    from cirf.stages import scores
    from cirf.stages.context import Context

    class OwnRows(Context):
        def test(self) -> Any:
            taught = {example.problem.id for example in self.examples(trained)[0]}
            kept = [problem for problem in self.train() if problem.id in taught]
            return {name: [problem for problem in kept if problem.task == name] for name in self.tasks}

    trained = get(recipe.methods[0], recipe)
    own = OwnRows(recipe, context.folder, context.progress, context.loaded)
    work = context.folder.root / "overfit" / name
    shutil.rmtree(work, ignore_errors=True)  # answers of a model with other training settings
    work.mkdir(parents=True)
    scores.evaluate(own, name, recipe.evaluate, work)
    found: dict[str, Any] = json.loads((work / "scores.json").read_text())["overall"]
    return found


def main() -> None:
    """Train, ask, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=File, required=True)
    parser.add_argument("--method", default="sft_cot")
    parser.add_argument("--task", default="svamp")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--epochs", type=float, default=20.0)
    parser.add_argument("--untrained", action="store_true", help="ask the backbone (method cot) the same questions")
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE")
    options = parser.parse_args()

    from cirf.commands.run import open_context
    from cirf.recipe.load import load
    from cirf.run import execute
    from cirf.stages import models

    task = {"task": options.task, "rows": options.rows, "test": 1}
    sets = [f"problems.tasks={json.dumps([task])}", f"problems.data={options.data}", "problems.validation=0"]
    sets += [f"methods=[{options.method}]", f"finetune.epochs={options.epochs}", "evaluate.latency_questions=0", *options.sets]
    recipe = load(options.recipe, sets)
    context = open_context(recipe, options.out.resolve(), False)
    execute(context, "models", print)
    rows = {options.method: answered(context, options.method, recipe)}
    if options.untrained:
        rows["cot"] = answered(context, "cot", recipe)
    models.release(context)
    print(f"\n{'':16}{'right':>7}{'95 % interval':>17}{'n':>5}{'tokens':>8}{'truncated':>11}")
    for name, row in rows.items():
        low, high = row["interval"]
        print(f"{name:16}{row['accuracy']:7.1%}{low:9.1%} -{high:6.1%}{row['n']:5}{row['tokens']:8.1f}{row['truncated']:11.1%}")
    ours, peer = rows[options.method]["accuracy"], rows["cot"]["accuracy"] if options.untrained else None
    summary = {"benchmark": "overfit", "method": options.method, "ours": ours, "peer": peer}
    summary |= {"ratio": round(ours / peer, 2) if peer else None, "unit": "accuracy on its own training questions"}
    print(json.dumps(summary | {"n": rows[options.method]["n"], "epochs": options.epochs}))


if __name__ == "__main__":
    main()
