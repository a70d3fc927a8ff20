"""``evaluate``: a run's methods, or any saved model, on tasks of the user's choice.

The evaluation is itself a run without training: it resumes, and `cirf show`, `cirf report` and `cirf status` read it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cirf.assets import is_local
from cirf.codebook.functions import functions_of
from cirf.commands.run import absolute, open_context, run_and_report, with_data
from cirf.errors import CirfError
from cirf.evaluation.protocols import PROTOCOLS, by_protocol, cut_from_train
from cirf.methods import METHODS, get
from cirf.recipe.load import dump, load, open_run, parse
from cirf.recipe.schema import (
    AnsweringEndpoint,
    Backbone,
    Codebook,
    Evaluate,
    Probes,
    Problems,
    Recipe,
    TaskEntry,
    Vocabulary,
    Voting,
)
from cirf.stages.lineage import run_of
from cirf.stages.probes import names_for
from cirf.store.files import hash_json, load_object
from cirf.store.hub_names import stem
from cirf.store.paths import refuse_archive, user_path
from cirf.store.row_files import is_row_file
from cirf.tasks import JSONL, OWN

_OPTIONS = {
    "kinds": ("--probes", "drop, shuffle, swap or several of them, such as drop,swap"),
    "truncate": ("--truncate", "numbers of at least 0, such as 1 or 1,2,4"),
    "results": ("--results", "follow or keep"),
}


@dataclass(frozen=True, slots=True)
class EvaluateOptions:
    """The command line's options. ``probes``: perturb the methods that can be, and time nothing. ``trust``: code of a model may
    run."""

    model: str
    tasks: Sequence[str] = ()
    protocol: str = "quick"
    votes: str | None = None
    methods: Sequence[str] = ()
    sets: Sequence[str] = ()
    data: Path | None = None
    out: Path | None = None
    limit: int | None = None
    probes: Probes | None = None
    trust: bool = False

    @property
    def bare(self) -> bool:
        return not (self.tasks or self.votes or self.methods or self.sets or self.data or self.probes)


def evaluate(options: EvaluateOptions, quiet: bool, as_json: bool) -> None:
    """Build the recipe of the evaluation, run it and print its table.

    A run's methods are evaluated on its own tasks, or on ``tasks``, with its trained models unchanged. A model that was trained
    in a run is prompted as in training, by the recipe in its folder. For any other model the method decides; with functional
    tokens it is read by them, otherwise it writes its own chain-of-thought unless ``methods`` says otherwise.
    """
    recipe, model = _recipe(options)
    limit = options.limit
    suffix = options.protocol if limit is None else f"{options.protocol}-limit-{limit}"
    folder = options.out or _default(recipe, model.run, suffix, options.bare)
    if any(folder.glob("models/*/stage.json")):
        raise CirfError(f"--out {folder}: a run that trained models is there; give the evaluation its own folder")

    def say(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr)

    say(model.notes)
    run_and_report(open_context(recipe, folder, quiet), None, as_json, say)


def _recipe(options: EvaluateOptions) -> tuple[Recipe, AnsweringModel]:
    if options.protocol not in (*PROTOCOLS, "own"):
        raise CirfError(f"--protocol {options.protocol}: no such protocol (available: {', '.join(PROTOCOLS)}, own)")
    chosen = tuple(dict.fromkeys(options.methods))
    if options.probes is not None and not chosen:
        chosen = _probed(options.model, options.probes)
    model = answering(options.model, chosen)
    recipe = model.recipe
    if options.tasks:
        recipe = _with_tasks(recipe, options.tasks)
    elif not model.tasks and not options.model.startswith("bundled:") and not user_path(options.model).exists():
        raise CirfError(f"{options.model}: no such folder; for a model of the hub name tasks, such as --tasks gsm8k,svamp")
    elif not model.tasks:
        raise CirfError("--tasks: name tasks, such as --tasks gsm8k,svamp (see `cirf tasks`)")
    if model.run is None:
        backbone = recipe.backbone.model_copy(update={"trust_remote_code": options.trust})
        recipe = recipe.model_copy(update={"backbone": backbone})
    changes = {"evaluate": recipe.evaluate.model_copy(update=_changes(recipe, options)), "notes": model.notes}
    recipe = recipe.model_copy(update=changes)
    seed = recipe.seed
    recipe = parse(dump(recipe), "the evaluation's recipe", options.sets)
    if model.tasks and recipe.seed != seed and any(map(cut_from_train, recipe.problems.tasks)):
        raise CirfError(
            f"--set seed: the run's test was cut from its training file by the seed {seed}; "
            "by another it would hold questions that were trained on"
        )
    if options.limit is not None:
        recipe = recipe.model_copy(update={"problems": recipe.problems.model_copy(update={"limit": options.limit})})
    return by_protocol(with_data(recipe, options.data)), model


def _changes(recipe: Recipe, options: EvaluateOptions) -> dict[str, Any]:
    changes: dict[str, Any] = {"protocol": options.protocol, "voting": _voting(recipe, options.votes)}
    if options.probes is not None:
        changes |= {"probes": options.probes, "latency_questions": 0}
        changes["voting"] = recipe.evaluate.voting.model_copy(update={"votes": ()})
    elif not any(names_for(get(name, recipe), recipe) for name in recipe.methods):
        changes["probes"] = Probes()
    return changes


def parse_probes(kinds: str, truncate: str | None, results: str) -> Probes:
    """The probes that the options name; ``CirfError`` for an option that cannot be read, or none at all."""
    named = tuple(name.strip() for name in kinds.split(",") if name.strip())
    counts = () if truncate is None else tuple(part.strip() for part in truncate.split(","))
    try:
        probes = Probes.model_validate({"kinds": named, "truncate": counts, "results": results})
    except ValidationError as error:
        key = str(error.errors(include_url=False)[0]["loc"][0])
        option, wanted = _OPTIONS[key]
        raise CirfError(f"{option}: expected {wanted}") from None
    if not probes.names:
        raise CirfError("--probes: name at least one of drop, shuffle and swap, or numbers with --truncate")
    return probes


def _probed(model: str, probes: Probes) -> tuple[str, ...]:
    """A run's methods that can be probed; none if none can, or ``model`` is not a run."""
    folder = user_path(model)
    if not (folder / "recipe.yaml").is_file() or (folder / "config.json").is_file() or (folder / "stage.json").is_file():
        return ()
    recipe = open_run(folder)
    probing = recipe.model_copy(update={"evaluate": recipe.evaluate.model_copy(update={"probes": probes})})
    return tuple(name for name in recipe.methods if names_for(get(name, recipe), probing))


