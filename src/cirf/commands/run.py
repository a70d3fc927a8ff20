"""``run``, ``quickstart`` and ``report``."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from cirf.assets.hub_rows import pinned
from cirf.codebook.functions import functions_of
from cirf.commands.dry_run import estimate, print_estimate
from cirf.commands.show import status, up_to_date
from cirf.distributed import is_main, world_size
from cirf.errors import CirfError
from cirf.evaluation.protocols import by_protocol
from cirf.export.archive import find, readable
from cirf.methods import SCORED_BY, get, learners
from cirf.progress import for_terminal, print_table, write_line
from cirf.recipe.load import load, open_run
from cirf.recipe.schema import Recipe, Section, TaskEntry, Variant
from cirf.report.data.collect import collect
from cirf.report.data.measures import seen_before
from cirf.report.model_cards import card_from_report
from cirf.report.page import render
from cirf.run import asked_for, execute
from cirf.stages.context import Context
from cirf.stages.model_checks import check_backbone, check_saved
from cirf.stages.probes import check as check_probes
from cirf.store.files import to_json, write_changed
from cirf.store.hub_names import HubName, is_hub_name
from cirf.store.hub_names import parse as parse_hub_name
from cirf.store.integrity import check_model, check_results
from cirf.store.paths import user_path
from cirf.store.run_folder import RunFolder
from cirf.tasks import JSONL, OWN
from cirf.tasks import get as task_of
from cirf.tasks.loading.load import default_cut, source_files

S = TypeVar("S", bound=Section)
_FILES = ("train_file", "test_file")


def prepare(name: str, sets: Sequence[str], data: Path | None, out: Path | None, limit: int | None, quiet: bool) -> Context:
    recipe = resolved(load(name, sets), data, limit)
    return open_context(recipe, out or default_folder(recipe.name, limit), quiet)


def resolved(recipe: Recipe, data: Path | None, limit: int | None) -> Recipe:
    return limited(by_protocol(with_data(recipe, data)), limit)


def default_folder(name: str, limit: int | None) -> Path:
    return Path("runs") / (name if limit is None else f"{name}-limit-{limit}")


def open_context(recipe: Recipe, folder: Path, quiet: bool) -> Context:
    """A run of that recipe in that folder, ready to work; ``CirfError`` as ``checked``."""
    context = checked(recipe, folder, quiet)
    for model in (*context.recipe.models.values(), context.recipe.backbone.model):
        if Path(model).is_dir():
            check_model(Path(model).resolve(), context.progress)
    set_threads(recipe)
    return context


@cache
def _usual_threads() -> int:
    import torch

    return torch.get_num_threads()


def set_threads(recipe: Recipe) -> None:
    """Torch's threads as the recipe says; without the key, those before a recipe named a number, such as an earlier run's of a
    sweep."""
    if recipe.backbone.threads or _usual_threads.cache_info().currsize:
        usual = _usual_threads()
        import torch

        torch.set_num_threads(recipe.backbone.threads or usual)


def checked(recipe: Recipe, folder: Path, quiet: bool) -> Context:
    """A run of that recipe in that folder; ``CirfError`` for errors that can be detected before any work."""
    recipe = absolute(recipe, read_before(folder))
    for method in (*recipe.methods, *recipe.variants):
        get(method, recipe)  # an unknown method is reported before any work
    learners(recipe)
    check_probes(recipe)
    for method in recipe.finetune.overrides:
        if not get(method, recipe).trained:
            raise CirfError(f"finetune.overrides.{method}: {method} is not trained; remove the key")
        if get(method, recipe).reward is not None:
            raise CirfError(f"finetune.overrides.{method}: it is trained by reward; set variants.{method}.reward")
        if (learner := get(method, recipe).learner) != method:
            raise CirfError(f"finetune.overrides.{method}: it answers with the model of {learner}; override that one")
    _check_trackers(recipe)
    for method, model in recipe.models.items():
        check_saved(method, Path(model), recipe)
    pruned = [name for name in recipe.methods if name not in recipe.models and get(name, recipe).pruning is not None]
    if SCORED_BY in recipe.models and pruned:
        raise CirfError(
            f"models.{SCORED_BY}: results are pruned by the model trained in the run; remove the key, "
            f"or name a model for {pruned[0]} too"
        )
    context = Context(recipe, RunFolder(folder), for_terminal(quiet))
    _ = context.tasks  # likewise a task's
    return context


def _check_trackers(recipe: Recipe) -> None:
    if not recipe.finetune.report_to:
        return
    from transformers.integrations import integration_utils

    find: Callable[[], list[str]] = integration_utils.get_available_reporting_integrations
    there = find()
    for name in recipe.finetune.report_to:
        if name not in there:
            raise CirfError(f"finetune.report_to: no tracker {name!r} is installed (installed: {', '.join(there) or 'none'})")


def read_before(folder: Path) -> dict[HubName, HubName]:
    """The data sets of the hub that the run in a folder reads: without a revision, and at the run's commit."""
    try:
        entries = load(str(folder / "recipe.yaml")).problems.tasks
    except CirfError:  # a new folder
        return {}
    found = [parse_hub_name(name) for entry in entries for name in _hub_files(entry).values()]
    return {replace(named, revision=None): named for named in found}


