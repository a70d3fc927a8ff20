"""Files of tensors that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file


def save_whole(tensors: Mapping[str, torch.Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file, with its folder, that takes its place once all of it is written: a kill leaves none, or the one
    that was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, part, dict(metadata or {}))
    os.replace(part, path)
