"""Which K (``codebook.size: auto``): short fine-tunings with codebooks of several sizes, judged by answers to held-out questions.

The paper chooses K "based on the validation accuracy" (A.2). No test question is read here.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cirf.distributed import Share, is_main, settled
from cirf.errors import CirfError
from cirf.methods import SCORED_BY, get
from cirf.recipe.schema import Finetune, Recipe
from cirf.stages import data, models, scores
from cirf.stages.context import Context
from cirf.store.files import to_json, write_atomic

CHOICE = "codebook-size"
"""The stage that chooses."""


def traces(context: Context, size: int, work: Path) -> dict[str, Any]:
    """The functional form of every solution by the codebook of one size."""
    return data.traces(replace(context, recipe=with_size(context.recipe, size)), work)


def trial(context: Context, size: int, work: Path) -> dict[str, Any]:
    """Fine-tune `SCORED_BY` for a few updates with K = ``size``, let it answer the first held-out questions greedily, and keep
    their rows and ``scores.json``; its model is thrown away. ``CirfError`` where no question is held out, or the training
    diverges."""
    from cirf.lm.training.trainer import Diverged

    recipe = with_size(context.recipe, size)
    budget = recipe.codebook.size_trials
    held_out = context.validation()[: budget.questions]
    if not held_out:
        raise CirfError("codebook.size: auto, but no question is held out to choose by; raise problems.validation or give a size")
    models.release(context)
    here = replace(context, recipe=recipe, loaded={}, traced=traced(size))
    model = work / "scratch" / "model"
    if not settled(lambda: (model / "functions.json").is_file()):  # the file written last
        method = get(SCORED_BY, recipe)
        short = _short(recipe, len(here.examples(method)[0]), budget.steps)
        try:
            models.finetune(here, SCORED_BY, short, model, f"{SCORED_BY}/K={size}", trial=True)
        except Diverged as error:
            raise CirfError(f"codebook.size: the trial of {size} diverged ({error}); lower finetune.learning_rate") from None
    if is_main():
        shutil.copyfile(model / "history.json", work / "history.json")
    answering = replace(here, recipe=recipe.model_copy(update={"models": {SCORED_BY: str(model)}}), loaded={})
    section = recipe.evaluate.model_copy(update={"temperature": 0.0, "runs": 1})
    asked = {task: [problem for problem in held_out if problem.task == task] for task in context.tasks}
    asked = {task: problems for task, problems in asked.items() if problems}
    found = scores.answer(answering, SCORED_BY, section, asked, work / "answers", Share.of_launch())
    models.release(answering)
    return {"rows": found.overall.n}


def choose(context: Context, sizes: Sequence[int], work: Path) -> dict[str, Any]:
    """The size whose trial answered most held-out questions rightly, the smallest of equal ones: ``sizes.json`` with all."""
    rows = []
    for size in sorted(sizes):
        overall = context.report(f"sized/{size}", "answers/scores.json")["overall"]
        rows.append({"size": size} | {name: overall[name] for name in ("accuracy", "interval", "n", "tokens", "unparsed")})
    best = max(rows, key=lambda row: row["accuracy"])
    write_atomic(work / "sizes.json", to_json({"chosen": best["size"], "sizes": rows}))
    curve = ", ".join(f"K = {row['size']}: {row['accuracy']:.1%}" for row in rows)
    low, high = best["interval"]
    note = f"K = {best['size']} of {curve} right of {best['n']} held-out questions (its 95 % interval {low:.1%} to {high:.1%})"
    return {"rows": len(rows), "notes": [note]}


def chosen(context: Context) -> int:
    """The size that the finished stage chose."""
    return int(context.report(CHOICE, "sizes.json")["chosen"])


def with_size(recipe: Recipe, size: int) -> Recipe:
    """The recipe with K = ``size``."""
    return recipe.model_copy(update={"codebook": recipe.codebook.model_copy(update={"size": size, "chosen": True})})


def traced(size: int) -> str:
    """The stage of the traces by the codebook of one size."""
    return f"sized-traces/{size}"


def _short(recipe: Recipe, rows: int, steps: int) -> Finetune:
    """The training of a trial: ``steps`` updates, or the whole training where that has fewer."""
    method = get(SCORED_BY, recipe)
    whole = recipe.finetune.resolved(SCORED_BY, method.training).settled(rows)
    epochs = min(float(whole.epochs), steps / max(1, whole.an_epoch(rows)))
    return recipe.finetune.alone(SCORED_BY, whole.learning_rate, epochs)
