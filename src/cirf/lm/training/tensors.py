"""Files of tensors that are there whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from cirf.store.files import whole_path


def save_whole(tensors: Mapping[str, torch.Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file, with its folder, that takes its place once all of it is written: a kill leaves none, or the one
    that was there before."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    with whole_path(path) as temporary:
        save_file(plain, temporary, dict(metadata) if metadata else None)
