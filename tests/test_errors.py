"""How libraries say that a disk is full."""

from __future__ import annotations

import errno

import pytest
from safetensors import SafetensorError

from cirf.errors import CirfError, tells_of_a_full_disk

FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    OSError(errno.EFBIG, "File too large"),
    OSError("I/O error: No space left on device (os error 28)"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
    RuntimeError("PytorchStreamWriter failed writing file data/3: file write failed"),
    RuntimeError("basic_ios::clear: iostream error"),
    Exception("No space left on device (os error 28)"),
]
OTHER = [
    OSError(errno.EACCES, "Permission denied"),
    FileNotFoundError(errno.ENOENT, "No such file or directory", "no space left"),
    RuntimeError("The size of tensor a (3) must match"),
    CirfError("the recipe has no tasks"),
    OSError("413 Client Error: File too large for url"),
    ValueError("recipe key 'disk quota' unknown"),
]


@pytest.mark.parametrize("error", FULL, ids=repr)
def test_a_full_disk_is_known_by_any_of_its_names(error: Exception) -> None:
    assert tells_of_a_full_disk(error)


@pytest.mark.parametrize("error", OTHER, ids=repr)
def test_nothing_else_is_taken_for_one(error: Exception) -> None:
    assert not tells_of_a_full_disk(error)


def test_while_something_is_saved_more_words_tell() -> None:
    error = RuntimeError("error writing file model.safetensors")
    assert tells_of_a_full_disk(error, saving=True) and not tells_of_a_full_disk(error)