def _default(recipe: Recipe, run: Path | None, suffix: str, bare: bool) -> Path:
    """The default folder of an evaluation: the same for the same command, and different for any other.

    A run's evaluation by its protocol alone has a plain name; any other ends in the hash of its settings, without the run's own
    folder, so that a run may be moved.
    """
    if run is not None and bare:
        return run / "evaluations" / suffix
    settings = absolute(recipe).model_dump_json(exclude={"name", "notes"})
    mark = hash_json(settings if run is None else settings.replace(f'"{run.resolve()}/', '"'))[:8]
    return run / "evaluations" / f"{suffix}-{mark}" if run is not None else Path("runs") / f"{recipe.name}-{suffix}-{mark}"


def _voting(recipe: Recipe, votes: str | None) -> Voting:
    """How the recipe votes, with other numbers of votes where ``--votes`` gives them.

    Where the voting method is not evaluated now, the first that is votes instead if votes are requested here; a run's
    own voting is left out.
    """
    section = recipe.evaluate.voting
    changes: dict[str, Any] = {} if votes is None else {"votes": _numbers(votes)}
    if section.method not in recipe.methods:
        changes |= {"method": recipe.methods[0]} if votes else {"votes": ()}
    return section.model_copy(update=changes)


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers of votes, each once and in order: 4,2 and 2,4,4 are the same."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise CirfError(f"--votes {text}: expected numbers of at least 1, such as 8 or 1,2,4,8")
    return tuple(sorted(set(found)))


def _with_tasks(recipe: Recipe, tasks: Sequence[str]) -> Recipe:
    """The recipe with these tasks: its own entry of a task if it has one, else all of the task's test."""
    own: Mapping[str, TaskEntry] = {entry.name or entry.task: entry for entry in recipe.problems.tasks}
    entries = tuple(own.get(name) or task_entry(name) for name in dict.fromkeys(tasks))
    return recipe.model_copy(update={"problems": recipe.problems.model_copy(update={"tasks": entries})})


def task_entry(name: str) -> TaskEntry:
    """A task by its name, a user's own by its file, or the rows of a file to test on."""
    if not is_row_file(name):
        return TaskEntry(task=name)
    return TaskEntry(task=JSONL, name=plain(stem(name)), test_file=name)


_FUNCTIONAL, _PLAIN = "cirf_full", "cot"


@dataclass(frozen=True, slots=True)
class AnsweringModel:
    """The answering model: the ``recipe`` before tasks and protocol are chosen, the ``run`` whose methods answer (``None``: a
    model by itself), whether the recipe names tasks (``tasks``), and a sentence on the source of the settings."""

    recipe: Recipe
    run: Path | None
    tasks: bool
    notes: str


def answering(model: str, methods: Sequence[str]) -> AnsweringModel:
    """The model to evaluate: ``model`` is a run's folder, a model's folder, a hub id or ``bundled:NAME``. ``CirfError`` where a
    method is not there, or its model is not."""
    folder = user_path(model)
    if not folder.exists() and is_local(model):
        raise CirfError(f"{model}: no such folder; name a run's folder, a model's folder, a hub id or bundled:NAME")
    if (folder / "recipe.yaml").is_file() and (folder / "config.json").is_file():
        return _of_trained(folder, methods)
    if (folder / "recipe.yaml").is_file() and not (folder / "stage.json").is_file():
        return _of_run(folder, methods)
    refuse_archive(folder)
    return _of_model(model, methods)


