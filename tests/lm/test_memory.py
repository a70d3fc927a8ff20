"""Freed memory stays with the process."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from cirf.lm import memory

CODE = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from cirf.lm.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for turn in range(20):
    if turn == 4:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytearray(b"x") * (int(sys.argv[3]) * 2**20) for _ in range(4)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has the switch")
@pytest.mark.parametrize("size", [8, 48])  # MiB, below and above the largest block that a threshold keeps in the heap
def test_memory_asked_for_again_is_not_faulted_in_again(size: int) -> None:
    faults = {}
    for how in ("keep", "default"):
        command = [sys.executable, "-c", CODE, how, str(Path(memory.__file__).parents[2]), str(size)]
        faults[how] = int(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    assert faults["keep"] < faults["default"] / 10, faults


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not memory.keep_freed_memory()
