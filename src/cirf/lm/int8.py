"""Linear layers with weights of eight bits: a CPU reads them in half the time of sixteen. An option, for answers change with it.

Each row of a matrix has a scale of its own, its largest weight over 127, and weights are rounded to the nearest of its multiples.
The product is torch's own of int8 weights, which rounds what a layer reads to bfloat16: it is made for answers written alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from cirf.errors import CirfError
from cirf.lm.grouped_attention import group_queries
from cirf.lm.packed import SMALLEST, pack, put

_COLUMNS, _ROWS = 64, 4  # torch's product reads as many at once, and beyond a matrix of other sizes: zeros fill it up

FEW = 32
"""Rows up to which the weights are read as int8; for more, such as a prompt's, they are turned back a block at a time."""

_BLOCK = 8192  # rows of a matrix that are turned back at once


class Int8Linear(nn.Module):
    """``x W^T + bias`` for x [... x k] of the layer that it is made of, with W [n x k] as int8 and a scale a row. No gradient."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        weight = layer.weight.detach().float()
        scale = (weight.abs().amax(dim=1) / 127).to(torch.bfloat16)  # rounded before it is used, not after
        scale[scale == 0] = 1  # a row of zeros
        rounded = (weight / scale.float()[:, None]).round().clamp(-127, 127).to(torch.int8)
        self._more = -self.in_features % _COLUMNS
        self._int8 = nn.functional.pad(rounded, (0, self._more, 0, -self.out_features % _ROWS)).contiguous()
        self._scale = nn.functional.pad(scale, (0, len(self._int8) - len(scale)))
        self._bias = None if layer.bias is None else layer.bias.detach()
        self._dtype = layer.weight.dtype
        held = (self._int8, self._scale, self._bias)
        self.held_bytes = sum(part.nbytes for part in held if part is not None)
        """What it takes in memory, none of it parameters."""

    @property
    def weight(self) -> torch.Tensor:
        """The weights [n x k] as they are computed with, in the number format of the layer's own."""
        return self._dense(slice(0, self.out_features), self._dtype)

    def _dense(self, rows: slice, dtype: torch.dtype) -> torch.Tensor:
        scaled = self._int8[rows, : self.in_features].float().mul_(self._scale[rows, None].float())
        return scaled.to(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[... x k] -> [... x n]."""
        rows, n = x.reshape(-1, self.in_features), self.out_features
        if len(rows) > FEW:
            blocks = [slice(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]
            made = torch.cat([rows @ self._dense(block, x.dtype).t() for block in blocks], dim=1)
        else:
            read = nn.functional.pad(rows.to(torch.bfloat16), (0, self._more)).contiguous()
            made = torch._weight_int8pack_mm(read, self._int8, self._scale)[:, :n].to(x.dtype)
        made = made if self._bias is None else made + self._bias
        return made.reshape(*x.shape[:-1], n)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        raise RuntimeError("a model whose weights are held in int8 is for answering: it is not saved")


def quantise(model: Any, smallest: int = SMALLEST) -> int:
    """Have the linear layers of a model that will only answer hold int8, in place: how many do.

    Embeddings, norms, and layers of fewer than ``smallest`` weights stay as they are. ``CirfError`` where `check_int8` has one,
    or where most of the model's weights are not in such layers.
    """
    layers = {
        name: module for name, module in model.named_modules() if type(module) is nn.Linear and module.weight.numel() >= smallest
    }
    for layer in layers.values():
        check_int8(str(layer.weight.device))
    looked_up = model.get_input_embeddings().weight if hasattr(model, "get_input_embeddings") else None
    every = sum(value.numel() for value in model.parameters() if value is not looked_up)
    held = sum(layer.weight.numel() for layer in layers.values() if layer.weight is not looked_up)
    if not layers or held < every / 2:
        told = f"{held:,} of this model's {every:,} weights could be held as int8"
        raise CirfError(f"{told}, which is too few; leave them as they are saved")
    put(model, {name: Int8Linear(layer) for name, layer in layers.items()})
    return len(layers)


def check_int8(device: str) -> None:
    """``CirfError`` where weights cannot be held as int8: on another device than a CPU, or this torch has no such product."""
    if torch.device(device).type != "cpu":
        raise CirfError(f"int8 weights are for CPUs, and the model is on {device}; leave the weights as they are saved")
    if not _is_there():
        raise CirfError("this torch has no product of int8 weights; leave the weights as they are saved, or install torch 2.13")


def _is_there() -> bool:
    """Whether this torch has the product, and it computes what it should."""
    try:
        one = torch.eye(_COLUMNS, dtype=torch.bfloat16)
        found = torch._weight_int8pack_mm(one, (2 * one).to(torch.int8), torch.full((_COLUMNS,), 0.5, dtype=torch.bfloat16))
        return torch.equal(found, one)
    except (RuntimeError, AttributeError):
        return False


def settle_weights(model: Any, weights: str, attention: str = "auto") -> None:
    """Bring a model that will only answer into the form that answers quickest: queries grouped, unless ``attention`` names a
    kernel, and weights packed, or as ``int8`` if that is asked for."""
    if attention == "auto":
        group_queries(model)
    if weights == "int8":
        quantise(model)
    else:
        pack(model)
