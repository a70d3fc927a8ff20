"""A cache for the prompts of rows, up to their vectors, in a model that is not trained: computed once for all passes.

On a CPU each beginning is read by itself, so its values depend on nothing else: a training resumed after a kill computes the
same, whether anything was cached or not. On an accelerator one row takes as long as a batch, so the rows of a batch that are not
cached are read together. If there is too little room, those that came first stay cached and the others are read every time: rows
come once per epoch, so evicting the least recently used would never hit.
"""

from __future__ import annotations

from typing import Any

import torch

from cirf.cpu.memory import spare
from cirf.lm.decoding.prefix_cache import Layers, is_plain, joined
from cirf.lm.training.loss import only_at, unwrap
from cirf.methods.latent.loop import padded_left


class PromptCache:
    """Keys and values of beginnings, by their ids."""

    def __init__(self, most_bytes: int | None = None, together: bool | None = None) -> None:
        """``most_bytes``: keys and values that are kept; ``None``: what is to `spare` at first. ``together``: read the rows of a
        batch in one pass; ``None``: but on a CPU."""
        self._most_bytes, self._together = most_bytes, together
        self.kept: dict[tuple[int, ...], Layers] = {}
        self._bytes = 0
        self._plain: bool | None = None
        self._tried = False

    @torch.no_grad()
    def cache(self, model: Any, rows: list[list[int]]) -> Any:
        """A cache of beginnings of at least one id each, padded on the left; to be written to as one likes.

        A model that draws at random in training, or keeps its past otherwise than key by key (sliding windows), reads all rows
        in one pass every time.
        """
        device = unwrap(model).device
        if unwrap(model).training and not self._tried:
            self._tried = True
            if _draws(model, rows[0]):
                self._plain = False
                self.kept.clear()
        if self._plain is not False:
            known = self._layers(model, list(map(tuple, rows)))
            if known is not None:
                return joined(known, max(map(len, rows)))
        return _read(model, *(part.to(device) for part in padded_left(rows, rows[0][0])))

    def _layers(self, model: Any, rows: list[tuple[int, ...]]) -> list[Layers] | None:
        """Keys and values of rows; ``None`` where they cannot be had apart."""
        device = unwrap(model).device
        together = device.type != "cpu" if self._together is None else self._together
        new = [row for row in dict.fromkeys(rows) if row not in self.kept]
        made: dict[tuple[int, ...], Layers] = {}
        for batch in [new] * bool(new) if together else [[row] for row in new]:
            ids, mask = (part.to(device) for part in padded_left(batch, batch[0][0]))
            cache = _read(model, ids, mask)
            if self._plain is None:
                self._plain = is_plain(cache)
            if not self._plain:
                return None
            for place, row in enumerate(batch):
                made[row] = [_row(layer.keys, layer.values, place, len(row)) for layer in cache.layers]
                self._keep(row, made[row], str(device))
        return [self.kept.get(row) or made[row] for row in rows]

    def _keep(self, row: tuple[int, ...], layers: Layers, device: str) -> None:
        if self._most_bytes is None:
            self._most_bytes = spare(device)
        size = sum(part.nbytes for pair in layers for part in pair)
        if self._bytes + size <= self._most_bytes:
            self.kept[row] = layers
            self._bytes += size


def _row(keys: torch.Tensor, values: torch.Tensor, place: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One row [1 x heads x length x width] out of a batch padded on the left, without the rest of the batch's memory."""
    first, last = (part[place : place + 1, :, part.shape[2] - length :] for part in (keys, values))
    return (first, last) if first.shape == keys.shape else (first.clone(), last.clone())


def _read(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> Any:
    places = (mask.cumsum(dim=1) - 1).clamp(min=0)
    with only_at(model, torch.empty(0, dtype=torch.long, device=ids.device)):
        return unwrap(model)(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=True).past_key_values


def _draws(model: Any, row: list[int]) -> bool:
    """Whether a model draws at random while it reads, as one with dropout does in training. What is drawn later is as if
    nothing had been drawn here."""
    device = unwrap(model).device
    sources = [torch, *([] if device.type == "cpu" else [torch.get_device_module(device)])]
    before = [source.get_rng_state() for source in sources]
    _read(model, torch.tensor([row], device=device), torch.ones(1, len(row), dtype=torch.long, device=device))
    moved = not all(torch.equal(state, source.get_rng_state()) for state, source in zip(before, sources, strict=True))
    for state, source in zip(before, sources, strict=True):
        source.set_rng_state(state)
    return moved
