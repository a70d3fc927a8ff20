"""``check``: what a set of questions and rationales is worth, before any training."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.commands.running import with_data
from cirf.errors import CirfError
from cirf.rationales.collect import unmatched
from cirf.recipe import Recipe
from cirf.recipe_io import load, parse
from cirf.rows import by_reason
from cirf.user_paths import user_path

if TYPE_CHECKING:
    from cirf.fitting import Updates
    from cirf.rationales.check import TaskCheck
    from cirf.records import Problem

_MOSTLY_EMPTY = 0.8


def check(source: str, sets: Sequence[str], data: Path | None, as_json: bool) -> None:
    """Go through a JSONL file, a mirror folder or the data of a recipe, as a run would, and print what it finds.

    Of a file or folder every row is looked at; rows that cannot be used are counted by reason. ``CirfError`` if none is left.
    """
    from cirf.rationales.check import check as look
    from cirf.tasks import resolve
    from cirf.tasks.load import load_problems
    from cirf.tasks.unusable import Tolerance

    recipe = with_data(_recipe_of(source, sets), data)
    count, counted_by = token_counter(recipe)
    allowed = recipe.problems.unusable
    asked, worked = Tolerance(allowed, looking=True), Tolerance(allowed, looking=True)  # files of questions, and of rationales
    problems = load_problems(recipe.problems, recipe.seed, asked, whole=_is_file(source))
    tasks = resolve(recipe.problems, lenient=True)
    training = [*problems.train, *problems.validation]
    found = look(training, recipe.rationales, recipe.segments, recipe.results, tasks, count, recipe.problems.data, worked)
    made: dict[str, Any] = {"source": source, "tokens_counted_by": counted_by, "problems": problems.report} | found.to_dict()
    made["answers"] = {name: task.answer for name, task in tasks.items()}
    files = [*asked.files, *worked.files]
    made["refused"] = by_reason([error for file in files for error in file.errors])
    made["unusable"] = [
        file.to_dict() | {"share": file.share, "stops": file.stops(allowed), "told": file.predicted(allowed)} for file in files
    ]
    made["updates"] = _updates(recipe, problems.train, problems.validation, found.total, _is_file(source)).to_dict()
    made["notes"] = _notes(made, recipe)
    if as_json:
        print(json.dumps(made, indent=2, ensure_ascii=False))
    else:
        _print(made)
    if not found.total.usable:
        reasons = {reason: each["rows"] for reason, each in made["refused"].items()} | made["problems"]["dropped"]
        counts = "; ".join(f"{count}: {reason}" for reason, count in (reasons | found.total.unusable).items())
        raise CirfError(f"{source}: no usable row ({counts or 'there is none'})")


def _updates(recipe: Recipe, train: Sequence[Problem], validation: Sequence[Problem], found: TaskCheck, whole: bool) -> Updates:
    """The updates that the usable rows make, without the held-out ones, and of a ``whole`` file without the test cut from it."""
    from cirf.fitting import updates_of
    from cirf.fitting.choices import suited
    from cirf.tasks.load import cut_of

    learnt = len(train) / max(1, len(train) + len(validation))
    usable = found.usable - (cut_of(found.usable) if whole and found.usable > 1 else 0)
    rows = round(learnt * usable)
    return updates_of(suited(recipe.finetune, rows) if whole else recipe.finetune, rows)


def _is_file(source: str) -> bool:
    return source.endswith((".jsonl", ".json"))


def _recipe_of(source: str, sets: Sequence[str]) -> Recipe:
    """The recipe to check by: the one named, or the defaults with a file's or a folder's data, with the overrides."""
    path = user_path(source)
    if path.is_dir():
        made = _of_folder(path)
    elif _is_file(source):
        made = {"problems": {"tasks": [{"task": "jsonl", "train_file": source}]}}
    else:
        return load(source, sets)
    return parse(json.dumps({"name": "check"} | made, ensure_ascii=False), source, sets)


def _of_folder(folder: Path) -> dict[str, Any]:
    """The published tasks whose training files a mirror folder holds, with the rationale files in it."""
    from cirf.tasks import get, names
    from cirf.tasks.sources import mirror_paths

    learnt = {name: get(name) for name in names() if get(name).hub is not None and not get(name).evaluation_only}
    there = [name for name, task in learnt.items() if all(p.is_file() for p in mirror_paths(task, str(folder), "train").values())]
    if not there:
        wanted = ", ".join(str(path) for task in learnt.values() for path in mirror_paths(task, "", "train").values())
        raise CirfError(f"{folder}: holds no task's training file ({wanted}); for a file of your own, name the file")
    files = [str(path) for path in sorted((folder / "rationales").glob("*.jsonl"))]
    return {"problems": {"data": str(folder), "tasks": [{"task": name} for name in there]}, "rationales": {"files": files}}


def token_counter(recipe: Recipe) -> tuple[Callable[[str], int], str]:
    """Tokens of a text by the backbone's tokenizer where it is on this machine; else words and marks, which are near it."""
    from cirf.assets import listing, resolve

    model, bundled = recipe.backbone.model, listing()
    elsewhere = not model.startswith(("bundled:", ".", "/", "~")) and not Path(model).exists()  # a hub id: not fetched for this
    if elsewhere or bundled.get(model, "").startswith("not fetched"):
        piece = re.compile(r"\d|\w+|[^\w\s]")
        return (lambda text: len(piece.findall(text))), f"words, digits and marks ({model} is not on this machine)"
    from cirf.lm.backbone import load_tokenizer

    tokenizer = load_tokenizer(resolve(model), recipe.backbone)
    return (lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])), model


