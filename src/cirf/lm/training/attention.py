"""The attention kernel of a training."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

SHORT = 256
"""Tokens of a row up to which plain attention is chosen: its memory grows with their square."""


@contextlib.contextmanager
def for_rows(model: Any, longest: int, device: str) -> Iterator[None]:
    """Give a model the kernel that trains fastest on rows of at most ``longest`` tokens, and its own back in the end.

    On the CPU that is plain attention for short rows: there the fused kernel spends more time on its blocks than the products
    take (``benchmarks/updates.py``). Everywhere else it is what the model has.
    """
    before = getattr(model.config, "_attn_implementation", None)
    if torch.device(device).type != "cpu" or longest > SHORT or before != "sdpa":
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)
