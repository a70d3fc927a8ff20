"""The one exception for users, and detection of libraries' errors for a full disk or a lost process."""

from __future__ import annotations

import errno
import os

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SIGNS = (
    "no space left",
    "os error 28",
    "file write failed",
    "unexpected pos",
    "pytorchstreamwriter failed",
    "iostream error",
)
_WHILE_SAVING = ("disk quota", "writing file", "file too large")
"""Also used for other errors if nothing is being saved."""
_LOST = ("connection reset by peer", "connection closed by peer", "broken pipe", "remote process exited", "was likely closed")
"""Messages of gloo, NCCL and torch's store about a lost process."""


class CirfError(Exception):
    """An error in the input or the environment, described in one sentence.

    The message names the file, row or key at fault and what to do about it. The command line prints it on
    one line and ends with exit code 2; nothing finished is lost.
    """


def is_disk_full(error: BaseException, saving: bool = False) -> bool:
    """Whether an exception says that nothing more can be written: torch, safetensors and tokenizers have their own messages.

    ``saving``: it is known that something was being written.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _FULL
    return any(sign in str(error).lower() for sign in (*_SIGNS, *(_WHILE_SAVING if saving else ())))


def is_lost_process(error: BaseException) -> bool:
    """Whether an exception says that another process of the same run is gone: each process gets it where it next waits."""
    if isinstance(error, OSError) or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return False
    return any(sign in str(error).lower() for sign in _LOST)
