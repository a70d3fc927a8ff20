"""``evaluate``: a run's methods, or any saved model, asked the tasks of the user's choice.

What it makes is itself a run, one that trains nothing: it resumes, and `cirf show`, `cirf report` and `cirf status` read it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cirf.commands.answering import answering, plain
from cirf.errors import CirfError
from cirf.recipe import Probes, Recipe, TaskEntry, Voting
from cirf.tasks import JSONL
from cirf.user_paths import user_path

_OPTIONS = {
    "kinds": ("--probes", "drop, shuffle, swap or several of them, such as drop,swap"),
    "truncate": ("--truncate", "numbers of at least 0, such as 1 or 1,2,4"),
    "results": ("--results", "follow or keep"),
}


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
    probes: Probes | None = None,
) -> None:
    """Build the recipe of the evaluation, run it and print its table.

    With ``probes`` the methods that can be probed are, those of ``methods`` or all of a run, and nothing is timed.

    A run's methods are evaluated on its own tasks, or on ``tasks``, and its trained models are taken as they are. A model that
    was trained in a run is asked as it was trained, by the recipe in its folder. Of any other model the method says how it is
    asked; one with functional tokens is read by them, any other asked for its own chain-of-thought unless ``methods`` says
    otherwise.
    """
    from cirf.commands.running import go, opened, with_data
    from cirf.evaluation.protocols import PROTOCOLS, by_protocol, cut_from_train
    from cirf.methods import get
    from cirf.recipe_io import dump, parse
    from cirf.stages.probes import names_for

    if protocol not in (*PROTOCOLS, "own"):
        raise CirfError(f"--protocol {protocol}: there is no such protocol (there are: {', '.join(PROTOCOLS)}, own)")
    chosen = tuple(dict.fromkeys(methods))
    if probes is not None and not chosen:
        chosen = _probed(model, probes)
    asked = answering(model, chosen)
    recipe, run = asked.recipe, asked.run
    if tasks:
        recipe = _with_tasks(recipe, tasks)
    elif not asked.tasks:
        raise CirfError("--tasks: name what to ask, such as --tasks gsm8k,svamp (see `cirf tasks`)")
    changes: dict[str, Any] = {"protocol": protocol}
    changes["voting"] = _voting(recipe, votes)
    if probes is not None:
        changes |= {"probes": probes, "latency_items": 0, "throughput_batches": ()}
        changes["voting"] = recipe.evaluate.voting.model_copy(update={"votes": ()})
    elif not any(names_for(get(name, recipe), recipe) for name in recipe.methods):
        changes["probes"] = Probes()
    recipe = recipe.model_copy(update={"evaluate": recipe.evaluate.model_copy(update=changes), "notes": asked.told})
    seed = recipe.seed
    recipe = parse(dump(recipe), "the evaluation's recipe", sets)
    if asked.tasks and recipe.seed != seed and any(map(cut_from_train, recipe.problems.tasks)):
        raise CirfError(
            f"--set seed: the run's test was cut from its training file by the seed {seed}; "
            "by another it would hold questions that were trained on"
        )
    if limit is not None:
        recipe = recipe.model_copy(update={"problems": recipe.problems.model_copy(update={"limit": limit})})
    recipe = by_protocol(with_data(recipe, data))
    bare = not (tasks or votes or methods or sets or data or probes)
    folder = out or _default(recipe, run, protocol if limit is None else f"{protocol}-limit-{limit}", bare)
    if any(folder.glob("models/*/stage.json")):
        raise CirfError(f"--out {folder}: a run that trained models lies there; give the evaluation a folder of its own")

    def say(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr)

    say(asked.told)
    go(opened(recipe, folder, quiet), None, as_json, say)


def probe(
    model: str,
    kinds: str,
    truncate: str | None,
    results: str,
    tasks: Sequence[str],
    protocol: str,
    methods: Sequence[str],
    sets: Sequence[str],
    data: Path | None,
    out: Path | None,
    limit: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Evaluate with probes, and print what they say."""
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
    evaluate(model, tasks, protocol, None, methods, sets, data, out, limit, quiet, as_json, probes)


def _probed(model: str, probes: Probes) -> tuple[str, ...]:
    """Of a run's methods, those that can be probed; none where none can, or ``model`` is no run."""
    from cirf.commands.running import open_run
    from cirf.methods import get
    from cirf.stages.probes import names_for

    folder = user_path(model)
    if not (folder / "recipe.yaml").is_file() or (folder / "config.json").is_file() or (folder / "stage.json").is_file():
        return ()
    recipe = open_run(folder)
    asked = recipe.model_copy(update={"evaluate": recipe.evaluate.model_copy(update={"probes": probes})})
    return tuple(name for name in recipe.methods if names_for(get(name, recipe), asked))


def _default(recipe: Recipe, run: Path | None, suffix: str, bare: bool) -> Path:
    """The folder of an evaluation that was given none: the same for the same command, and another for any other.

    A run's evaluation by its protocol alone has a plain name; any other ends in the hash of all that it asks, in which a run's
    own folder does not count, so that a run may be moved.
    """
    from cirf.commands.running import absolute
    from cirf.files import hash_json

    if run is not None and bare:
        return run / "evaluations" / suffix
    asked = absolute(recipe).model_dump_json(exclude={"name", "notes"})
    mark = hash_json(asked if run is None else asked.replace(f'"{run.resolve()}/', '"'))[:8]
    return run / "evaluations" / f"{suffix}-{mark}" if run is not None else Path("runs") / f"{recipe.name}-{suffix}-{mark}"


def _voting(recipe: Recipe, votes: str | None) -> Voting:
    """How the recipe votes, with other numbers of votes where ``--votes`` gives them.

    Where the voting method is not evaluated now, the first that is votes in its place if votes are asked for here; a run's
    own voting is left out. A fallback that is not evaluated, or that votes itself now, is none.
    """
    section = recipe.evaluate.voting
    changes: dict[str, Any] = {} if votes is None else {"votes": _numbers(votes)}
    if section.method not in recipe.methods:
        changes |= {"method": recipe.methods[0]} if votes else {"votes": ()}
    if section.fallback not in recipe.methods or section.fallback == changes.get("method"):
        changes["fallback"] = None
    return section.model_copy(update=changes)


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers of votes, each once and in order: 4,2 and 2,4,4 ask the same."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise CirfError(f"--votes {text}: expected numbers of at least 1, such as 8 or 1,2,4,8")
    return tuple(sorted(set(found)))


def _with_tasks(recipe: Recipe, tasks: Sequence[str]) -> Recipe:
    """The recipe asked about these tasks: its own entry of a task where it has one, else all of the task's test."""
    own: Mapping[str, TaskEntry] = {entry.name or entry.task: entry for entry in recipe.problems.tasks}
    entries = tuple(own.get(name) or task_entry(name) for name in dict.fromkeys(tasks))
    return recipe.model_copy(update={"problems": recipe.problems.model_copy(update={"tasks": entries})})


def task_entry(name: str) -> TaskEntry:
    """A task by its name, a user's own by its file, or the rows of a JSONL file to test on."""
    if not name.endswith(".jsonl"):
        return TaskEntry(task=name)
    return TaskEntry(task=JSONL, name=plain(Path(name).stem), test_file=name)
