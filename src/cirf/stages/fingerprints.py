"""Inputs from outside a run: hashes of data files and of models, for the keys of stages."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from cirf.errors import CirfError
from cirf.store.files import hash_file, hash_json
from cirf.store.paths import user_path

if TYPE_CHECKING:
    from cirf.recipe.schema import Recipe

_BLOCK, _BLOCKS = 2**20, 128
"""Weights of more bytes than this are not read whole but at this many places, evenly spread: training changes them all."""


def file_hash(path: Path) -> str:
    """Hash of a file's content; ``CirfError`` if it is not there or cannot be read."""
    try:
        state = path.stat()
        return _hash(str(path), state.st_size, state.st_mtime_ns)
    except FileNotFoundError:
        raise CirfError(f"{path}: no such file") from None
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
    """Hashes of the rationale files."""
    from cirf.rationales.files import find_file

    files = recipe.rationales.files if recipe.rationales.source != "dataset" else ()
    return {f"file:{name}": file_hash(find_file(name, recipe.problems.data, "rationales.files")) for name in files}


def result_files(recipe: Recipe) -> dict[str, str]:
    """Hash of the file that holds the results, where one does."""
    from cirf.rationales.files import find_file

    name = recipe.results.file if recipe.results.by == "file" else None
    return {} if name is None else {"file": file_hash(find_file(name, recipe.problems.data, "results.file"))}


def teacher_prompt(recipe: Recipe) -> str:
    """Hash of the teachers' prompt."""
    from cirf.endpoints.requests import read_template
    from cirf.rationales.teachers import PROMPT

    return hash_json(read_template(recipe.rationales.teacher.prompt, *PROMPT))


def writer_prompt(recipe: Recipe) -> str:
    """Hash of a result writer's prompt."""
    from cirf.endpoints.requests import read_template
    from cirf.rationales.writers import PROMPT

    return hash_json(read_template(recipe.results.writer.prompt, *PROMPT))