def _hub_files(entry: TaskEntry) -> dict[str, str]:
    return {key: name for key in _FILES if (name := getattr(entry, key)) and is_hub_name(name)}


def _at_commit(entry: TaskEntry, before: Mapping[HubName, HubName]) -> TaskEntry:
    named = {key: parse_hub_name(name) for key, name in _hub_files(entry).items()}
    return entry.model_copy(update={key: pinned(str(before.get(name, name))) for key, name in named.items()})


def absolute(recipe: Recipe, before: Mapping[HubName, HubName] | None = None) -> Recipe:
    """The recipe with the paths that exist made absolute, so that a run can be read from any folder, and data sets of the hub at
    a commit: that of ``before``, of the same run, where the recipe names no revision."""

    def full(name: str | None) -> str | None:
        path = user_path(name) if name else None
        return str(path.resolve()) if path is not None and path.exists() else name

    def own(variant: Variant) -> Variant:  # models are recognised by their keys: a user's file is not run for it
        method = full(variant.method) if (variant.method or "").endswith(OWN) else variant.method
        models = {
            name: full(str(value)) for name, value in variant.settings.items() if name.endswith(("_model", "guide")) and value
        }
        reward = None if variant.reward is None else {**variant.reward}
        if reward and isinstance(reward.get("function"), str):
            reward["function"] = full(reward["function"])
        return variant.model_copy(update={"method": method, "settings": {**variant.settings, **models}, "reward": reward})

    def at(section: S, *keys: str) -> S:
        return section.model_copy(update={key: full(getattr(section, key)) for key in keys})

    entries = (_at_commit(entry, before or {}) for entry in recipe.problems.tasks)
    tasks = tuple(at(entry, *_FILES, *(["task"] if entry.task.endswith(OWN) else [])) for entry in entries)
    changes = {
        "problems": at(recipe.problems, "data").model_copy(update={"tasks": tasks}),
        "rationales": recipe.rationales.model_copy(update={"files": tuple(map(full, recipe.rationales.files))}),
        "results": at(recipe.results, "file"),
        "codebook": at(recipe.codebook, "reuse"),
        "backbone": at(recipe.backbone, "model"),
        "embeddings": at(recipe.embeddings, "model"),
        "variants": {name: own(variant) for name, variant in recipe.variants.items()},
        "models": {method: full(model) for method, model in recipe.models.items()},
        "reward": at(recipe.reward, "function"),
    }
    return recipe.model_copy(update=changes)


def with_data(recipe: Recipe, data: Path | None) -> Recipe:
    """The recipe with the mirror folder of ``--data``; ``CirfError`` if there is no such folder."""
    if data is None:
        return recipe
    if not data.is_dir():
        raise CirfError(f"--data {data}: no such folder")
    return recipe.model_copy(update={"problems": recipe.problems.model_copy(update={"data": str(data)})})