def plain(text: str) -> str:
    """A text as a name of a run or a table: letters, digits and a few signs."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "mine"


def _of_run(folder: Path, methods: Sequence[str]) -> AnsweringModel:
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
                raise CirfError(f"{model}: the model of {name} is not trained yet; finish the run, or name others with --method")
            saved[method.learner] = str(model.resolve())
    served = {name: endpoint for name, endpoint in recipe.evaluate.endpoints.items() if name in chosen}
    changes = {"methods": chosen, "models": saved, "variants": _without_code(recipe, chosen)}
    recipe = _asking(_untrained(recipe, folder), served).model_copy(update=changes)
    return AnsweringModel(recipe, folder, True, f"evaluated with the settings of the run's recipe: {_settings(recipe)}")


def _of_trained(folder: Path, methods: Sequence[str]) -> AnsweringModel:
    """A trained model by the recipe in its folder, as the method that it was trained by."""
    recipe = load(str(folder / "recipe.yaml"))
    stage = str((load_object(folder / "stage.json") or {}).get("stage", ""))
    trained_as = stage.split("/")[1] if "/" in stage else _FUNCTIONAL if functions_of(folder) else _PLAIN
    chosen = tuple(methods) or (trained_as,)
    recipe = recipe.model_copy(update={"variants": _without_code(recipe, chosen)})
    backbone = {"model": str(folder.resolve()), "revision": None}
    changes: dict[str, Any] = {
        "name": f"evaluate-{plain(recipe.name)}-{plain(folder.resolve().name)}",
        "methods": chosen,
        "models": _saved(str(folder), chosen, recipe),
        "variants": {name: variant for name, variant in recipe.variants.items() if name in _called(chosen, recipe)},
        "backbone": recipe.backbone.model_copy(update=backbone),
    }
    recipe = _asking(_untrained(recipe, run_of(str(folder))), {}).model_copy(update=changes)  # the model itself is evaluated
    return AnsweringModel(recipe, None, True, f"evaluated with the recipe in the model's folder: {_settings(recipe)}")


def _asking(recipe: Recipe, endpoints: dict[str, AnsweringEndpoint]) -> Recipe:
    return recipe.model_copy(update={"evaluate": recipe.evaluate.model_copy(update={"endpoints": endpoints})})


def _of_model(model: str, methods: Sequence[str]) -> AnsweringModel:
    from cirf.methods.saved import vectors_of

    folder = user_path(model)
    functions = functions_of(folder) if folder.is_dir() else {}
    if not methods and vectors_of(folder):
        raise CirfError(f"{folder}: reasons in vectors, but has no recipe; name its method with --method")
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
    notes = f"the model's folder has no recipe; default settings are used: {_settings(recipe)}"
    return AnsweringModel(recipe, None, False, notes)


def _saved(model: str, methods: Sequence[str], recipe: Recipe) -> dict[str, str]:
    """The model's folder for each of the methods that is trained, or for the one whose model it answers with. ``CirfError`` for a
    method or a folder that is not there."""
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
    """Those names, and those of the methods whose models they answer with, start from or were prepared with, recursively."""
    found: set[str] = set()
    waiting = list(methods)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            method = get(name, recipe)
            waiting += [method.learner, *method.needs(), *([method.start] if method.start else [])]
    return found


def _without_code(recipe: Recipe, methods: Sequence[str]) -> dict[str, Any]:
    """The variants, without those by a Python file that are not evaluated: their files need not be trusted."""
    called = _called(methods, recipe)
    variants = recipe.variants.items()
    return {name: variant for name, variant in variants if name in called or not (variant.method or "").endswith(OWN)}


def _untrained(recipe: Recipe, run: Path | None) -> Recipe:
    """A recipe without what is for training, and its problems without a limit. A test that was split from a user's only file
    stays the split of ``run``, if that is known."""
    found = None if run is None else load_object(run / "problems" / "problems.json")
    counts = (found or {}).get("tasks", {})

    def fixed(entry: TaskEntry) -> TaskEntry:
        cut = counts.get(entry.name or entry.task, {}).get("available_test")
        return entry.model_copy(update={"test": cut}) if cut and cut_from_train(entry) else entry

    changes = {
        "finetune": recipe.finetune.model_copy(update={"overrides": {}, "report_to": ()}),
        "codebook": recipe.codebook.model_copy(
            update={"size": recipe.codebook.codes, "sizes": (), "chosen": False, "reuse": None}
        ),
        "problems": recipe.problems.model_copy(update={"tasks": tuple(map(fixed, recipe.problems.tasks)), "limit": None}),
    }
    return recipe.model_copy(update=changes)


def _settings(recipe: Recipe) -> str:
    section = recipe.evaluate
    caps = f"at most {section.max_trace_tokens} tokens of a trace, {section.max_new_tokens} of prose"
    return f"{', '.join(recipe.methods)}; {caps}; {recipe.backbone.dtype}"
