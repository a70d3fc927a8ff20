"""The recipe of an evaluation: of a run, of a model that was trained in one, or of any other model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.files import load_object
from cirf.recipe import Backbone, Codebook, Evaluate, Problems, Recipe, TaskEntry, Vocabulary
from cirf.user_paths import user_path

_FUNCTIONAL, _PLAIN = "cirf_full", "cot"


@dataclass(frozen=True, slots=True)
class Answering:
    """Who answers, and how: the ``recipe`` before tasks and protocol are chosen, the ``run`` whose methods answer (``None``: a
    model by itself), whether the recipe names tasks of its own (``tasks``), and a sentence on where the settings are from."""

    recipe: Recipe
    run: Path | None
    tasks: bool
    told: str


def answering(model: str, methods: Sequence[str]) -> Answering:
    """What is to be evaluated: ``model`` is a run's folder, a model's folder, a hub id or ``bundled:NAME``.

    ``CirfError`` where a method is not there, or its model is not.
    """
    folder = user_path(model)
    if (folder / "recipe.yaml").is_file() and (folder / "config.json").is_file():
        return _of_trained(folder, methods)
    if (folder / "recipe.yaml").is_file() and not (folder / "stage.json").is_file():
        return _of_run(folder, methods)
    return _of_model(model, methods)


def plain(text: str) -> str:
    """A text as a name of a run or a table: letters, digits and a few signs."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "mine"


def _of_run(folder: Path, methods: Sequence[str]) -> Answering:
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
        method = get(name, recipe)
        if method.trained:
            model = Path(recipe.models.get(method.learner, folder / "models" / method.learner))
            if not (model / "config.json").is_file():
                raise CirfError(f"{model}: the model of {name} is not there yet; finish the run, or name others with --method")
            saved[method.learner] = str(model.resolve())
    recipe = _untrained(recipe, folder).model_copy(update={"methods": chosen, "models": saved})
    return Answering(recipe, folder, True, f"asked by the settings of the run's recipe: {_settings(recipe)}")


def _of_trained(folder: Path, methods: Sequence[str]) -> Answering:
    """A trained model by the recipe that lies in its folder, and as the method that it was trained by.

    Code that comes with it is not run unless --set says so: the folder may be from elsewhere.
    """
    from cirf.analysis.functions import functions_of
    from cirf.recipe_io import load
    from cirf.stages.lineage import run_of

    recipe = load(str(folder / "recipe.yaml"))
    stage = str((load_object(folder / "stage.json") or {}).get("stage", ""))
    trained_as = stage.split("/")[1] if "/" in stage else _FUNCTIONAL if functions_of(folder) else _PLAIN
    chosen = tuple(methods) or (trained_as,)
    backbone = {"model": str(folder.resolve()), "revision": None, "trust_remote_code": False}
    changes: dict[str, Any] = {
        "name": f"evaluate-{plain(recipe.name)}-{plain(folder.resolve().name)}",
        "methods": chosen,
        "models": _saved(str(folder), chosen, recipe),
        "variants": {name: variant for name, variant in recipe.variants.items() if name in _called(chosen, recipe)},
        "backbone": recipe.backbone.model_copy(update=backbone),
    }
    recipe = _untrained(recipe, run_of(str(folder))).model_copy(update=changes)
    return Answering(recipe, None, True, f"asked by the settings of the recipe in the model's folder: {_settings(recipe)}")


def _of_model(model: str, methods: Sequence[str]) -> Answering:
    """A model by itself, by the default settings."""
    from cirf.analysis.functions import functions_of
    from cirf.lm.thinking import vectors_of

    folder = user_path(model)
    functions = functions_of(folder) if folder.is_dir() else {}
    if not methods and vectors_of(folder):
        raise CirfError(f"{folder}: thinks in vectors, and no recipe lies with it; say which method's model it is with --method")
    chosen = tuple(methods) or ((_FUNCTIONAL,) if functions else (_PLAIN,))
    made: dict[str, Any] = {
        "name": f"evaluate-{plain(folder.resolve().name if folder.is_dir() else model)}",
        "methods": chosen,
        "models": {},
        "backbone": Backbone(model=model),
        "problems": Problems(tasks=(TaskEntry(task="gsm8k"),), validation=0),
        "evaluate": Evaluate(),
    }
    if functions:
        made["codebook"] = Codebook(size=functions["size"])
        made["vocabulary"] = Vocabulary(delimiters=functions["delimiters"])
    recipe = Recipe(**made)
    recipe = recipe.model_copy(update={"models": _saved(model, chosen, recipe)})
    return Answering(recipe, None, False, f"no recipe lies with the model; asked by the default settings: {_settings(recipe)}")


def _saved(model: str, methods: Sequence[str], recipe: Recipe) -> dict[str, str]:
    """The model's folder for each of the methods that is trained, or for the one whose model it answers with. ``CirfError`` for a
    method or a folder that is not there."""
    from cirf.methods import METHODS, get

    folder = user_path(model)
    for name in methods:
        if name not in METHODS and name not in recipe.variants:
            raise CirfError(f"--method {name}: there is no such method (see `cirf methods`)")
    made = {name: get(name, recipe) for name in methods}
    saved = {method.learner: str(folder.resolve()) for method in made.values() if method.trained}
    if saved and not folder.is_dir():
        first = next(name for name, method in made.items() if method.trained)
        raise CirfError(f"--method {first}: {model} was not trained by it; a trained method's model is a folder")
    return saved


def _called(methods: Sequence[str], recipe: Recipe) -> set[str]:
    """Those names, and those of the methods whose models they answer with or were prepared with, theirs too."""
    from cirf.methods import get

    found: set[str] = set()
    waiting = list(methods)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            method = get(name, recipe)
            waiting += [method.learner, *method.needs()]
    return found


def _untrained(recipe: Recipe, run: Path | None) -> Recipe:
    """A recipe without what is for training, and its problems without a limit that they had. A test that was cut from a user's
    only file stays the one that was cut in ``run``, where that is known."""
    from cirf.evaluation.protocols import cut_from_train

    found = None if run is None else load_object(run / "problems" / "problems.json")
    counts = (found or {}).get("tasks", {})

    def fixed(entry: TaskEntry) -> TaskEntry:
        cut = counts.get(entry.name or entry.task, {}).get("available_test")
        return entry.model_copy(update={"test": cut}) if cut and cut_from_train(entry) else entry

    changes = {
        "finetune": recipe.finetune.model_copy(update={"overrides": {}, "report_to": ()}),
        "codebook": recipe.codebook.model_copy(update={"sizes": (), "reuse": None}),
        "problems": recipe.problems.model_copy(update={"tasks": tuple(map(fixed, recipe.problems.tasks)), "limit": None}),
    }
    return recipe.model_copy(update=changes)


def _settings(recipe: Recipe) -> str:
    """How the model is asked, in the few keys that matter most."""
    section = recipe.evaluate
    caps = f"at most {section.trace_cap} tokens of a trace, {section.text_cap} of prose"
    weights = ", weights in int8" if section.weights == "int8" else ""
    return f"{', '.join(recipe.methods)}; {caps}; {recipe.backbone.dtype}{weights}"
