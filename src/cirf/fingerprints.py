"""What the outside of a run holds: hashes of data files and of models, for the keys of stages."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from cirf.errors import CirfError
from cirf.store import hash_file, hash_json

if TYPE_CHECKING:
    from cirf.recipe import Recipe

_WHOLE = 16 * 2**20
"""Files up to so many bytes are hashed whole; of larger ones (weights) the size, the head and the tail."""


def file_hash(path: Path) -> str:
    """Hash of a file's content; ``CirfError`` if it is not there."""
    if not path.is_file():
        raise CirfError(f"{path}: no such file")
    state = path.stat()
    return _hash(str(path), state.st_size, state.st_mtime_ns)


@lru_cache
def _hash(path: str, size: int, _changed: int) -> str:
    if size <= _WHOLE:
        return hash_file(Path(path))
    with open(path, "rb") as file:
        head = file.read(2**20)
        file.seek(-(2**20), 2)
        return hashlib.sha256(str(size).encode() + head + file.read()).hexdigest()


def model_hash(model: str) -> str:
    """What identifies a model: a bundled one's published hash, a folder's files, or a hub id as it is."""
    from cirf.assets import published_hash

    if model.startswith("bundled:"):
        return published_hash(model)
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return model
    kept = (".json", ".safetensors", ".model", ".jinja", ".txt", ".py")
    files = sorted(path for path in folder.rglob("*") if path.suffix in kept and path.is_file() and path.name != "timings.json")
    return hash_json({path.relative_to(folder).as_posix(): file_hash(path) for path in files})


def problem_files(recipe: Recipe) -> dict[str, str]:
    """Hashes of the files that the problems are read from; empty for the hub and for generated tasks."""
    from cirf.tasks.load import source_files

    return {f"file:{label}": file_hash(path) for label, path in source_files(recipe.problems).items()}


def rationale_files(recipe: Recipe) -> dict[str, str]:
    """Hashes of the rationale files."""
    from cirf.rationales.collect import find_file

    files = recipe.rationales.files if recipe.rationales.source != "dataset" else ()
    return {f"file:{name}": file_hash(find_file(name, recipe.problems.data)) for name in files}
