"""What a run stands on: versions, hardware, the cache of bundled models."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "torch",
    "transformers",
    "accelerate",
    "peft",
    "sentence-transformers",
    "datasets",
    "numpy",
    "scikit-learn",
    "safetensors",
)


def describe() -> dict[str, Any]:
    """A JSON-able description of this machine and its packages."""
    from cirf import __version__
    from cirf.assets import cache_folder, listing

    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
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
        "packages": versions,
    }


def processor(device: str) -> str:
    """The name of what computes on a torch device: of the CPU, or of the accelerator."""
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
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()} ({torch.cuda.device_count()})"
    return "mps" if torch.backends.mps.is_available() else "none"
