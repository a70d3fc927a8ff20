"""Products with frozen weights in eight bits, forwards and backwards: a CPU multiplies these several times as fast as floats.

Both sides of a product are rounded: weights with a scale for each row forwards and each column backwards; what they multiply
(a layer's input, or the gradient of its output) with a scale for each position. Sums are exact, in 32 bits. A position is
rounded by itself, so that it does not matter which others stand beside it. The gradient of weights, which no frozen layer has, is
where eight bits were found to be too few (Wortsman et al. 2023, "Stable and low-precision training for large-scale
vision-language models"); those of adapters are computed as before.
"""

from __future__ import annotations

import torch

_LARGEST = 127
_BLOCK = 512  # positions multiplied at once: from some thousand on, a processor was seen to lose half its speed


class Frozen:
    """A frozen matrix [n x k], rounded once for each of its two products: half as much memory again as in float32.

    n and k are at least 2: of products over a single place torch 2.13 returns what it has not written.
    """

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
    if len(x) > _BLOCK:
        return torch.cat([_product(x[first : first + _BLOCK], weight, scales) for first in range(0, len(x), _BLOCK)])
    largest = torch.maximum(x.amax(dim=1, keepdim=True), x.amin(dim=1, keepdim=True).neg_())  # two reads, and no copy of x
    own = largest.float().div_(_LARGEST).clamp_min_(torch.finfo(torch.float32).tiny)
    rounded = (x / own).round_().to(torch.int8)
    return torch._int_mm(rounded, weight).float().mul_(scales).mul_(own).to(x.dtype)


def has_products(device: str) -> bool:
    """Whether int8 matrices are multiplied fast and exactly on a torch device: on x86 processors with AVX512-VNNI.

    Elsewhere torch 2.13 goes through them number by number, tens of times slower than float32, and oneDNN, told by
    ``ONEDNN_MAX_CPU_ISA`` to leave these instructions out, loses what does not fit into 16 bits.
    """
    if torch.device(device).type != "cpu":
        return False
    most = torch.full((4, 32), _LARGEST, dtype=torch.int8)
    most[1::2] = -_LARGEST
    try:
        built = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        allowed = built and bool(torch.backends.mkldnn.enabled) and torch.cpu._is_vnni_supported()
        sides = (most.t().contiguous(), most.t())
        return allowed and all(torch.equal(torch._int_mm(most, side), most.int() @ side.int()) for side in sides)
    except (RuntimeError, AttributeError):
        return False
