"""What rows begin with, before their vectors, in a model that is not trained: read once and kept, for all passes over them.

A beginning is read by itself, so that what is made of it hangs on nothing else: a training that goes on after a kill computes
what it would have computed, whether anything was kept or not. Of more than fit into a quarter of the memory that is left the
first ones are kept, and the others are read every time: rows come round once a pass, so what was used last is what comes last.
"""

from __future__ import annotations

from typing import Any

import torch

from cirf.lm.latent import padded_left
from cirf.lm.loss import only_at, unwrap
from cirf.lm.memory import free_memory
from cirf.lm.prefix import Layers, is_plain, joined

_SHARE = 4  # of the memory that is left, one part


class Heads:
    """Keys and values of beginnings, by their ids."""

    def __init__(self, most_bytes: int | None = None) -> None:
        """``most_bytes``: keys and values that are kept; ``None``: a quarter of the memory that is left at first."""
        self._most_bytes = most_bytes
        self._kept: dict[tuple[int, ...], Layers] = {}
        self._bytes = 0
        self._plain = True

    @torch.no_grad()
    def cache(self, model: Any, rows: list[list[int]]) -> Any:
        """A cache of beginnings of at least one id each, padded on the left; to be written to as one likes.

        A model that draws at random in training, or keeps its past otherwise than key by key (sliding windows), reads all rows
        in one pass every time.
        """
        if self._plain and not _draws(unwrap(model)):
            known = [self._layers(model, tuple(row)) for row in rows]
            if self._plain:
                return joined(known, max(map(len, rows)))
        ids, mask = (part.to(unwrap(model).device) for part in padded_left(rows, rows[0][0]))
        return _read(model, ids, mask)

    def _layers(self, model: Any, row: tuple[int, ...]) -> Layers:
        if not self._plain:
            return []
        if row in self._kept:
            return self._kept[row]
        ids = torch.tensor([row], device=unwrap(model).device)
        cache = _read(model, ids, torch.ones_like(ids))
        self._plain = is_plain(cache)
        if not self._plain:
            self._kept.clear()
            return []
        made = [(layer.keys, layer.values) for layer in cache.layers]
        if self._most_bytes is None:
            self._most_bytes = (free_memory(str(ids.device)) or 0) // _SHARE
        size = sum(part.nbytes for pair in made for part in pair)
        if self._bytes + size <= self._most_bytes:
            self._kept[row] = made
            self._bytes += size
        return made


def _read(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> Any:
    places = (mask.cumsum(dim=1) - 1).clamp(min=0)
    with only_at(model, torch.empty(0, dtype=torch.long, device=ids.device)):
        return unwrap(model)(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=True).past_key_values


def _draws(model: Any) -> bool:
    """Whether a model that is being trained drops out something: what it makes of a beginning is another each time."""
    parts = model.modules() if model.training else ()
    return any(
        (isinstance(part, torch.nn.modules.dropout._DropoutNd) and part.p > 0) or getattr(part, "attention_dropout", 0)
        for part in parts
    )