def _notes(made: dict[str, Any], recipe: Recipe) -> list[str]:
    """What a user should know before going on."""
    notes = list(made["problems"]["warnings"])
    for name, counts in made["problems"]["tasks"].items():
        if counts["test"]:
            notes.append(f"{name}: {counts['test']:,} test rows are set aside and not counted here")
    notes += unmatched(made["collection"])
    for name, row in made["tasks"].items():
        if row["usable"] and row["share_results_empty"] > _MOSTLY_EMPTY and recipe.results.by != "none":
            share = f"{row['share_results_empty']:.0%} of the steps have no result"
            notes.append(f"{name}: {share}, so a trace says little; let the steps say what they find, or set results.by=file")
    return notes


def _print(made: dict[str, Any]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("task")
    titles = ("answers", "problems", "usable", "segmentable", "steps a row", "empty results", "rationale", "trace", "speed-up")
    for title in titles:
        table.add_column(title, justify="right")
    rows = made["tasks"] | ({"all": made["total"]} if len(made["tasks"]) > 1 else {})
    for name, row in rows.items():
        steps = f"{row['steps']['mean']:.1f}" if row["steps"] and row["usable"] else "-"
        sizes = ("-", "-", "-")
        if row["usable"]:
            sizes = (f"{row['rationale_tokens']:.0f}", f"{row['trace_tokens']:.0f}", f"{row['speedup']:.1f}x")
        empty = f"{row['share_results_empty']:.1%}" if row["usable"] else "-"
        counts = (f"{row['problems']:,}", f"{row['usable']:,}", _share(row["share_segmentable"]))
        table.add_row(name, made["answers"].get(name, ""), *counts, steps, empty, *sizes)
    Console(width=120).print(table)
    for file in made["unusable"]:
        print(file["told"])
    for name, row in made["tasks"].items():
        for reason, count in row["unusable"].items():
            print(f"{name}: {count:,} not usable: {reason}")
    for reason, count in made["problems"]["dropped"].items():
        if reason in made["refused"]:
            continue  # told of with its file
        print(f"{count:,} questions dropped: {reason}")
    for train, test in made["problems"]["leaks"][:5]:
        print(f"leak: {train} has the question of {test}; dropped from training")
    for note in made["notes"]:
        print(f"note: {note}")
    if made["total"]["share_segmentable"] is None:
        print("there is no rationale to cut; add `rationale` to the rows, or name files with these questions in rationales.files")
    else:
        share = 1 - made["total"]["share_segmentable"]
        print(f"rationales that do not fit the segmentation: {share:.1%} (the paper drops {made['paper_share_dropped']:.1%})")
        if made["updates"]["rows"]:
            print(made["updates"]["told"])
    print(f"tokens counted by {made['tokens_counted_by']}; the speed-up is the ratio of tokens to generate, not a measured time")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
