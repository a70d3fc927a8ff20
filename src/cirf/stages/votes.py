"""From a model to answers by majority, and their seconds."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.evaluation.harness import Row, hide
from cirf.evaluation.statistics import mean, percentile
from cirf.evaluation.voting import Asked, collect_votes, curve, share_of, time_votes
from cirf.methods import get
from cirf.records import Problem
from cirf.stages.context import Context
from cirf.stages.models import load, load_for, source_of
from cirf.stages.timing import facts
from cirf.store import to_json, write_atomic


def _test(context: Context) -> dict[str, list[Problem]]:
    return {name: rows[: context.recipe.evaluate.voting.problems] for name, rows in context.test().items() if rows}


def _asked(context: Context, name: str) -> Asked:
    from cirf.lm import backbone, decode

    section = context.recipe.evaluate
    model, tokenizer = load_for(context, name)

    def draw(prompt: str, cap: int, count: int) -> list[decode.Output]:
        voting = section.voting
        return decode.sample_many(model, tokenizer, prompt, cap, count, voting.temperature, voting.top_p, context.recipe.seed)

    return Asked(get(name, context.recipe), context.tasks, draw, partial(backbone.prompt_text, tokenizer), section)


def voting(context: Context, name: str, work: Path) -> dict[str, Any]:
    """Draw the votes, find what 1, 2, ... of them answer; ``voting.json`` holds the curve."""
    asked, test = _asked(context, name), _test(context)
    fallback = context.recipe.evaluate.voting.fallback
    others: dict[tuple[str, str], Row] = {}
    if fallback is not None:
        for task in test:
            for row in context.rows(f"evaluation/{fallback}", f"{task}.jsonl"):
                others.setdefault((task, row["id"]), row)  # the first run
    tables = collect_votes(asked, test, others, work, context.progress)
    found: dict[str, Any] = {"method": name, "fallback": fallback, "curve": curve(asked, test, tables)}
    if others:
        alone = [row["fallback"] for rows in tables.values() for row in rows]
        found["alone"] = share_of([row["correct"] for row in alone])
        found["alone"] |= {
            "unparsed": mean([row["parsed"] is None for row in alone]),
            "tokens": mean([r["tokens"] for r in alone]),
        }
    write_atomic(work / "voting.json", to_json(found))
    return {"rows": sum(map(len, tables.values()))}


def latency(context: Context, name: str, work: Path) -> dict[str, Any]:
    """Time answers by majority one question at a time, the fallback on the same questions in turn; ``timings.json``."""
    from cirf.evaluation.latency import draw
    from cirf.lm import backbone, decode

    section = context.recipe.evaluate
    asked = _asked(context, name)
    alone = None
    if section.voting.fallback is not None:
        method = get(section.voting.fallback, context.recipe)
        model, tokenizer = load(context, source_of(context, method.name))

        def alone(task: str, problem: Problem) -> float:
            prompt = backbone.prompt_text(tokenizer, method.prompt(hide(problem), context.tasks[task]))
            cap = method.cap(context.tasks[task], section)
            return decode.generate_one(model, tokenizer, prompt, cap, seed=context.recipe.seed).seconds

    items = {task: draw(task, rows, section.latency_items, context.recipe.seed) for task, rows in _test(context).items()}
    rows = time_votes(asked, items, alone, time.perf_counter, work, context.progress)
    if not rows:
        raise CirfError("evaluate.voting: there is no test problem to time")
    write_atomic(work / "timings.json", to_json({**facts(context), "n": len(rows), "votes": _summarise(rows), "rows": rows}))
    return {"rows": len(rows)}


def _summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for count in [point["votes"] for point in rows[0]["times"]]:
        times = [timed for row in rows for timed in row["times"] if timed["votes"] == count]
        seconds = [timed["seconds"] for timed in times]
        point = {"votes": count, "mean_s": mean(seconds), "p50_s": percentile(seconds, 50), "p95_s": percentile(seconds, 95)}
        if "with_fallback" in times[0]:
            point["with_fallback_mean_s"] = mean([timed["with_fallback"] for timed in times])
        found.append(point)
    return found
