"""Votes of a model, and answers by majority."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.evaluation.harness import Output
from cirf.evaluation.self_consistency import (
    Draw,
    Sampler,
    VotedQuestion,
    VoteSource,
    answered_alone,
    curve,
    draw_votes,
    request_votes,
)
from cirf.methods import get
from cirf.recipe.schema import Recipe
from cirf.records import Problem
from cirf.stages import keys, scores
from cirf.stages.context import Context
from cirf.stages.models import load_for, source_of, tokenizer_for
from cirf.store.files import hash_json, to_json, write_atomic
from cirf.store.run_folder import StagePlan

if TYPE_CHECKING:
    from cirf.evaluation.engines import VllmEngine
    from cirf.methods.base import Method

_PROSE = ("sft_cot", "cot")


def compared_with(recipe: Recipe) -> str | None:
    """The method whose one answer votes are compared with: the recipe's chain-of-thought, the trained one first; ``None`` where
    there is none."""
    return next((name for name in _PROSE if name in recipe.methods and name != recipe.evaluate.voting.method), None)


def _test(context: Context) -> dict[str, list[Problem]]:
    return {name: rows[: context.recipe.evaluate.voting.problems] for name, rows in context.test().items() if rows}


def drawing(context: Context, name: str, answering: StagePlan | str | None, work: Path) -> dict[str, Any]:
    """Draw the votes of a method, as many as its largest number asks for, or take those that were drawn before. ``answering``:
    the model, ``None`` where a server answers."""
    from cirf.lm import backbone

    recipe, section = context.recipe, context.recipe.evaluate.voting
    method, test = get(name, recipe), _test(context)
    vote_source = VoteSource(method, context.tasks, recipe.evaluate)
    if answering is None:
        sampling = recipe.evaluate.model_copy(update={"temperature": section.temperature, "top_p": section.top_p})
        server = scores.server_of(recipe.evaluate, name)
        log = context.asked(f"served-votes-{name}-{hash_json(server)[:8]}")  # for another may serve other weights by that name
        generate = scores.served(context, method, sampling, log, context.progress)
        failed = request_votes(vote_source, generate, test, max(section.votes), work)
        warning = [f"WARNING: {failed:,} votes were not given by the server and count as unparsed"] if failed else []
        notes = [f"answered by {server}", *warning]
        return {"rows": sum(map(len, test.values())), "notes": notes}
    how = keys.drawn(recipe, method) | {
        "model": answering if isinstance(answering, str) else context.folder.content(answering.name)
    }
    log = context.asked(f"votes-{name}")
    with scores.vllm_of(context, method, recipe.evaluate) as running:
        draw = _by_transformers(context, method) if running is None else _by_vllm(context, running)
        sampler = Sampler(draw, partial(backbone.prompt_text, tokenizer_for(context, name)), how)
        return {"rows": draw_votes(vote_source, sampler, test, max(section.votes), log, work, context.progress)}


def _by_transformers(context: Context, method: Method) -> Draw:
    """Draws votes with the run's model: of a rendered prompt and a cap, the votes from a first one on."""
    from cirf.lm.decoding import generate as decode

    section = context.recipe.evaluate.voting
    model, tokenizer = load_for(context, method.name)
    prefixes = scores.beginnings(method, context.tasks, model, tokenizer, source_of(context, method.name))
    steer = method.steer(model, tokenizer)
    decoding = decode.Decoding(section.temperature, section.top_p, context.recipe.seed, prefixes, steer)

    def draw(prompt: str, cap: int, first: int, count: int) -> Sequence[Output]:
        return decode.sample_many(model, tokenizer, prompt, cap, count, decoding, first)

    return draw


def _by_vllm(context: Context, running: VllmEngine) -> Draw:
    """The same with vLLM, which computes a prompt once for all of its votes."""
    section, seed = context.recipe.evaluate.voting, context.recipe.seed

    def draw(prompt: str, cap: int, first: int, count: int) -> Sequence[Output]:
        votes = range(first, first + count)
        return running.generate([prompt] * count, cap, section.temperature, section.top_p, seed, votes)

    return draw


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
    found: dict[str, Any] = {"method": name, "against": other}
    if name in recipe.evaluate.endpoints:
        found["engine"] = scores.server_of(recipe.evaluate, name)
    if failed := sum("failed" in vote for item in items for vote in item.votes):
        found["failed"] = failed
    found["curve"] = curve(items, section.votes)
    if other is not None:
        found["alone"] = answered_alone([item.alone for item in items if item.alone is not None])
    write_atomic(work / "voting.json", to_json(found))
    return {"rows": len(items)}
