"""Paths as users write them, in recipes and on the command line: ``~/rows.jsonl``."""

from __future__ import annotations

from pathlib import Path

from cirf.errors import CirfError


def user_path(written: str | Path) -> Path:
    """The path with ``~`` and ``~NAME`` as home folders; nothing is looked up on the disk.

    ``CirfError`` where no user has that name, and for what no path can hold.
    """
    text = str(written)
    if "\0" in text:
        raise CirfError(f"{ascii(text)[:200]}: a path cannot hold a NUL character; write it without")
    try:
        return Path(written).expanduser()
    except RuntimeError:
        raise CirfError(f"{text[:200]}: the home folder of that user is not known here; write the whole path") from None
