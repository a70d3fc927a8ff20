"""What a processor computes in: 16 bits where it multiplies them as fast as 32, else float32 with the values they had."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch


def computed_in(dtype: str, device: str) -> str:
    """The number format that weights in ``dtype`` are computed with on a torch device.

    On many x86 processors products of 16-bit matrices are slower than those of float32, several times where torch has to take
    their numbers apart one by one: training, reading prompts and answering in batches are. Only further tokens of a single
    answer, which wait for the weights to come from memory, are not. There the weights keep the values that they have in
    ``dtype``, and everything is computed in float32.
    """
    return "float32" if torch.device(device).type == "cpu" and not _multiplies(dtype) else dtype


def widen(model: Any, dtype: str, device: str) -> None:
    """Have a model that was loaded in ``dtype`` computed in float32, in place, where the device asks for it."""
    if computed_in(dtype, device) != dtype and not getattr(model, "is_quantized", False):
        model.float()


def _multiplies(dtype: str) -> bool:
    """Whether matrices of a number format are multiplied at least as fast as those of float32.

    bfloat16 needs AMX, or AMD's AVX-512 extension for it: Intel's was measured at 82 GFLOPS where float32 had 141, on a core of a
    Xeon whose AMX the hypervisor hides. float16 needs oneDNN's word that it has instructions for it; without, that core had 14.
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
    summary = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", "ALL")).upper()
    return torch.cpu._is_amx_tile_supported() and (summary in ("ALL", "DEFAULT") or "AMX" in summary)


def _by_intel() -> bool:
    """Whether the processor is Intel's."""
    try:
        summary = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        summary = platform.processor()
    return "GenuineIntel" in summary
