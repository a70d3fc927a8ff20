"""Files of a finished stage shared with another run: the same bytes, but no write changes both.

Large files, such as models' weights and vectors, are hard links where the file system has them, so they take no space.
Such a file loses its write permission in both runs: what would change it in place is refused, and what replaces it, as all
of this package does, leaves the other run's as it was. Small files are copies, since a person may want to edit one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from cirf.errors import CirfError

LINKED_FROM = 2**20
"""Bytes from which a file is linked and not copied."""


def share_files(source: Path, target: Path, files: Mapping[str, str]) -> None:
    """Bring ``files`` (names and their SHA-256) of one folder into another.

    Raises ``CirfError`` where one is not there or is not what its hash says.
    """
    for name, digest in files.items():
        try:
            link_or_copy(source / name, target / name)
            with open(target / name, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            raise CirfError(f"{source / name}: not there, though the stage's record names it") from None
        if found != digest:
            raise CirfError(f"{source / name}: changed since the stage was made")


def link_or_copy(source: Path, target: Path) -> None:
    """A second copy of a file: linked and read-only if it is large and links are possible, else copied."""
    target.parent.mkdir(parents=True, exist_ok=True)
    state = source.stat()
    if state.st_size >= LINKED_FROM:
        try:
            os.link(source, target)
            os.chmod(target, state.st_mode & 0o555)
            return
        except FileNotFoundError:
            raise
        except OSError:  # another file system, one without links, or another user's file
            target.unlink(missing_ok=True)
    shutil.copyfile(source, target)
    os.chmod(target, state.st_mode & 0o777 | 0o200)
