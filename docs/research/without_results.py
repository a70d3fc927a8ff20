"""How many questions a trained model answers with functional tokens alone (paper 3.4, ">70 %").

    python -m docs.research.without_results RUN [--method cirf_full] [--limit 200] [--json]

It asks the model of a run's method the test questions and as many training questions twice, with results and without.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.commands.run import open_context
from cirf.distributed import ALONE
from cirf.errors import CirfError
from cirf.methods import get
from cirf.recipe.load import open_run
from cirf.recipe.schema import Evaluate, Recipe, Variant
from cirf.records import Problem
from cirf.stages.context import Context
from cirf.stages.lineage import model_hash
from cirf.stages.models import release, source_of
from cirf.stages.scores import answer
from cirf.store.files import hash_json, load_object, to_json, write_atomic
from cirf.store.paths import user_path

SPLITS = ("train", "test")


def without_results(folder: Path, name: str, limit: int, as_json: bool = False) -> None:
    """Ask the model of a run's method ``limit`` training questions a task, drawn by the seed, and as many test questions, the
    first ones, greedily: as usual, and with results forbidden; print the accuracies.

    Answers are kept in ``evaluations/without-results-METHOD-HASH`` of the run, one folder a model and ``limit``; existing ones
    are not repeated. ``CirfError`` where the method writes no results, or its model or the problems are not there.
    """
    recipe = open_run(folder)
    bare = f"{name}_without_results"
    context = open_context(_with_bare(recipe, name, bare), folder, quiet=True)
    source = user_path(str(source_of(context, name)))
    if not (source / "config.json").is_file():
        raise CirfError(f"{source}: the model of {name} is not trained yet; finish the run, or name another with --method")
    if not (folder / "problems" / "train.jsonl").is_file():
        raise CirfError(f"{folder}/problems: the rows are missing; run `cirf run` with its recipe first")
    section = recipe.evaluate.model_copy(update={"temperature": 0.0, "runs": 1})
    first = {task: rows[:limit] for task, rows in context.test().items()}
    questions = {"train": _drawn(context.train(), recipe, limit), "test": first}
    caps = section.model_dump(include={*get(name, recipe).caps, "max_completion_tokens"})
    mark = hash_json([model_hash(str(source)), limit, recipe.seed, caps])[:8]
    out = folder / "evaluations" / f"without-results-{name}-{mark}"
    shares = load_object(out / "shares.json")
    if shares is None:
        shares = {
            "method": name,
            **{split: _shares(context, (name, bare), section, questions[split], out / split) for split in SPLITS},
        }
        write_atomic(out / "shares.json", to_json(shares))
        release(context)
    if as_json:
        print(json.dumps(shares, indent=2))
    else:
        for split in SPLITS:
            print(_sentence(split, shares[split]))
        print(f"answers: {out}")


def _with_bare(recipe: Recipe, name: str, bare: str) -> Recipe:
    """The recipe with the method once more, its results forbidden when it answers."""
    method = get(name, recipe)
    if not method.functional or "results" not in type(method.settings).model_fields or not method.settings.results:
        able = [other for other in recipe.methods if get(other, recipe).functional]
        raise CirfError(
            f"--method {name}: writes no functional tokens with results; name one that does"
            + (f" ({', '.join(able)})" if able else "")
        )
    own, root = recipe.variants.get(name, Variant()), name
    while own.reward is not None:  # its method is another's, under another name
        root = str(own.method)
        own = recipe.variants.get(root, Variant())
    settings = method.settings.model_dump(mode="json", exclude_unset=True) | {"results": False}
    variant = own.model_copy(update={"method": own.method or root, "model": method.learner, "settings": settings})
    return recipe.model_copy(update={"methods": (name, bare), "variants": {**recipe.variants, bare: variant}})


def _drawn(problems: Sequence[Problem], recipe: Recipe, limit: int) -> dict[str, list[Problem]]:
    tasks: dict[str, list[Problem]] = {}
    for problem in problems:
        tasks.setdefault(problem.task, []).append(problem)
    return {
        task: random.Random(f"without results {recipe.seed} {task}").sample(rows, min(limit, len(rows)))
        for task, rows in tasks.items()
    }


def _shares(
    context: Context, names: tuple[str, str], section: Evaluate, asked: Mapping[str, Sequence[Problem]], out: Path
) -> dict[str, Any]:
    if not any(asked.values()):
        return {}
    found = {}
    for how, name in zip(("with", "without"), names, strict=True):
        scores = answer(context, name, section, asked, out / how, ALONE)
        found[how] = {**scores.overall.to_dict(), "tasks": {task: one.to_dict() for task, one in scores.tasks.items()}}
    return found


def _sentence(split: str, summary: Mapping[str, Any]) -> str:
    if not summary:
        return f"{split}: no questions"
    alone, both = summary["without"], summary["with"]
    low, high = alone["interval"]
    return (
        f"{split}: {alone['accuracy']:.1%} right with functional tokens alone (95 % interval {low:.1%} to {high:.1%}, "
        f"n = {alone['n']:,}); {both['accuracy']:.1%} with results"
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("--method", default="cirf_full", help="the method whose model answers")
    parser.add_argument("--limit", type=int, default=200, help="most questions a task and split")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    without_results(options.run, options.method, options.limit, options.json)


if __name__ == "__main__":
    main()
