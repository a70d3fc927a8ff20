"""Resolves the name of a model: to a folder in the cache, a folder of the user's, or a hub id."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cirf.assets.catalogue import ASSETS, FORMAT, PREFIX, Asset, find
from cirf.assets.hub import quiet
from cirf.errors import CirfError
from cirf.progress import SILENT, Progress
from cirf.store.files import hash_file, parse_json, to_json
from cirf.store.paths import user_path

_MARKER, _FILES = "cirf-asset.json", "cirf-files.json"
_SPARE = 200 * 10**6  # bytes left free beyond what the model takes
VERIFIED: set[Path] = set()  # folders that this process has verified: hashing a gigabyte takes a second or more
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def cache_folder() -> Path:
    """The cache of bundled models: ``$CIRF_CACHE``, else ``~/.cache/cirf``."""
    return user_path(os.environ.get("CIRF_CACHE") or Path.home() / ".cache" / "cirf")


def data_folder() -> Path:
    """The folder of `cirf data get`: ``$CIRF_DATA``, else ``data`` in the cache."""
    return user_path(os.environ["CIRF_DATA"]) if os.environ.get("CIRF_DATA") else cache_folder() / "data"


def listing() -> dict[str, str]:
    """The bundled models by name: the folder of each, or its download size."""
    lines = {}
    for asset in ASSETS.values():
        folder = _folder(asset)
        lines[PREFIX + asset.name] = str(folder) if _is_ready(asset, folder) else f"not fetched yet ({asset.size / 1e6:,.0f} MB)"
    return lines


def resolve(model: str, progress: Progress = SILENT) -> Path | str:
    """The folder or hub id to load for ``model``.

    ``bundled:NAME`` gives a folder with a plain checkpoint, fetched and converted if it is not there, and again if a file has
    changed since (checked once per process). A folder is checked to hold a model and returned unchanged; so is a hub id,
    unchecked. Raises ``CirfError`` for an unknown name, a folder without a model, text that is neither, a full disk, and a model
    that no source gives.
    """
    if model.startswith(PREFIX):
        return _bundled(find(model), progress)
    folder = user_path(model)
    if model and (folder.exists() or model[0] in "./~"):
        _check_folder(model, folder)
        return folder if model.startswith("~") else model
    if not _HUB_ID.fullmatch(model):
        raise CirfError(f"{model or 'model'}: neither a folder that exists, nor a hub id such as Qwen/Qwen3-8B, nor {PREFIX}NAME")
    quiet()  # the loader reports in one line that the hub did not answer
    return model


def _check_folder(model: str, folder: Path) -> None:
    if not folder.exists():
        raise CirfError(f"{model}: no such folder; name a folder that holds a model, a hub id, or {PREFIX}NAME")
    if not folder.is_dir():
        raise CirfError(f"{model}: a file, not a folder that holds a model (config.json and safetensors)")
    if (folder / "config.json").is_file() or (folder / "modules.json").is_file():
        return
    adapter = (folder / "adapter_config.json").is_file()
    fix = "holds only adapters; merge them into their model first" if adapter else "holds no config.json, so no model"
    raise CirfError(f"{model}: the folder {fix}")


def _folder(asset: Asset) -> Path:
    return cache_folder() / "models" / asset.name


def _is_ready(asset: Asset, folder: Path) -> bool:
    try:
        return bool(parse_json((folder / _MARKER).read_text()) == _marker(asset))
    except (OSError, json.JSONDecodeError):
        return False


def _marker(asset: Asset) -> dict[str, Any]:
    return {"file": asset.file, "sha256": asset.sha256, "format": FORMAT}


def _hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of a new model, by its path within the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in files}


def _is_whole(folder: Path) -> bool:
    """Whether a model's files still have the hashes of the conversion."""
    if folder in VERIFIED:
        return True
    try:
        written = parse_json((folder / _FILES).read_text())
        if any(hash_file(folder / name) != sha256 for name, sha256 in written.items()):
            return False
    except FileNotFoundError:
        if (folder / _FILES).exists():  # then a file of the model is missing
            return False
    except (OSError, ValueError, AttributeError):
        return False
    VERIFIED.add(folder)
    return True


def _bundled(asset: Asset, progress: Progress) -> Path:
    folder = _folder(asset)
    if _is_ready(asset, folder) and _is_whole(folder):
        return folder
    downloads = cache_folder() / "downloads" / asset.name
    try:
        with alone(cache_folder() / "locks" / f"{asset.name}.lock", f"another process fetches {asset.name}", progress):
            if not (_is_ready(asset, folder) and _is_whole(folder)):  # otherwise the process we waited for has made it
                _check_space(asset, downloads)
                _make(asset, folder, downloads, progress)
    except OSError as error:
        raise CirfError(
            f"{PREFIX}{asset.name}: cannot write to the cache {cache_folder()} ({error.strerror or error});"
            " make room, or name another place with CIRF_CACHE"
        ) from None
    return folder


def _make(asset: Asset, folder: Path, downloads: Path, progress: Progress) -> None:
    from cirf.assets import convert, fetch

    file = fetch.fetch(asset, downloads, progress)
    made = folder.with_name(f".{folder.name}.making")  # the lock is held: existing files are of a killed process
    if made.exists():
        shutil.rmtree(made)
    made.mkdir(parents=True)
    if asset.form == "gguf":
        convert.convert_gguf(file, made, progress)
    else:
        convert.unpack_zip(file, made)
    (made / _FILES).write_text(to_json(_hashes(made)))
    (made / _MARKER).write_text(to_json(_marker(asset)))
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(made, folder)
    shutil.rmtree(downloads)


def _check_space(asset: Asset, downloads: Path) -> None:
    """Refuse to start without space for all: the wheels (and pip's copy of them), then the file, then the model."""
    there = sum(path.stat().st_size for path in downloads.rglob("*") if path.is_file())
    needed = max(3 * asset.size, 2 * asset.size + asset.installed) - there + _SPARE
    free = shutil.disk_usage(cache_folder()).free
    if free < needed:
        raise CirfError(
            f"{PREFIX}{asset.name}: {needed / 1e9:.1f} GB are needed in {cache_folder()} and {free / 1e9:.1f} GB are free;"
            " make room, or name another place with CIRF_CACHE"
        )


@contextmanager
def alone(lock: Path, waiting: str, progress: Progress) -> Iterator[None]:
    """Hold a file lock, which the system releases if this process dies."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.task(waiting, total=None, unit=""):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield
