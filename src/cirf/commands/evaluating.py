"""``evaluate``: a run's methods, or any saved model, asked the tasks of the user's choice.

What it makes is itself a run, one that trains nothing: it resumes, and `cirf show`, `cirf report` and `cirf status` read it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.recipe import Backbone, Codebook, Evaluate, Problems, Recipe, TaskEntry, Vocabulary, Voting
from cirf.tasks import JSONL

_RUN_METHOD, _PLAIN_METHOD = "cirf_full", "cot"


def evaluate(
    model: str,
    tasks: Sequence[str],
    protocol: str,
    votes: str | None,
    methods: Sequence[str],
    sets: Sequence[str],
    data: Path | None,
    out: Path | None,
    limit: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Build the recipe of the evaluation, run it and print its table.

    A run's methods are evaluated on its own tasks, or on ``tasks``, and its trained models are taken as they are. Of any
    other model the method says how it is asked; one with functional tokens is read by them, any other asked for its own
    chain-of-thought unless ``methods`` says otherwise.
    """
    from cirf.commands.running import go, opened, with_data
    from cirf.evaluation.protocols import PROTOCOLS, by_protocol, cut_from_train
    from cirf.recipe_io import dump, parse

    if protocol not in (*PROTOCOLS, "own"):
        raise CirfError(f"--protocol {protocol}: there is no such protocol (there are: {', '.join(PROTOCOLS)}, own)")
    path = Path(model).expanduser()
    is_run = (path / "recipe.yaml").is_file() and not (path / "stage.json").is_file()
    recipe = _of_run(path, methods) if is_run else _of_model(model, methods)
    if tasks:
        recipe = _with_tasks(recipe, tasks)
    elif not is_run:
        raise CirfError("--tasks: name what to ask, such as --tasks gsm8k,svamp (see `cirf tasks`)")
    changes: dict[str, Any] = {"protocol": protocol}
    if votes is not None or not is_run:
        voting = {"votes": _numbers(votes) if votes else (), "method": recipe.methods[0]}
        changes["voting"] = recipe.evaluate.voting.model_copy(update=voting)
    elif not {recipe.evaluate.voting.method, recipe.evaluate.voting.fallback} <= {*recipe.methods, None}:
        changes["voting"] = Voting()  # the run's, of a method that is not evaluated now
    recipe = recipe.model_copy(update={"evaluate": recipe.evaluate.model_copy(update=changes)})
    seed = recipe.seed
    recipe = parse(dump(recipe), "the evaluation's recipe", sets)
    if is_run and recipe.seed != seed and any(map(cut_from_train, recipe.problems.tasks)):
        raise CirfError(
            f"--set seed: the run's test was cut from its training file by the seed {seed}; "
            "by another it would hold questions that were trained on"
        )
    if limit is not None:
        recipe = recipe.model_copy(update={"problems": recipe.problems.model_copy(update={"limit": limit})})
    recipe = by_protocol(with_data(recipe, data))
    suffix = protocol if limit is None else f"{protocol}-limit-{limit}"
    default = path / "evaluations" / suffix if is_run else Path("runs") / f"{recipe.name}-{suffix}"
    context = opened(recipe, out or default, quiet)
    go(context, None, as_json, (lambda line: None) if quiet else (lambda line: print(line, file=sys.stderr)))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise CirfError(f"--votes {text}: expected numbers of at least 1, such as 8 or 1,2,4,8")
    return found


def _of_run(folder: Path, methods: Sequence[str]) -> Recipe:
    """The run's recipe with its trained models taken as they are."""
    from cirf.commands.running import open_run
    from cirf.methods import get

    recipe = open_run(folder)
    chosen = tuple(methods) or recipe.methods
    for name in chosen:
        if name not in recipe.methods:
            raise CirfError(f"--method {name}: the run has no such method (it has: {', '.join(recipe.methods)})")
    saved = {}
    for name in chosen:
        if get(name, recipe).trained:
            model = Path(recipe.models.get(name, folder / "models" / name))
            if not (model / "config.json").is_file():
                raise CirfError(f"{model}: the model of {name} is not there yet; finish the run, or name others with --method")
            saved[name] = str(model.resolve())
    finetune = recipe.finetune.model_copy(update={"overrides": {}, "report_to": ()})
    codebook = recipe.codebook.model_copy(update={"sizes": (), "reuse": None})
    return recipe.model_copy(
        update={
            "methods": chosen,
            "models": saved,
            "finetune": finetune,
            "codebook": codebook,
            "problems": _as_cut(folder, recipe),
        }
    )


def _as_cut(folder: Path, recipe: Recipe) -> Problems:
    """The run's problems, without a limit that it had; a test that was cut from a user's only file stays the one that was cut."""
    from cirf.evaluation.protocols import cut_from_train
    from cirf.report.training import load_object

    counts = (load_object(folder / "problems" / "problems.json") or {}).get("tasks", {})

    def fixed(entry: TaskEntry) -> TaskEntry:
        cut = counts.get(entry.name or entry.task, {}).get("available_test")
        return entry.model_copy(update={"test": cut}) if cut and cut_from_train(entry) else entry

    return recipe.problems.model_copy(update={"tasks": tuple(fixed(entry) for entry in recipe.problems.tasks), "limit": None})


def _of_model(model: str, methods: Sequence[str]) -> Recipe:
    """A recipe for a model by itself."""
    from cirf.commands.asking import functions_of
    from cirf.methods import METHODS

    folder = Path(model).expanduser()
    functions = functions_of(folder) if folder.is_dir() else {}
    chosen = tuple(methods) or ((_RUN_METHOD,) if functions else (_PLAIN_METHOD,))
    for name in chosen:
        if name not in METHODS:
            raise CirfError(f"--method {name}: there is no such method (see `cirf methods`)")
    saved = {name: str(folder.resolve()) for name in chosen if METHODS[name].trained}  # type: ignore[attr-defined]
    if saved and not folder.is_dir():
        raise CirfError(f"--method {next(iter(saved))}: {model} was not trained by it; a trained method's model is a folder")
    made: dict[str, Any] = {
        "name": f"evaluate-{_plain(folder.resolve().name if folder.is_dir() else model)}",
        "methods": chosen,
        "models": saved,
        "backbone": Backbone(model=model),
        "problems": Problems(tasks=(TaskEntry(task="gsm8k"),), validation=0),
        "evaluate": Evaluate(),
    }
    if functions:
        made["codebook"] = Codebook(size=functions["size"])
        made["vocabulary"] = Vocabulary(delimiters=functions["delimiters"])
    return Recipe(**made)


def _with_tasks(recipe: Recipe, tasks: Sequence[str]) -> Recipe:
    """The recipe asked about these tasks: its own entry of a task where it has one, else all of the task's test."""
    own: Mapping[str, TaskEntry] = {entry.name or entry.task: entry for entry in recipe.problems.tasks}
    entries = tuple(own.get(name) or _entry(name) for name in dict.fromkeys(tasks))
    return recipe.model_copy(update={"problems": recipe.problems.model_copy(update={"tasks": entries})})


def _entry(name: str) -> TaskEntry:
    """A task by its name, a user's own by its file, or the rows of a JSONL file to test on."""
    if not name.endswith(".jsonl"):
        return TaskEntry(task=name)
    return TaskEntry(task=JSONL, name=_plain(Path(name).stem), test_file=name)


def _plain(text: str) -> str:
    """A text as a name of a run or a table: letters, digits and a few signs."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "mine"
