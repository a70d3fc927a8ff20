"""Checkpoints to resume training from: the last complete one is used, however the process ended."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from cirf.errors import CirfError, is_disk_full
from cirf.store.files import write_atomic

_MARKER = "complete"


def complete(folder: Path) -> None:
    """Mark a checkpoint's folder as complete and remove older checkpoints."""
    write_atomic(folder / _MARKER, "")
    for other in folder.parent.glob("checkpoint-*"):
        if other != folder:
            shutil.rmtree(other)


def latest(root: Path) -> Path | None:
    """The complete checkpoint of the most updates, if there is one."""
    whole = [folder for folder in root.glob("checkpoint-*") if (folder / _MARKER).exists()]
    return max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)


def clean(root: Path) -> None:
    """Remove what a kill left half written."""
    for folder in root.glob("checkpoint-*"):
        if not (folder / _MARKER).exists():
            shutil.rmtree(folder)


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """A disk that is full or cannot be written to, as one sentence (torch and safetensors hide it in their own errors)."""
    try:
        yield
    except CirfError:
        raise
    except Exception as error:
        words = str(error)
        if is_disk_full(error, saving=True) or (isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES)):
            free = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists())).free
            room = f"{free / 1e6:,.0f} MB are free ({(words or type(error).__name__).splitlines()[0][:80]})"
            raise CirfError(f"{folder}: cannot write there, {room}; free some space and run the same command again") from error
        raise
