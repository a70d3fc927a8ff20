"""Memory that is freed and asked for again a moment later."""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # glibc's malloc.h
_STEP = 64 * 2**20  # bytes by which the heap grows


def keep_freed_memory() -> bool:
    """Make this process keep the memory it frees, and say whether that could be done (glibc alone has the switch).

    An update on the CPU casts every weight, makes every gradient and frees both. By default glibc hands that back to the
    system, which clears it page by page when it is wanted again (``benchmarks/updates.py`` says what that costs). The
    process keeps its highest use of memory from then on.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    # No block gets a mapping of its own: glibc would give that back at once, and a threshold for it ends at 32 MiB, while
    # the logits of fifty targets over 150,000 words take as much.
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_TOP_PAD, _STEP))
    return all([library.mallopt(name, value) == 1 for name, value in settings])
