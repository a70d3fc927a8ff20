"""Freed memory stays with the process. Which number format is computed with, by what a processor can do."""

from __future__ import annotations

import ctypes.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cirf.cpu import memory
from cirf.cpu.number_formats import computed_in

JEMALLOC = ctypes.util.find_library("jemalloc") if platform.system() == "Linux" else None
ALLOCATORS = ["", *([JEMALLOC] if JEMALLOC else [])]


def _run(code: str, preloaded: str, *arguments: str) -> list[int]:
    """The numbers that code prints in a process with an allocator of its own."""
    command = [sys.executable, "-c", code, str(Path(memory.__file__).parents[2]), *arguments]
    started = os.environ | {"LD_PRELOAD": preloaded}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=started)
    return [int(word) for word in done.stdout.split()]


CODE = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from cirf.cpu.memory import keep_freed_memory
if sys.argv[2] == "keep":
    assert keep_freed_memory()
for turn in range(10):
    if turn == 4:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytearray(b"x") * (int(sys.argv[3]) * 2**20) for _ in range(4)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has the switch")
@pytest.mark.parametrize("size", [8, pytest.param(48, marks=pytest.mark.slow)])  # MiB, on both sides of the largest threshold
@pytest.mark.parametrize("preloaded", ALLOCATORS)
def test_memory_asked_for_again_is_not_faulted_in_again(preloaded: str, size: int) -> None:
    faults = {how: _run(CODE, preloaded, how, str(size))[0] for how in ("keep", "default")}
    assert faults["keep"] < faults["default"] / 10, faults


HOLES = """
import sys
sys.path.insert(0, sys.argv[1])
from cirf.cpu.memory import release_freed_memory, keep_freed_memory

def held():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))

assert keep_freed_memory()
blocks = [bytearray(b"x") * 2**20 for _ in range(200)]
blocks = blocks[::8]  # what is left keeps the holes from being given back at the end of the heap
full = held()
assert release_freed_memory()
print(full, held(), sum(block[-1] == ord("x") for block in blocks))
"""


@pytest.mark.skipif(platform.system() != "Linux" or platform.libc_ver()[0] != "glibc", reason="glibc alone has the switch")
@pytest.mark.parametrize("preloaded", ALLOCATORS)
def test_holes_are_handed_back_and_what_is_used_stays(preloaded: str) -> None:
    full, left, whole = _run(HOLES, preloaded)
    assert full - left > 150 * 1024 and whole == 25  # KiB, of 175 MiB of holes


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not memory.keep_freed_memory() and not memory.release_freed_memory()


def test_free_memory_is_the_machines_or_what_its_group_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = memory.free_memory("cpu")
    assert free is not None and free > 2**20
    for name, text in (("memory.max", "1000\n"), ("memory.current", "400\n"), ("memory.stat", "anon 300\ninactive_file 50\n")):
        (tmp_path / name).write_text(text)
    assert memory.free_in_group(tmp_path) == 650
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_in_group(tmp_path) is None and memory.free_in_group(tmp_path / "nowhere") is None
    older = tmp_path / "v1" / "memory"
    older.mkdir(parents=True)
    for name, text in (("memory.limit_in_bytes", "900"), ("memory.usage_in_bytes", "500"),
                       ("memory.stat", "inactive_file 1\ntotal_inactive_file 60")):  # fmt: skip
        (older / name).write_text(text + "\n")
    assert memory.free_in_group(tmp_path / "v1") == 460
    monkeypatch.setattr(memory, "free_in_group", lambda: 7)
    assert memory.free_memory("cpu") == 7
    monkeypatch.setattr(memory, "bytes_of_line", lambda file, name: None)
    monkeypatch.setattr(memory, "free_in_group", lambda: None)
    assert memory.free_memory("cpu") is None


def test_memory_is_scarce_where_a_process_holds_twice_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    held = memory.bytes_of_line("/proc/self/status", "VmRSS")
    assert held is not None and held > 2**20
    for left, expected in ((None, False), (held // 4, True), (held * 4, False)):
        monkeypatch.setattr(memory, "free_memory", lambda device, left=left: left)
        assert memory.scarce() is expected
    monkeypatch.setattr(memory, "free_memory", lambda device: 0)
    monkeypatch.setattr(memory, "bytes_of_line", lambda file, name: None)  # another system
    assert not memory.scarce()


def test_free_memory_of_a_gpu_is_its_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5, 9))
    assert memory.free_memory("cuda:1") == 5


@pytest.mark.parametrize(
    ("machine", "instructions", "extensions", "maker", "bfloat16", "float16"),
    [
        ("x86_64", "AVX512", {"bf16"}, "AuthenticAMD", "bfloat16", "float32"),
        ("AMD64", "AVX512", {"bf16", "fp16"}, "GenuineIntel", "float32", "float16"),
        ("x86_64", "AVX512", {"bf16", "fp16", "amx"}, "GenuineIntel", "bfloat16", "float16"),
        ("x86_64", "AVX512", set(), "GenuineIntel", "float32", "float32"),
        ("x86_64", "AVX512", set(), "AuthenticAMD", "float32", "float32"),
        ("x86_64", "AVX2", {"bf16", "fp16", "amx"}, "AuthenticAMD", "float32", "float32"),  # torch was restricted to AVX2
        ("AMD64", "DEFAULT", set(), "AuthenticAMD", "float32", "float32"),
        ("arm64", "DEFAULT", set(), "", "bfloat16", "float16"),
    ],
)
def test_16_bits_are_computed_with_where_they_are_no_slower(
    monkeypatch: pytest.MonkeyPatch,
    machine: str,
    instructions: str,
    extensions: set[str],
    maker: str,
    bfloat16: str,
    float16: str,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: "amx" in extensions)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: "bf16" in extensions)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", lambda: "fp16" in extensions)
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: f"vendor_id\t: {maker}\n")
    assert computed_in("bfloat16", "cpu") == bfloat16
    assert computed_in("float16", "cpu") == float16
    assert {computed_in("float32", device) for device in ("cpu", "cuda:1", "mps")} == {"float32"}
    assert computed_in("bfloat16", "cuda:1") == computed_in("bfloat16", "mps") == "bfloat16"


def test_a_processor_whose_maker_no_file_shows_is_asked_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr("platform.machine", lambda: "AMD64")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    monkeypatch.setattr("pathlib.Path.read_text", nothing)
    for summary, expected in (
        ("Intel64 Family 6 Model 207 Stepping 2, GenuineIntel", "float32"),
        ("AMD64, AuthenticAMD", "bfloat16"),
    ):
        monkeypatch.setattr("platform.processor", lambda summary=summary: summary)
        assert computed_in("bfloat16", "cpu") == expected