def limited(recipe: Recipe, limit: int | None) -> Recipe:
    """The recipe with at most ``limit`` training and test problems a task, and no more codes than that.

    Where rationales come from files, training problems are counted when they have one. The test split from a user's only file is
    not larger than without the limit. A saved codebook, and that of a saved model, keep their number of codes.
    """
    if limit is None:
        return recipe
    counted = "rows" if recipe.rationales.files else "train"

    def few(entry: TaskEntry) -> TaskEntry:
        tested = entry.test
        if tested is None and entry.task.endswith((JSONL, OWN)):
            files = source_files(recipe.problems.model_copy(update={"tasks": (entry,)}))
            table = entry.name or entry.task
            if f"{table}/train" in files and f"{table}/test" not in files:
                tested = default_cut(files[f"{table}/train"])
        if entry.task != JSONL and task_of(entry.task).evaluation_only:
            return entry.model_copy(update={"test": min(tested or limit, limit)})
        return entry.model_copy(
            update={
                counted: min(getattr(entry, counted) or limit, limit),
                "test": min(tested or limit, limit),
                "test_from_train": min(entry.test_from_train, limit),
            }
        )

    tasks = tuple(few(entry) for entry in recipe.problems.tasks)
    saved = recipe.codebook.reuse or any(get(name, recipe).functional for name in recipe.models)
    few_codes = {"size": recipe.codebook.codes if saved else min(recipe.codebook.codes, limit), "sizes": (), "chosen": False}
    book = recipe.codebook.model_copy(update=few_codes)
    problems = recipe.problems.model_copy(update={"tasks": tasks, "limit": min(recipe.problems.limit or limit, limit)})
    return recipe.model_copy(update={"problems": problems, "codebook": book})


def run_and_report(context: Context, until: str | None, as_json: bool, say: Callable[[str], None]) -> None:
    execute(context, until, say)
    if until is None and is_main():
        write_report(context.folder.root, as_json)
    elif as_json and is_main():
        status(context.folder.root, as_json)


def save_report(folder: Path) -> dict[str, Any]:
    """Collect a run's numbers, and write the page and the JSON next to its artefacts; returns the numbers."""
    from cirf.methods.saved import vectors_of
    from cirf.methods.soft.guide import read_soft

    archived = find(folder)
    if archived is None:
        open_run(folder)
        check_results(RunFolder(folder))
    data = collect(folder, stages=up_to_date(folder)) if archived is None else dict(archived.data)
    if data["left_out"] and not data["methods"]:
        raise CirfError(
            f"{folder}: its evaluations are out of date: recipe, data, models or cirf have changed (see `cirf status`); "
            f"`cirf run {folder / 'recipe.yaml'} --out {folder}` makes them again"
        )
    page = render(data)
    write_changed(folder / "report.json", to_json(data))
    write_changed(folder / "report.html", page)
    for method in data["training"] if archived is None else ():  # an archive has no models
        model = folder / "models" / method
        if (model / "config.json").is_file():
            soft = read_soft(model)
            guide = None if soft is None else soft.guide
            card = card_from_report(method, data, functions_of(model) or None, vectors_of(model), guide)
            write_changed(model / "README.md", card)
    return data


def write_report(folder: Path, as_json: bool) -> None:
    with readable(folder):
        data = save_report(folder)
        if not as_json:
            _print_report(folder, data)
    if as_json:
        sys.stdout.write(to_json(data))


