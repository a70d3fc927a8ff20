"""A run's numbers without its texts, weights and vectors: small enough for a repository, whole enough to go on from.

An archive is laid out as the run's folder is. It holds every finished stage's record, times and counts, the histories of
trainings, the codes of training steps, and of each answer whether it is right and how long it is; functional traces stay,
being short and the model's own, unless there is prose in them, which may be the question's. What is left out are data sets'
rows, prose, models and vectors: a repository should not hold them, and may not where they are another's. ``cirf report`` and
``cirf analyze`` read an archive as they do a run; ``cirf run --out`` in a copy of it goes on with what is missing, and makes
files that were left out again only where something new rests on them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from cirf.analysis.traces import is_functional
from cirf.analysis.training_codes import TRAINING_CODES, cut, with_tasks
from cirf.errors import CirfError
from cirf.files import hash_file, load_object, to_json, write_atomic, write_rows
from cirf.integrity import LARGE, damage
from cirf.local_paths import without_folders
from cirf.rows import read_rows
from cirf.store import LEFT_OUT, RunFolder, record

if TYPE_CHECKING:
    from cirf.recipe import Recipe

_COUNTS = (
    "problems.json",
    "report.json",
    "scores.json",
    "history.json",
    "trials.json",
    "probes.json",
    "voting.json",
    "codebook.json",
)
_JUDGED = ("evaluation", "sampled")
"""Stages whose rows are answers with their verdicts."""
_OF_THE_DATA, _OF_THE_MODEL = ("prompt", "gold"), ("output", "trace", "answer", "parsed")
_ROWS = {
    "problems": ("test/",),
    "rationales": ("rationales.jsonl",),
    "segments": ("segments.jsonl",),
    "results": ("results.jsonl",),
}
"""Files of rows by stage; where they differ, methods have answered or learnt others."""
_BETWEEN, _WORDS, _OF_A_RESULT = re.compile(r"<[^<>\s]*>"), re.compile(r"[^\W\d_]{2,}"), 3
_RECORD, _RECIPE, _TIMES, _ENVIRONMENT = "stage.json", "recipe.yaml", "timings.json", "environment.json"
_CODES = "codes.jsonl"
_MARK = "archive.json"


@dataclass(frozen=True, slots=True)
class Archived:
    """What an archive took: stages of the run, stages that it held before and the run does not have, and bytes in all."""

    stages: tuple[str, ...]
    kept: tuple[str, ...]
    bytes: int


def archive(run: Path, out: Path, stages: list[str]) -> Archived:
    """Write the numbers of a run's ``stages`` to ``out``, beside those of stages that it holds and the run does not.

    So the methods of one recipe may be trained on several machines and told of together. Raises ``CirfError`` where ``out`` is
    another recipe's archive or is no archive.
    """
    if not stages:
        raise CirfError(f"{run}: no stage is finished; run it first")
    if out.resolve() == run.resolve():
        raise CirfError(f"{out}: that is the run itself; give --out another folder")
    recipe = _recipe(run / _RECIPE)
    source, target = RunFolder(run), RunFolder(out)
    if out.exists() and any(out.iterdir()):
        if not is_archive(out) or not (out / _RECIPE).is_file():
            raise CirfError(f"{out}: not empty, and no archive; give --out another folder")
        before = _recipe(out / _RECIPE)
        if before.name != recipe.name:
            raise CirfError(f"{out}: holds the archive of {before.name}, not of {recipe.name}; give --out another folder")
        _check_alike(source, target, stages, recipe, before)
        recipe = _joined(before, recipe)
    for name in stages:
        if bad := source.damaged(name, LARGE):
            raise CirfError(f"{damage(source, name, bad)}; `cirf run` makes the stage again")
    with target.alone("archive"):
        write_atomic(out / _RECIPE, _without_places(recipe))  # first, so that a killed archive is known for one
        write_atomic(out / _MARK, to_json({"name": recipe.name, "stages": _archived(out)}))
        for name in stages:
            if target.folder(name).exists():
                shutil.rmtree(target.folder(name))
            _stage(source, name, target.folder(name))
        if environment := load_object(run / _ENVIRONMENT):
            told = {key: value for key, value in environment.items() if key not in ("cache", "bundled models")}
            write_atomic(out / _ENVIRONMENT, to_json(told))
        there = _archived(out)
        write_atomic(out / _MARK, to_json({"name": recipe.name, "stages": there}))
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return Archived(tuple(stages), tuple(name for name in there if name not in stages), size)


def _archived(out: Path) -> list[str]:
    return sorted(path.parent.relative_to(out).as_posix() for path in out.rglob(_RECORD))


def _check_alike(source: RunFolder, target: RunFolder, stages: list[str], recipe: Recipe, before: Recipe) -> None:
    """``CirfError`` where stages that an archive keeps are of other rows than the run, or of another seed or backbone."""
    if not set(_archived(target.root)).difference(stages):
        return
    ours, theirs = ((one.seed, without_folders(one.backbone.model), one.backbone.revision) for one in (recipe, before))
    other = ["seed or backbone"] if ours != theirs else []
    shared = [name for name in _ROWS if name in stages and target.manifest(name)]
    other += [name for name in shared if source.content(name, _ROWS[name]) != target.content(name, _ROWS[name])]
    if other:
        raise CirfError(f"{target.root}: holds methods of another run, which differs in {other[0]}; give --out another folder")


def _joined(before: Recipe, recipe: Recipe) -> Recipe:
    """The recipe with the methods that an archive holds besides, and what goes with them."""
    others = tuple(name for name in before.methods if name not in recipe.methods)
    overrides = {name: override for name, override in before.finetune.overrides.items() if name in others}
    return recipe.model_copy(
        update={
            "methods": (*others, *recipe.methods),
            "variants": {**before.variants, **recipe.variants},
            "models": {**{name: model for name, model in before.models.items() if name in others}, **recipe.models},
            "finetune": recipe.finetune.model_copy(update={"overrides": {**overrides, **recipe.finetune.overrides}}),
        }
    )


def is_archive(folder: Path) -> bool:
    """Whether a folder is an archive that no run has gone on in."""
    return (folder / _MARK).is_file()


def open_archive(folder: Path) -> None:
    """Make a run of an archive: from here on its stages are told of as those of any run, when its recipe asks for them."""
    if (folder / _MARK).exists():  # nothing is touched of a run that is none, which may lie where nothing can be written
        (folder / _MARK).unlink()


def _stage(run: RunFolder, name: str, target: Path) -> None:
    """One stage; its record comes last, so that a kill leaves none that stands for files that are not there."""
    folder, manifest = run.folder(name), run.manifest(name)
    assert manifest is not None
    for file in manifest["files"]:
        path = folder / file
        if PurePath(file).name in _COUNTS and path.is_file():
            write_atomic(target / file, to_json(without_folders(_without_passages(load_object(path)))))
        elif name.split("/")[0] in _JUDGED and file.endswith(".jsonl") and path.is_file():
            target.mkdir(parents=True, exist_ok=True)
            write_rows(target / file, [_verdict(row) for row in read_rows(path)])
    if codes := _training_codes(run, name):
        target.mkdir(parents=True, exist_ok=True)
        write_rows(target / TRAINING_CODES, codes)
    if times := load_object(folder / _TIMES):
        rows = {"rows": [_verdict(row) for row in times["rows"]]} if isinstance(times.get("rows"), list) else {}
        write_atomic(target / _TIMES, to_json(times | rows))
    known = manifest["files"]
    gone = [file for file in known if not (target / file).is_file() or hash_file(target / file) != known[file]]
    write_atomic(target / _RECORD, record(without_folders({**manifest, LEFT_OUT: gone})))


def _training_codes(run: RunFolder, name: str) -> list[dict[str, Any]]:
    """Of a codebook, its codes of the training rationales; none of another stage."""
    folder, train = run.folder(name), run.folder("problems") / "train.jsonl"
    if not name.startswith("codebook-"):
        return []
    if not (folder / _CODES).is_file() or not train.is_file():  # of an archive that was gone on from
        return read_rows(folder / TRAINING_CODES) if (folder / TRAINING_CODES).is_file() else []
    segments = run.folder("segments") / "segments.jsonl"
    cuts = {(row["problem"], row["sample"]): cut(row["segments"]) for row in (read_rows(segments) if segments.is_file() else ())}
    rows = with_tasks(read_rows(folder / _CODES), {row["id"]: row["task"] for row in read_rows(train)})
    return [row | {"cut": cuts.get((row["problem"], row["sample"]))} for row in rows]


def _verdict(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without its texts, but for a functional trace."""
    output = str(row.get("output", ""))
    texts = _OF_THE_DATA if is_functional(output) and not _holds_prose(output) else (*_OF_THE_DATA, *_OF_THE_MODEL)
    return {key: "" if key in texts and value is not None else value for key, value in row.items()}


def _holds_prose(output: str) -> bool:
    """Whether there is text before the trace, or more words between two tokens than a result has."""
    before, *results = _BETWEEN.split(output)
    return bool(before.strip()) or any(len(_WORDS.findall(result)) > _OF_A_RESULT for result in results)


def _without_passages(value: Any) -> Any:
    """The same without the passages that questions share with others (of the pairs under ``examples`` of an overlap)."""
    if isinstance(value, list):
        return [_without_passages(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: "" if key == "words" and isinstance(one, str) else _without_passages(one) for key, one in value.items()}


def _recipe(path: Path) -> Recipe:
    from cirf.recipe_io import load

    if not path.is_file():
        raise CirfError(f"{path.parent}: not a run's folder (it holds no {_RECIPE})")
    return load(str(path))


def _without_places(recipe: Recipe) -> str:
    """A recipe as text, without the folder of the data and with files by their names alone."""
    from cirf.recipe_io import for_others

    return for_others(recipe.model_copy(update={"problems": recipe.problems.model_copy(update={"data": None})}))
