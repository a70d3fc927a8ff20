"""From a model to accuracy, in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from cirf.distributed import Share
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe import Evaluate
from cirf.records import Problem
from cirf.stages import openings
from cirf.stages.context import Context
from cirf.stages.models import load_for, source_of

if TYPE_CHECKING:
    from cirf.evaluation.harness import Scores


def evaluate(context: Context, name: str, section: Evaluate, work: Path) -> dict[str, Any]:
    """Answer every test question in padded batches as ``section`` says, and judge the answers (paper A.2, inference settings).
    Processes share the batches."""
    scores, number = answer(context, name, section, context.test(), work, Share.of_launch())
    rounded = ["answered with weights in int8 (evaluate.weights), not as they are saved"]
    notes = [
        *get(name, context.recipe).caveats(),
        *(rounded if context.recipe.evaluate.weights == "int8" else ()),
    ]
    return {"rows": scores.overall.n, "notes": notes, "computed_in": number}


def answer(
    context: Context, name: str, section: Evaluate, problems: Mapping[str, Sequence[Problem]], work: Path, share: Share
) -> tuple[Scores, str]:
    """Ask the model that answers for a method the ``problems`` of each task; rows and scores lie in ``work``, and the number
    format that it computes in is told."""
    from cirf.evaluation.harness import evaluate
    from cirf.lm import backbone, decode

    model, tokenizer = load_for(context, name)
    method = get(name, context.recipe)
    prefixes = openings.beginnings(method, context.tasks, model, tokenizer, source_of(context, name))
    steer = method.steer(model, tokenizer)

    def generate(prompts: list[str], cap: int, run: int) -> list[decode.Output]:
        seed = context.recipe.seed if run == 0 else Random(f"{context.recipe.seed} {run}").getrandbits(31)
        how = (cap, section.temperature, section.top_p, seed, section.batch_size)
        return decode.generate(model, tokenizer, prompts, *how, prefixes=prefixes, steer=steer)

    scores = evaluate(
        method,
        context.tasks,
        problems,
        generate,
        partial(backbone.prompt_text, tokenizer),
        section,
        work,
        context.progress if share.main else SILENT,
        share,
    )
    return scores, str(model.dtype).removeprefix("torch.")
