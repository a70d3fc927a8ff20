"""Linear layers whose weights lie in memory as the processor reads them.

A product with one row reads every weight once and computes next to nothing, so it is as fast as the weights come. In the order
in which a checkpoint has them they come at a third of what memory gives: they are sorted into the processor's blocks at every
call. Here that is done once, by oneDNN, as torch's own compiler does when it freezes a model. In bfloat16 the products have the
same bits as before; in float32 they are rounded otherwise. Such a layer has no gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

SMALLEST = 2**16
"""Weights of a layer below which it stays as it is: the way into oneDNN costs more than it saves."""

_ROWS = 4  # of the input, for which blocks are chosen; the layout serves any number


class PackedLinear(nn.Module):
    """``x W^T + bias`` for x [... x k] of the layer that it is made of, with W [n x k] packed."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach(), persistent=False)
        self._packed = _pack(layer.weight.detach())
        self.held_bytes = layer.weight.nbytes + (0 if layer.bias is None else layer.bias.nbytes)
        """What it takes in memory, none of it parameters; blocks take no more."""

    @property
    def weight(self) -> torch.Tensor:
        """The weights [n x k] as a checkpoint has them, unpacked at every call."""
        dense: torch.Tensor = self._packed.to_dense()
        return dense

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[... x k] -> [... x n]."""
        made: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return made

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """As a linear layer's: what is saved is a plain checkpoint."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = self.weight
        if self.bias is not None:
            destination[f"{prefix}bias"] = self.bias


def pack(model: Any, smallest: int = SMALLEST) -> int:
    """Pack the linear layers of a model that will only answer, in place: how many were packed.

    None on another device than a CPU, or where torch has no oneDNN for the number format of its weights.
    """
    layers = {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and module.weight.numel() >= smallest and _can_pack(module.weight)
    }
    put(model, {name: PackedLinear(layer) for name, layer in layers.items()})
    return len(layers)


def put(model: Any, modules: Mapping[str, nn.Module]) -> None:
    """Put modules in the places of others in a model, by their dotted names."""
    for name, module in modules.items():
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, module)


def _can_pack(weight: torch.Tensor) -> bool:
    if weight.device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    try:
        return bool(torch.equal(_pack(weight.detach()[:8, :8].contiguous()).to_dense(), weight[:8, :8]))
    except (RuntimeError, AttributeError):  # no such operation, or not for this processor and number format
        return False


@torch.no_grad()
def _pack(weight: torch.Tensor) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
    return packed
