"""Linear layers with weights of eight bits: a CPU reads them in half the time of sixteen. An option, for answers change with it.

Each row of a matrix has a scale of its own, its largest weight over 127, and weights are rounded to the nearest of its multiples.
What a layer reads is rounded to bfloat16. The product is torch's own of int8 weights, made for answers written one by one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from cirf.errors import CirfError
from cirf.lm.packed import SMALLEST

_COLUMNS, _ROWS = (
    64,
    4,
)  # torch's product reads as many at once, and beyond a matrix of other sizes: zeros fill it up

FEW = 16
"""Rows up to which the weights are read as int8; for more, such as a prompt's, a product in the format of the rows is quicker."""


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
        filled = nn.functional.pad(rounded, (0, self._more, 0, -self.out_features % _ROWS))
        self._int8, self._scale = filled, nn.functional.pad(scale, (0, len(filled) - len(scale)))
        self._bias = None if layer.bias is None else layer.bias.detach()
        self._dtype = layer.weight.dtype

    @property
    def weight(self) -> torch.Tensor:
        """The weights [n x k] as they are computed with, in the number format of the layer's own."""
        n, k = self.out_features, self.in_features
        return self._int8[:n, :k].to(self._dtype) * self._scale[:n, None].to(self._dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[... x k] -> [... x n]."""
        rows = x.reshape(-1, self.in_features)
        if len(rows) > FEW:
            made = torch.nn.functional.linear(rows, self.weight.to(x.dtype))
        else:
            read = nn.functional.pad(rows.to(torch.bfloat16), (0, self._more)) if self._more else rows.to(torch.bfloat16)
            made = torch._weight_int8pack_mm(read.contiguous(), self._int8, self._scale)[:, : self.out_features].to(x.dtype)
        made = made if self._bias is None else made + self._bias
        return made.reshape(*x.shape[:-1], self.out_features)


def quantise(model: Any, smallest: int = SMALLEST) -> int:
    """Have the linear layers of a model that will only answer hold int8, in place: how many do.

    Embeddings, norms, and layers of fewer than ``smallest`` weights stay as they are. ``CirfError`` where the model is on another
    device than a CPU, this torch has no such product, or the model has no such layers.
    """
    layers = {
        name: module for name, module in model.named_modules() if type(module) is nn.Linear and module.weight.numel() >= smallest
    }
    if any(layer.weight.device.type != "cpu" for layer in layers.values()):
        raise CirfError("int8 weights are for CPUs; set backbone.device to cpu, or leave the weights as they are saved")
    if not _is_there():
        raise CirfError("this torch has no product of int8 weights; leave the weights as they are saved, or install torch 2.13")
    if not layers:
        raise CirfError("this model has no linear layers to hold as int8; leave the weights as they are saved")
    for name, layer in layers.items():
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, Int8Linear(layer))
    return len(layers)


def _is_there() -> bool:
    """Whether this torch has the product, and it computes what it should."""
    try:
        layer = nn.Linear(32, 32, bias=False)
        layer.weight.data.copy_(torch.eye(32))
        x = torch.arange(32.0)[None]
        with torch.no_grad():
            return torch.allclose(Int8Linear(layer)(x), x, rtol=0.02)
    except (RuntimeError, AttributeError):
        return False


def settle_weights(model: Any, weights: str) -> None:
    """Bring a model that will only answer into the form that answers quickest: packed, or as ``int8`` if that is asked for."""
    from cirf.lm.packed import pack

    if weights == "int8":
        quantise(model)
    else:
        pack(model)
