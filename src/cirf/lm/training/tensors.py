"""Tensor files that are complete or absent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from cirf.store.files import whole_path


def save_whole(tensors: Mapping[str, torch.Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file, with its folder, by an atomic rename: a kill leaves no file, or the previous one."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    with whole_path(path) as temporary:
        save_file(plain, temporary, dict(metadata) if metadata else None)
