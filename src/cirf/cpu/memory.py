"""Memory: reuse of freed blocks, and how much is available."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cirf.errors import CirfError

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # glibc's malloc.h
_EVERY_ARENA = 4096  # jemalloc's MALLCTL_ARENAS_ALL
_SHARE = 4  # of the memory that is left, one part
_STEP = 64 * 2**20  # bytes by which the heap grows


def keep_freed_memory() -> bool:
    """Make this process keep the memory it frees; returns whether that is possible (with glibc, or with jemalloc if the process
    was started with it: ``LD_PRELOAD``).

    An update on the CPU casts every weight, makes every gradient and frees both. By default that goes back to the system, which
    clears it page by page when it is needed again (``benchmarks/updates.py`` measures the cost). From then on the process keeps
    freed memory, more with every update due to fragmentation, until `release_freed_memory`.
    """
    if (preloaded := _jemalloc()) is not None:
        return _never_decay(preloaded)
    library = _glibc()
    if library is None:
        return False
    # No block gets its own mapping: glibc would return that at once, and a threshold for it ends at 32 MiB, while
    # the logits of fifty targets over 150,000 words take as much.
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_TOP_PAD, _STEP))
    return all([library.mallopt(name, value) == 1 for name, value in settings])


def release_freed_memory() -> bool:
    """Return kept freed memory to the system once; returns whether that was possible, with glibc whether there was any. Blocks of
    ever new sizes leave holes that no longer fit, so a process that returns nothing grows."""
    if (preloaded := _jemalloc()) is not None:
        return _control(preloaded, f"arena.{_EVERY_ARENA}.purge")
    library = _glibc()
    return library is not None and library.malloc_trim(0) == 1


def _jemalloc() -> ctypes.CDLL | None:
    """The allocator of this process, if that is jemalloc."""
    own = ctypes.CDLL(None) if os.name == "posix" else None
    return own if hasattr(own, "mallctl") else None


def _never_decay(library: ctypes.CDLL) -> bool:
    """Make jemalloc keep all freed memory: in future arenas, then in existing ones, of which not every number is in use."""
    count = ctypes.c_uint()
    size = ctypes.c_size_t(ctypes.sizeof(count))
    if library.mallctl(b"arenas.narenas", ctypes.byref(count), ctypes.byref(size), None, ctypes.c_size_t(0)):
        return False
    kinds = ("dirty_decay_ms", "muzzy_decay_ms")
    kept = all([_control(library, f"arenas.{kind}", ctypes.c_ssize_t(-1)) for kind in kinds])
    for arena, kind in itertools.product(range(count.value), kinds):
        _control(library, f"arena.{arena}.{kind}", ctypes.c_ssize_t(-1))
    return kept


def _control(library: ctypes.CDLL, name: str, value: Any = None) -> bool:
    """Write one of jemalloc's settings, or run its action; returns whether it was accepted."""
    given = (None, 0) if value is None else (ctypes.byref(value), ctypes.sizeof(value))
    return bool(library.mallctl(name.encode(), None, None, given[0], ctypes.c_size_t(given[1])) == 0)


def scarce() -> bool:
    """Whether this process holds more than twice what the machine, or its control group, has left; false if unknown."""
    left, held = free_memory("cpu"), bytes_of_line("/proc/self/status", "VmRSS")
    return left is not None and held is not None and held > 2 * left


def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


@contextlib.contextmanager
def enough(refusal: str) -> Iterator[None]:
    """Within, a lack of memory is a ``CirfError`` that says ``refusal``."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise CirfError(refusal) from None


def weight_bytes(model: Any) -> int:
    """Bytes of a model's weights in memory, in whatever form its layers hold them (their ``held_bytes``, if not parameters)."""
    plain = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return int(plain + sum(getattr(module, "held_bytes", 0) for module in model.modules()))


def free_memory(device: str) -> int | None:
    """Bytes that a torch device can still give this process; ``None`` if unknown. For a GPU the driver's free memory; else that
    of the machine, or of the control group (a container) if less."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    known = [bytes_of_line("/proc/meminfo", "MemAvailable"), free_in_group()]
    return min((size for size in known if size is not None), default=None)


def spare(device: str) -> int:
    """Bytes for caches: a quarter of the free memory, divided by the processes of one training that share it; 0 if unknown."""
    sharing = 1 if device.startswith("cuda") else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return (free_memory(device) or 0) // (_SHARE * sharing)


def bytes_of_line(file: str, name: str) -> int | None:
    """Bytes that a line such as ``VmRSS:  12 kB`` of a file gives; ``None`` without such a line or file."""
    try:
        lines = dict(line.split(":", 1) for line in Path(file).read_text().splitlines())
        return int(lines[name].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def free_in_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The free memory of a control group; its file cache counts as free."""
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
