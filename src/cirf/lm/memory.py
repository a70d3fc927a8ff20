"""Memory that is freed and asked for again a moment later."""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # glibc's malloc.h
_MOST = 32 * 2**20  # the largest threshold that glibc takes on 64 bits


def keep_freed_memory() -> bool:
    """Make this process keep the memory it frees, and say whether that could be done (glibc alone has the switch).

    An update on the CPU casts every weight, makes every gradient and frees both. By default glibc hands that back to the
    system, which clears it page by page when it is wanted again: an eighth of the time of a small model's update in
    ``benchmarks/updates.py``. The process keeps its highest use of memory from then on.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    settings = ((_M_MMAP_THRESHOLD, _MOST), (_M_TRIM_THRESHOLD, -1), (_M_TOP_PAD, 2 * _MOST))
    return all([library.mallopt(name, value) == 1 for name, value in settings])
