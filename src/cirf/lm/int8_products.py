"""Products with frozen weights in eight bits, forwards and backwards: a CPU multiplies these several times as fast as floats.

Both sides of a product are rounded: weights with a scale for each row forwards and each column backwards; what they multiply
(a layer's input, or the gradient of its output) with a scale for each position. Sums are exact, in 32 bits. A position is
rounded by itself, so that it does not matter which others stand beside it. The gradient of weights, which no frozen layer has, is
where eight bits were found to be too few (Wortsman et al. 2023, "Stable and low-precision training for large-scale
vision-language models"); those of adapters are computed as before.
"""

from __future__ import annotations

import torch

from cirf.errors import CirfError

_LARGEST = 127


class Frozen:
    """A frozen matrix [n x k], n and k at least 2, rounded once for each of its two products: half as much memory again as in
    float32. (With an inner size of 1 torch 2.13 returns what it has not written.)"""

    def __init__(self, weight: torch.Tensor) -> None:
        self._rows, self._row_scales = _rounded_along(weight, 1)
        self._columns, self._column_scales = _rounded_along(weight, 0)

    def forwards(self, x: torch.Tensor) -> torch.Tensor:
        """``x W^T`` [m x n] of x [m x k], in the format of x."""
        return _product(x, self._rows.t(), self._row_scales)

    def backwards(self, gradient: torch.Tensor) -> torch.Tensor:
        """``gradient W`` [m x k] of a gradient [m x n], in its format."""
        return _product(gradient, self._columns, self._column_scales)


def _rounded_along(weight: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix as int8, and the scales of what lies along ``dim`` together."""
    weight = weight.detach().float()
    scales = weight.abs().amax(dim=dim, keepdim=True).div_(_LARGEST)
    scales[scales == 0] = 1
    return (weight / scales).round_().to(torch.int8), scales.flatten()


def _product(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """x [m x a] times rounded weights [a x b] with scales [b]; a number that is none makes its row such numbers."""
    largest = torch.maximum(x.amax(dim=1, keepdim=True), x.amin(dim=1, keepdim=True).neg_())  # two reads, and no copy of x
    own = largest.float().div_(_LARGEST).clamp_min_(torch.finfo(torch.float32).tiny)
    rounded = (x / own).round_().to(torch.int8)
    return torch._int_mm(rounded, weight).float().mul_(scales).mul_(own).to(x.dtype)


def check_products(device: str) -> None:
    """``CirfError`` where products of int8 cannot be had: on another device than a CPU, or this torch makes others."""
    if torch.device(device).type != "cpu":
        raise CirfError(f"finetune.weights: int8 is for CPUs, and the training is on {device}; set it to saved")
    if not _are_there():
        raise CirfError("finetune.weights: this torch has no product of int8 matrices; set it to saved, or install torch 2.13")


def _are_there() -> bool:
    """Whether this torch multiplies matrices of int8, also where one lies the other way round."""
    one = torch.arange(-9, 9, dtype=torch.int8).reshape(2, 9)
    try:
        return torch.equal(torch._int_mm(one, one.t()), one.int() @ one.int().t())
    except (RuntimeError, AttributeError):
        return False