def _print_report(folder: Path, data: dict[str, Any]) -> None:
    print_methods(data)
    if data["voting"]:
        write_line(_by_majority(data["voting"]))
    if data["probes"]:
        print_probes(data["probes"])
    overlap = data["data"]["reports"]["problems"].get("overlap", {})
    for line in seen_before(overlap) if not overlap.get("tasks") else ():  # for a run that trains, the page reports it
        write_line(line)
    if data["left_out"]:
        write_line(f"left out, since the recipe does not ask for them or they are out of date: {', '.join(data['left_out'])}")
    for found in data["checks"].values():
        for line in found["faults"]:
            write_line(f"warning: {line}")
    write_line(f"report: {folder / 'report.html'}")
    if data["verdict"] and not data["probes"]:  # which say nothing of what to use
        if data["verdict"]["use"] and (command := serve_command(folder, data["verdict"]["use"])):
            write_line(f"serve: {command}")
        write_line(data["verdict"]["sentence"])


def serve_command(folder: Path, method: str) -> str | None:
    """How vLLM serves a model that the run trained; ``None`` if it trained none, or one that reasons in vectors."""
    from cirf.methods.saved import vectors_of

    model = folder / "models" / method
    if not (model / "config.json").is_file() or vectors_of(model):
        return None
    parser = ["--reasoning-parser", "hf"] if functions_of(model) else []
    return shlex.join(["vllm", "serve", str(model), "--served-model-name", folder.resolve().name, *parser])


def print_methods(data: dict[str, Any]) -> None:
    def seconds(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"

    titles = ("method", "accuracy\n(95 %)", "n", "to-\nkens", "s\nmean", "\np95", "well-\nform", "trun-\ncated", "un-\nparsed")
    rows = [
        (
            name,
            _share(row),
            str(row["n"]),
            f"{row['tokens']:.1f}",
            *(seconds(row[f"latency_{part}_s"]) for part in ("mean", "p95")),
            "-" if row.get("well_formed") is None else f"{row['well_formed']:.1%}",
            f"{row['truncated']:.1%}",
            f"{row['unparsed']:.1%}",
        )
        for name, row in data["methods"].items()
    ]
    print_table(titles, rows)


def _share(row: Mapping[str, Any]) -> str:
    low, high = row["interval"]
    return f"{row['accuracy']:.1%} ({100 * low:.1f}-{100 * high:.1f})"


def print_probes(data: Mapping[str, Mapping[str, Any]]) -> None:
    titles = ("accuracy\n(95 %)", "n", "against none\n(95 %)", "p,\ncorrected", "perturbed", "another\nanswer", "as the\nother's")
    rows = []
    for method, found in data.items():
        for name, row in found["probes"].items():
            compared = ("", "")
            if pair := row.get("against"):
                points, (least, most) = 100 * pair["difference"], pair["interval"]
                p = pair["p"] if pair["p_holm"] is None else pair["p_holm"]
                compared = (f"{points:+.1f} ({100 * least:+.1f} to {100 * most:+.1f})", "< 0.001" if p < 0.001 else f"{p:.3f}")
            shares = ("", "") if name == "none" else (f"{row['changed']:.1%}", f"{row['moved']:.1%}")
            other = f"{row['as_partner']:.1%}" if "as_partner" in row else ""
            rows.append((method, name, _share(row), str(row["n"]), *compared, *shares, other))
    print_table(("method", "probe", *titles), rows, texts=2)


def _by_majority(voting: Mapping[str, Any]) -> str:
    """The accuracies by number of votes, and of the one answer that they are compared with."""
    points = [f"{_share(row)} by {row['votes']} vote{'s' if row['votes'] > 1 else ''}" for row in voting["curve"]]
    other = f"; {voting['against']}, one answer: {_share(voting['alone'])}" if voting["against"] else ""
    return f"{voting['method']}: {', '.join(points)}{other}"


def dry(context: Context, until: str | None, as_json: bool, processes: int | None = None) -> None:
    """Print what a run would do, if given as one of so many processes; of those that are there only the main one prints."""
    stages = asked_for(context, until)
    if not is_main():
        return
    check_backbone(context, stages, processes)
    made = estimate(context, stages, processes or world_size())
    if as_json:
        print(json.dumps(made, indent=2, ensure_ascii=False))
    else:
        print_estimate(made)
