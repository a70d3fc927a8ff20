"""What this machine can do at most: the floor that benchmarks compare with.

Each is the best of several tries in the running process, so with its number of threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def matmul_peak(size: int = 1536, tries: int = 6) -> float:
    """Operations a second of a product of float32 matrices."""
    import torch

    one, two = torch.randn(size, size), torch.randn(size, size)
    found = torch.empty(size, size)
    return 2 * size**3 / _best(lambda: torch.mm(one, two, out=found), tries)


def memory_bandwidth(megabytes: int = 256, tries: int = 4) -> float:
    """Bytes a second that a copy reads and writes, in memory no cache holds."""
    import torch

    one = torch.ones(megabytes * 2**18)
    two = torch.empty_like(one)
    return 2 * one.nbytes / _best(lambda: two.copy_(one), tries)


def exponentials(tries: int = 20) -> float:
    """Exponentials of float32 numbers a second, of a block that stays in the cache."""
    import torch

    block = -torch.rand(2**16)
    found = torch.empty_like(block)

    def some() -> None:
        for _ in range(16):
            torch.exp(block, out=found)

    return 16 * len(block) / _best(some, tries)


def read_bandwidth(path: Path, megabytes: int = 256) -> float:
    """Bytes a second of plain reads from the beginning of a file, from the disk or what the system holds of it."""
    room = bytearray(2**20)
    done, started = 0, time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while done < megabytes * 2**20 and (count := file.readinto(room)):
            done += count
    return done / (time.perf_counter() - started)


def available_memory() -> int:
    """Bytes that a new process may take without others being swapped out."""
    try:
        text = Path("/proc/meminfo").read_text()
        return int(next(line for line in text.splitlines() if line.startswith("MemAvailable")).split()[1]) * 1024
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _best(work: Callable[[], object], tries: int) -> float:
    """Processor seconds a thread of the fastest try: other work on the machine does not count."""
    import torch

    seconds = []
    for _ in range(tries):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds) / torch.get_num_threads()
