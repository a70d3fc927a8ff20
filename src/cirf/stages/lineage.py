"""What a run has from outside: hashes of data files and of models, for the keys of stages, and the training problems of models
that were trained elsewhere, if they are in other runs' folders.

A model in ``RUN/models/NAME`` has seen the problems of RUN, and if RUN's backbone is itself such a model, those of its run too.
For any other model this is unknown.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.errors import CirfError
from cirf.methods import get, learners
from cirf.records import Problem
from cirf.store.files import hash_file, hash_json
from cirf.store.hub_names import suggestion
from cirf.store.jsonl import read_rows
from cirf.store.paths import user_path
from cirf.tasks.loading.leaks import seen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cirf.recipe.schema import Recipe

_BLOCK, _BLOCKS = 2**20, 128
"""Weights of more bytes than this are not read whole but at this many places, evenly spread: training changes them all."""


def file_hash(path: Path) -> str:
    """Hash of a file's content; ``CirfError`` if it is not there or cannot be read."""
    try:
        state = path.stat()
        return _hash(str(path), state.st_size, state.st_mtime_ns)
    except FileNotFoundError:
        raise CirfError(f"{path}: no such file{suggestion(path)}") from None
    except OSError as error:
        raise CirfError(f"{path}: cannot be read ({error.strerror}); name a file that this user may read") from None


@lru_cache
def _hash(path: str, size: int, _changed: int) -> str:
    if size <= _BLOCK * _BLOCKS or not path.endswith(".safetensors"):
        return hash_file(Path(path))
    digest = hashlib.sha256(str(size).encode())
    with open(path, "rb") as file:
        for block in range(_BLOCKS):
            file.seek((size - _BLOCK) * block // (_BLOCKS - 1))
            digest.update(file.read(_BLOCK))
    return digest.hexdigest()


def model_hash(model: str, revision: str | None = None) -> str:
    """What identifies a model: a bundled one's published hash, a folder's files, or a hub id itself (``ID@REVISION``).

    ``CirfError`` if it can be none of these.
    """
    from cirf.assets import published_hash, resolve

    if model.startswith("bundled:"):
        return published_hash(model)
    folder = user_path(resolve(model))
    if not folder.is_dir():
        return model if revision is None else f"{model}@{revision}"
    kept = (".json", ".safetensors", ".model", ".jinja", ".txt", ".py")
    files = sorted(path for path in folder.rglob("*") if path.suffix in kept and path.is_file() and path.name != "timings.json")
    return hash_json({path.relative_to(folder).as_posix(): file_hash(path) for path in files})


def problem_files(recipe: Recipe) -> dict[str, str]:
    """Hashes of the files that the problems are read from; empty for the hub and for generated tasks."""
    from cirf.tasks.loading.load import source_files

    return {f"file:{label}": file_hash(path) for label, path in source_files(recipe.problems).items()}


def rationale_files(recipe: Recipe) -> dict[str, str]:
    from cirf.rationales.files import find_file

    files = recipe.rationales.files if recipe.rationales.source != "dataset" else ()
    return {f"file:{name}": file_hash(find_file(name, recipe.problems.data, "rationales.files")) for name in files}


def result_files(recipe: Recipe) -> dict[str, str]:
    """Hash of the file that holds the results, where one does."""
    from cirf.rationales.files import find_file

    name = recipe.results.file if recipe.results.by == "file" else None
    return {} if name is None else {"file": file_hash(find_file(name, recipe.problems.data, "results.file"))}


def teacher_prompt(recipe: Recipe) -> str:
    from cirf.endpoints.requests import read_template
    from cirf.rationales.teachers import PROMPT

    return hash_json(read_template(recipe.rationales.teacher.prompt, *PROMPT))


def writer_prompt(recipe: Recipe) -> str:
    from cirf.endpoints.requests import read_template
    from cirf.rationales.writers import PROMPT

    return hash_json(read_template(recipe.results.writer.prompt, *PROMPT))


_PARTS = ("train.jsonl", "validation.jsonl")


@dataclass(frozen=True, slots=True)
class Origin:
    """A model that this run did not train: the ``methods`` that it answers for, and the ``runs`` whose problems it has seen, its
    own first; none if unknown."""

    methods: tuple[str, ...]
    runs: tuple[Path, ...]


def run_of(model: str) -> Path | None:
    """The folder of the run that trained a model; ``None`` if it is in none."""
    folder = user_path(model).resolve()
    run = folder.parent.parent
    return run if folder.parent.name == "models" and (run / "problems" / "train.jsonl").is_file() else None


def origins(recipe: Recipe) -> list[Origin]:
    """The models that answer in a run, help to prepare its rows or are trained further, but were not trained in it, and a
    backbone from another run.

    For a run that trains, only known ones: the backbone's name already says that it comes from elsewhere.
    """
    methods_of: dict[str, list[str]] = {}
    for name in recipe.methods:
        methods_of.setdefault(recipe.models.get(get(name, recipe).learner, recipe.backbone.model), []).append(name)
    begun = [learner.start for learner in learners(recipe) if learner.start is not None]
    for needed in dict.fromkeys([*(name for learner in learners(recipe) for name in learner.needs()), *begun]):
        model = recipe.models.get(get(needed, recipe).learner)
        if model is not None and needed not in methods_of.get(model, ()):
            methods_of.setdefault(model, []).append(needed)
    found = [Origin(tuple(methods), _ancestry(model)) for model, methods in methods_of.items()]
    return [origin for origin in found if origin.runs] if trains(recipe) else found


def trains(recipe: Recipe) -> bool:
    """Whether a run learns anything from its training problems: a model, or codes."""
    return bool(recipe.codebook.sizes) or bool(learners(recipe))


def lineage_files(recipe: Recipe) -> dict[str, str]:
    """Hashes of the problems that the models from elsewhere have seen."""
    runs = dict.fromkeys(run for origin in origins(recipe) for run in origin.runs)
    files = [run / "problems" / part for run in runs for part in _PARTS]
    return {f"seen:{index}": file_hash(path) for index, path in enumerate(files) if path.is_file()}


def overlaps(recipe: Recipe, test: Mapping[str, Sequence[Problem]]) -> list[dict[str, Any]]:
    """A row a model from elsewhere: its ``methods``, whether it is ``known`` what it was trained on, the names of its ``runs``,
    their number of ``questions``, and by table the result of `leaks.overlap` (``exact``: test questions that were trained on)."""
    rows = []
    for origin in origins(recipe):
        train = [problem for run in origin.runs for problem in _problems(run)]
        entry: dict[str, Any] = {"methods": list(origin.methods), "known": bool(origin.runs)}
        entry |= {"runs": [run.name for run in origin.runs], "questions": len(train)}
        rows.append(entry | {"tasks": seen(train, test) if origin.runs else {}})
    return rows


def _problems(run: Path) -> list[Problem]:
    files = [run / "problems" / part for part in _PARTS]
    return [Problem.from_dict(row) for path in files if path.is_file() for row in read_rows(path)]


def _ancestry(model: str) -> tuple[Path, ...]:
    from cirf.recipe.load import load

    found: list[Path] = []
    while (run := run_of(model)) is not None and run not in found:
        found.append(run)
        try:
            model = load(str(user_path(model) / "recipe.yaml")).backbone.model
        except CirfError:  # without its recipe nothing is known of what came before
            break
    return tuple(found)
