"""``check``: what a set of questions and rationales is worth, before any training."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cirf.commands.running import with_data
from cirf.recipe import Recipe
from cirf.recipe_io import load


def check(source: str, sets: Sequence[str], data: Path | None, as_json: bool) -> None:
    """Go through a JSONL file, or the data of a recipe, as a run would, and print what it finds."""
    from cirf.rationales.check import check as look
    from cirf.tasks import resolve
    from cirf.tasks.load import load_problems

    recipe = with_data(_recipe_of(source, sets), data)
    tasks = resolve(recipe.problems)
    problems = load_problems(recipe.problems, recipe.seed)
    count, counted_by = token_counter(recipe)
    training = [*problems.train, *problems.validation]
    found = look(training, recipe.rationales, recipe.segments, recipe.results, tasks, count, recipe.problems.data)
    made = {"source": source, "tokens_counted_by": counted_by, "problems": problems.report} | found.to_dict()
    if as_json:
        print(json.dumps(made, indent=2, ensure_ascii=False))
    else:
        _print(made)


def _recipe_of(source: str, sets: Sequence[str]) -> Recipe:
    if not source.endswith((".jsonl", ".json")):
        return load(source, sets)
    return Recipe.model_validate({"name": "check", "problems": {"tasks": [{"task": "jsonl", "train_file": source}]}})


def token_counter(recipe: Recipe) -> tuple[Callable[[str], int], str]:
    """Tokens of a text by the backbone's tokenizer where it is on this machine; else words and marks, which are near it."""
    from cirf.assets import listing, resolve

    model = recipe.backbone.model
    here = Path(model).expanduser().is_dir() or not listing().get(model, "not fetched").startswith("not fetched")
    if not here:
        piece = re.compile(r"\d|\w+|[^\w\s]")
        return (lambda text: len(piece.findall(text))), "words, digits and marks"
    from cirf.lm.backbone import load_tokenizer

    tokenizer = load_tokenizer(resolve(model), recipe.backbone)
    return (lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])), model


def _print(made: dict[str, Any]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("task")
    for title in ("problems", "usable", "segmentable", "steps a row", "empty results", "rationale", "trace", "speed-up"):
        table.add_column(title, justify="right")
    rows = made["tasks"] | ({"all": made["total"]} if len(made["tasks"]) > 1 else {})
    for name, row in rows.items():
        steps = f"{row['steps']['mean']:.1f}" if row["steps"] and row["usable"] else "-"
        sizes = (f"{row['rationale_tokens']:.0f}", f"{row['trace_tokens']:.0f}", f"{row['speedup']:.1f}x") if row["usable"] else ("-",) * 3
        segmentable = f"{row['share_segmentable']:.1%}"
        table.add_row(name, f"{row['problems']:,}", f"{row['usable']:,}", segmentable, steps, f"{row['share_results_empty']:.1%}", *sizes)
    Console(width=110).print(table)
    for name, row in made["tasks"].items():
        for reason, count in row["unusable"].items():
            print(f"{name}: {count:,} not usable: {reason}")
    for reason, count in made["problems"]["dropped"].items():
        print(f"{count:,} questions dropped: {reason}")
    for train, test in made["problems"]["leaks"][:5]:
        print(f"leak: {train} has the question of {test}; dropped from training")
    for warning in made["problems"]["warnings"]:
        print(f"note: {warning}")
    share = 1 - made["total"]["share_segmentable"]
    print(f"rationales that do not fit the segmentation: {share:.1%} (the paper drops {made['paper_share_dropped']:.1%})")
    print(f"tokens counted by {made['tokens_counted_by']}; the speed-up is the ratio of tokens to generate, not a measured time")
