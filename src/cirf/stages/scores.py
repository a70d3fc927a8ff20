"""From a model to accuracy, in batches."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from cirf.distributed import Share
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe import Evaluate
from cirf.stages import openings
from cirf.stages.context import Context
from cirf.stages.models import load_for, source_of


def evaluate(context: Context, name: str, section: Evaluate, work: Path) -> dict[str, Any]:
    """Answer every test question in padded batches as ``section`` says, and judge the answers (paper A.2, inference settings).
    Processes share the batches."""
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

    share = Share.of_launch()
    scores = evaluate(
        method,
        context.tasks,
        context.test(),
        generate,
        partial(backbone.prompt_text, tokenizer),
        section,
        work,
        context.progress if share.main else SILENT,
        share,
    )
    number = str(model.dtype).removeprefix("torch.")
    rounded = ["answered with weights in int8 (evaluate.weights), not as they are saved"]
    notes = [*method.caveats(), *(rounded if context.recipe.evaluate.weights == "int8" else ())]
    return {"rows": scores.overall.n, "notes": notes, "computed_in": number}
