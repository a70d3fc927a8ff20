"""Memory: what is freed and asked for again a moment later, and how much there is."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path
from typing import Any

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # glibc's malloc.h
_SHARE = 4  # of the memory that is left, one part
_STEP = 64 * 2**20  # bytes by which the heap grows


def keep_freed_memory() -> bool:
    """Make this process keep the memory it frees, and say whether that could be done (glibc alone has the switch).

    An update on the CPU casts every weight, makes every gradient and frees both. By default glibc hands that back to the
    system, which clears it page by page when it is wanted again (``benchmarks/updates.py`` says what that costs). The
    process keeps what it frees from then on, more with every update that fits badly into it, until `hand_back`.
    """
    library = _glibc()
    if library is None:
        return False
    # No block gets a mapping of its own: glibc would give that back at once, and a threshold for it ends at 32 MiB, while
    # the logits of fifty targets over 150,000 words take as much.
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_TOP_PAD, _STEP))
    return all([library.mallopt(name, value) == 1 for name, value in settings])


def hand_back() -> bool:
    """Give freed memory that is kept back to the system for once, and say whether there was any (of glibc alone is it known).

    Among blocks of ever new sizes holes are left that fit no more, so that a process which hands back nothing grows.
    """
    library = _glibc()
    return library is not None and library.malloc_trim(0) == 1


def scarce() -> bool:
    """Whether this process holds more than twice what the machine, or its control group, has left; false where nobody tells."""
    left, held = free_memory("cpu"), _kibibytes("/proc/self/status", "VmRSS")
    return left is not None and held is not None and held > 2 * left


def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


def weight_bytes(model: Any) -> int:
    """Bytes of a model's weights in memory, whatever form its layers hold them in (their ``held_bytes``, if not parameters)."""
    plain = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return int(plain + sum(getattr(module, "held_bytes", 0) for module in model.modules()))


def free_memory(device: str) -> int | None:
    """Bytes that a torch device can still give this process; ``None`` where nobody tells.

    Of a GPU what its driver calls free; else of the machine, or of the control group (a container) where that has less left.
    """
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    known = [_kibibytes("/proc/meminfo", "MemAvailable"), _group_leaves()]
    return min((size for size in known if size is not None), default=None)


def spare(device: str) -> int:
    """Bytes to keep what is made once and read often in: a quarter of the memory that is left, by the processes of one training
    that share it; 0 where nobody tells how much there is."""
    sharing = 1 if device.startswith("cuda") else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return (free_memory(device) or 0) // (_SHARE * sharing)


def _kibibytes(file: str, name: str) -> int | None:
    """Bytes that a line such as ``VmRSS:  12 kB`` of a file tells; ``None`` where there is no such line or file."""
    try:
        lines = dict(line.split(":", 1) for line in Path(file).read_text().splitlines())
        return int(lines[name].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def _group_leaves(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What a control group leaves of its limit; memory that holds files can be had back."""
    second = _leaves(folder / "memory.max", folder / "memory.current", "inactive_file")
    if second is not None:
        return second
    first = folder / "memory"  # version 1 has a folder for each kind of thing that it limits
    return _leaves(first / "memory.limit_in_bytes", first / "memory.usage_in_bytes", "total_inactive_file")


def _leaves(limit: Path, used: Path, files: str) -> int | None:
    try:
        held = dict(line.split() for line in (limit.parent / "memory.stat").read_text().splitlines())
        return int(limit.read_text()) - int(used.read_text()) + int(held.get(files, 0))
    except (OSError, ValueError):  # no such group, or no limit (version 2: "max"; version 1: a number beyond all memory)
        return None
