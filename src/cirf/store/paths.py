"""Local paths in files written for others (a card, a recipe, a record), and paths as users write them (``~/rows.jsonl``).

A worked example: ``{"model": "/home/ann/models/base", "task": "gsm8k"}`` is published as ``{"model": "base", "task": "gsm8k"}``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from cirf.errors import CirfError

ASIDE = (".old", ".damaged")
"""How names of folders in a run's ``.work`` end that are at most removed, which follows no link in them."""
_WINDOWS = re.compile(r"[A-Za-z]:[/\\].+", re.DOTALL)


def is_place(text: str) -> bool:
    """Whether a text as a whole is an absolute path, or one from a home folder: ``/a``, ``~/a``, ``C:\\a``."""
    if "\n" in text or len(text) > 4096:
        return False
    return bool(_WINDOWS.fullmatch(text)) or (text.startswith(("/", "~/")) and text.strip("/~ ") != "")


def without_folders(value: Any) -> Any:
    """The same lists, dicts and texts with each place by its last part alone; keys of dicts stay."""
    if isinstance(value, dict):
        return {key: without_folders(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(one) for one in value]
    if isinstance(value, str) and is_place(value):
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return value


def user_path(written: str | Path) -> Path:
    """The path with ``~`` and ``~NAME`` as home folders; nothing is looked up on the disk. ``CirfError`` where no user has that
    name, and for what no path can hold."""
    text = str(written)
    if "\0" in text:
        raise CirfError(f"{ascii(text)[:200]}: a path cannot hold a NUL character; write it without")
    try:
        return Path(written).expanduser()
    except RuntimeError:
        raise CirfError(f"{text[:200]}: no home folder of that user is known; write the whole path") from None


def refuse_archive(path: Path) -> None:
    """``CirfError`` where a folder, or one that it would be in, is an archive (`cirf.export.archive`): it has numbers alone."""
    folder = next((place for place in (path, path.parent) if (place / "measured.json").is_file()), None)
    if folder is not None and (folder / "answers.parquet").is_file():
        raise CirfError(
            f"{path}: an archive of measured numbers (answers.parquet, measured.json), without questions, texts and models; "
            f"`cirf report {path}` and `cirf analyze {folder}` read it, other commands need the run itself"
        )


def refuse_special(folder: Path) -> None:
    """``CirfError`` where a folder holds a pipe or a device, or a link to one, anywhere in it: reading one may never end. What a
    run set aside in its ``.work`` is never read."""
    for inner, folders, names in os.walk(folder):
        if os.path.basename(inner) == ".work":
            folders[:] = [name for name in folders if not Path(name).suffix.startswith(ASIDE)]
        for name in names:
            path = os.path.join(inner, name)
            if os.path.exists(path) and not os.path.isfile(path):
                raise CirfError(f"{path}: a pipe or a device; remove it")
