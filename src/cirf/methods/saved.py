"""The files next to a saved model that reasons in vectors of either kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cirf.lm.decoding.prefix_cache import Prefiller
from cirf.methods.latent.decode import read_latent, thinking
from cirf.methods.soft.guide import GuidedPrefiller, read_soft, saved_guide


def vectors_of(folder: Path) -> int:
    """How many vectors the model in a folder has before it answers: its own thoughts, or those of a guide; 0: none.
    ``CirfError`` for a damaged file."""
    latent, soft = read_latent(folder), read_soft(folder)
    return latent.count if latent is not None else soft.count if soft is not None else 0


def saved_beginnings(folder: Path, model: Any, tokenizer: Any) -> Prefiller | None:
    """How the prompts to a saved model begin, by the files next to it; ``None``: token by token."""
    latent, soft = read_latent(folder), read_soft(folder)
    if latent is not None:
        return thinking(model, tokenizer, latent, folder)
    return None if soft is None else GuidedPrefiller(model, tokenizer, soft, saved_guide(folder, soft, model))
