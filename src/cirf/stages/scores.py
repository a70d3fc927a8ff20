"""From a model to numbers: accuracy in batches, latency one question at a time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from cirf.methods import get
from cirf.recipe import Evaluate
from cirf.stages.context import Context
from cirf.stages.models import load_for
from cirf.store import to_json, write_atomic


def evaluate(context: Context, name: str, section: Evaluate, work: Path) -> dict[str, Any]:
    """Answer every test question in padded batches as ``section`` says, and judge the answers (paper A.2, inference settings)."""
    from cirf.evaluation.harness import evaluate
    from cirf.lm import backbone, decode

    model, tokenizer = load_for(context, name)

    def generate(prompts: list[str], cap: int, run: int) -> list[decode.Output]:
        seed = context.recipe.seed if run == 0 else Random(f"{context.recipe.seed} {run}").getrandbits(31)
        return decode.generate(model, tokenizer, prompts, cap, section.temperature, section.top_p, seed, section.batch_size)

    scores = evaluate(
        get(name, context.recipe),
        context.tasks,
        context.test(),
        generate,
        partial(backbone.prompt_text, tokenizer),
        section,
        work,
        context.progress,
    )
    return {"rows": scores.overall.n}


def latency(context: Context, name: str, work: Path) -> dict[str, Any]:
    """Time single questions from prompt to last token."""
    import torch
    import transformers

    from cirf.environment import processor
    from cirf.evaluation.latency import measure
    from cirf.lm import backbone, decode

    section = context.recipe.evaluate
    model, tokenizer = load_for(context, name)

    def generate_one(prompt: str, cap: int) -> decode.TimedOutput:
        return decode.generate_one(model, tokenizer, prompt, cap, section.temperature, section.top_p, context.recipe.seed)

    timings = measure(
        get(name, context.recipe),
        context.tasks,
        context.test(),
        generate_one,
        partial(backbone.prompt_text, tokenizer),
        section,
        context.recipe.seed,
        context.progress,
        work=work,
        engine=f"transformers {transformers.__version__}",
        device=f"{model.device} ({processor(str(model.device))}), {torch.get_num_threads()} threads",
    )
    write_atomic(work / "timings.json", to_json(timings))
    return {"rows": timings["overall"]["n"]}
