"""Votes of a model, answers by majority, and their seconds."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from cirf.evaluation.self_consistency import VotedQuestion, VoteSource, answered_alone, curve, draw_votes
from cirf.methods import get
from cirf.recipe.schema import Recipe
from cirf.records import Problem
from cirf.stages import keys, scores
from cirf.stages.context import Context
from cirf.stages.models import load_for, source_of
from cirf.stages.timing import LoadedModels, written
from cirf.store.files import to_json, write_atomic
from cirf.store.run_folder import StagePlan

_PROSE = ("sft_cot", "cot")


def compared_with(recipe: Recipe) -> str | None:
    """The method whose one answer votes are compared with: the fallback, else the recipe's chain-of-thought, the trained one
    first; ``None`` where there is none."""
    section = recipe.evaluate.voting
    prose = (name for name in _PROSE if name in recipe.methods and name != section.method)
    return section.fallback or next(prose, None)


def _test(context: Context) -> dict[str, list[Problem]]:
    return {name: rows[: context.recipe.evaluate.voting.problems] for name, rows in context.test().items() if rows}


def drawing(context: Context, name: str, answering: StagePlan | str, work: Path) -> dict[str, Any]:
    """Draw the votes of a method, as many as its largest number asks for, or take those that were drawn before."""
    from cirf.lm import backbone
    from cirf.lm.decoding import generate as decode

    recipe, section = context.recipe, context.recipe.evaluate.voting
    model, tokenizer = load_for(context, name)
    method = get(name, recipe)
    prefixes = scores.beginnings(method, context.tasks, model, tokenizer, source_of(context, name))
    steer = method.steer(model, tokenizer)
    decoding = decode.Decoding(section.temperature, section.top_p, recipe.seed, prefixes, steer)

    def draw(prompt: str, cap: int, first: int, count: int) -> list[decode.Output]:
        return decode.sample_many(model, tokenizer, prompt, cap, count, decoding, first)

    vote_source = VoteSource(method, context.tasks, draw, partial(backbone.prompt_text, tokenizer), recipe.evaluate)
    how = keys.drawn(recipe, method) | {
        "model": answering if isinstance(answering, str) else context.folder.content(answering.name)
    }
    log = context.asked(f"votes-{name}")
    return {"rows": draw_votes(vote_source, _test(context), max(section.votes), how, log, work, context.progress)}


def voting(context: Context, name: str, work: Path) -> dict[str, Any]:
    """Find the majority answers of 1, 2, ... votes; ``voting.json`` holds the curve. No model is needed."""
    recipe, section = context.recipe, context.recipe.evaluate.voting
    other = compared_with(recipe)
    items = []
    for task, problems in _test(context).items():
        alone: dict[str, Any] = {}
        for row in context.rows(f"evaluation/{other}", f"{task}.jsonl") if other else ():
            alone.setdefault(row["id"], row)  # the first run
        drawn = {row["id"]: row["votes"] for row in context.rows(f"votes/{name}", f"{task}.jsonl")}
        items += [VotedQuestion(task, context.tasks[task], p, drawn[p.id], alone[p.id] if other else None) for p in problems]
    agreement = section.agreement if section.fallback else None
    found: dict[str, Any] = {"method": name, "against": other, "fallback": section.fallback, "agreement": agreement}
    found["curve"] = curve(items, section.votes, agreement)
    if other is not None:
        found["alone"] = answered_alone([item.alone for item in items if item.alone is not None])
    write_atomic(work / "voting.json", to_json(found))
    return {"rows": len(items)}


def latency(context: Context, name: str, work: Path) -> dict[str, Any]:
    """Time answers by majority one question at a time, the answer they are compared with in turn; ``timings.json``.

    That answer is drawn as the evaluation draws it: greedily, or sampled where the recipe samples.
    """
    from cirf.evaluation.harness import Questions
    from cirf.evaluation.self_consistency import ALONE, VoteTiming, measure

    recipe, section = context.recipe, context.recipe.evaluate
    other = compared_with(recipe)
    counts = sorted(set(section.voting.votes))
    turns = {str(count): name for count in counts} | ({ALONE: other} if other else {})
    bench = LoadedModels(context, turns)
    timings = measure(
        VoteTiming(get(name, recipe), get(other, recipe) if other else None, counts),
        Questions(context.tasks, _test(context)),
        bench,
        section,
        recipe.seed,
        context.progress,
        work,
    )
    bench.release()
    return written(timings, work)
