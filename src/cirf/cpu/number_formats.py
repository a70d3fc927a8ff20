"""The number format of computation: 16 bits if the processor multiplies them as fast as 32, else float32 with the same values."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch


def computed_in(dtype: str, device: str) -> str:
    """The number format of computation for weights in ``dtype`` on a torch device.

    On many x86 processors products of 16-bit matrices are slower than those of float32, several times if torch converts their
    numbers one by one: in training, for prompts and for batches. Only further tokens of a single answer, which are limited by
    memory, are not. On such processors the weights keep their values in ``dtype``, and everything is computed in float32.
    """
    return "float32" if torch.device(device).type == "cpu" and not is_fast(dtype) else dtype


def widen(model: Any, dtype: str, device: str) -> None:
    """Convert a model loaded in ``dtype`` to float32, in place, if the device needs it."""
    if computed_in(dtype, device) != dtype and not getattr(model, "is_quantized", False):
        model.float()


def is_fast(dtype: str) -> bool:
    """Whether matrices of a number format are multiplied at least as fast as those of float32.

    bfloat16 needs AMX, or AMD's AVX-512 extension for it: Intel's was measured at 82 GFLOPS where float32 had 141, on a core of a
    Xeon whose AMX the hypervisor hides. float16 needs instructions that oneDNN reports; without, that core had 14.
    """
    if dtype == "float32" or platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    if dtype == "float16":
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return _has_amx() or (torch.cpu._is_avx512_bf16_supported() and not _by_intel())


def _has_amx() -> bool:
    """Whether oneDNN multiplies by AMX: the processor has it, and oneDNN is not limited below it."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", "ALL")).upper()
    return torch.cpu._is_amx_tile_supported() and (limit in ("ALL", "DEFAULT") or "AMX" in limit)


def _by_intel() -> bool:
    try:
        name = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        name = platform.processor()
    return "GenuineIntel" in name
