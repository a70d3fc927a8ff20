"""Products with frozen weights in eight bits, forwards and backwards: a CPU multiplies these several times as fast as floats.

Both sides of a product are rounded: weights with a scale for each row forwards and each column backwards; what they multiply
(a layer's input, or the gradient of its output) with a scale for each position. Sums are exact, in 32 bits. A position is
rounded by itself, so that it does not matter which others stand beside it. The gradient of weights, which no frozen layer has, is
where eight bits were found to be too few (Wortsman et al. 2023, "Stable and low-precision training for large-scale
vision-language models"); those of adapters are computed as before.

With AVX512-VNNI four products are added up in 32 bits at once. Without it, processors add two in 16 bits first, which is exact
only if one side is short of a bit: there weights have seven, whole numbers from -64 to 64.
"""

from __future__ import annotations

import torch

from cirf.lm.number_formats import has_amx

_LARGEST = 127
_SHORT = 64  # the largest weight of seven bits: of two products, 2 x 255 x 64 is the most, and fits into 16 bits
_ZERO = 128  # what stands for zero where numbers have no sign
_BLOCK = 512  # positions multiplied at once: from some thousand on, a processor was seen to lose half its speed


class Frozen:
    """A frozen matrix [n x k], rounded once for each of its two products: half as much memory again as in float32.

    n and k are at least 2: of products over a single place torch 2.13 returns what it has not written.
    """

    def __init__(self, weight: torch.Tensor, bits: int) -> None:
        """``bits`` of a weight: see `weight_bits`."""
        made = _Short if bits == 7 else _Whole
        self._forwards, self._backwards = made(weight), made(weight.t())

    def forwards(self, x: torch.Tensor) -> torch.Tensor:
        """``x W^T`` [m x n] of x [m x k], in the format of x."""
        return _product(x, self._forwards)

    def backwards(self, gradient: torch.Tensor) -> torch.Tensor:
        """``gradient W`` [m x k] of a gradient [m x n], in its format."""
        return _product(gradient, self._backwards)


class _Whole:
    """``x W^T`` of whole numbers x, W being rounded to eight bits."""

    def __init__(self, weight: torch.Tensor) -> None:
        rounded, self._scales = _rounded(weight, _LARGEST)
        self._rounded = rounded.t()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Sums [m x n] in float32 for x [m x k], from -127 to 127 once they are rounded; x is overwritten."""
        return torch._int_mm(x.round_().to(torch.int8), self._rounded).float().mul_(self._scales)


class _Short:
    """The same, W being rounded to seven bits."""

    def __init__(self, weight: torch.Tensor) -> None:
        rounded, self._scales = _rounded(weight, _SHORT)
        self._rounded = torch.ops.onednn.qlinear_prepack(rounded.contiguous(), None)
        self._zeros = torch.zeros(len(rounded), dtype=torch.int32)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """As above."""
        raised = x.add_(_ZERO + 0.5).to(torch.uint8)  # cut off; halves are rounded up and not to the even number
        sides = (raised, 1.0, _ZERO, self._rounded, self._scales, self._zeros)
        made: torch.Tensor = torch.ops.onednn.qlinear_pointwise(*sides, None, 1.0, 0, torch.float32, "none", [], "")
        return made


def _rounded(weight: torch.Tensor, largest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix as int8 of at most ``largest``, and the scale of each row."""
    weight = weight.detach().float()
    scales = weight.abs().amax(dim=1, keepdim=True).div_(largest)
    scales[scales == 0] = 1
    return (weight / scales).round_().to(torch.int8), scales.flatten()


def _product(x: torch.Tensor, weight: _Whole | _Short) -> torch.Tensor:
    """x [m x k] times a rounded matrix; a number that is none makes its row such numbers."""
    if len(x) > _BLOCK:
        return torch.cat([_product(x[first : first + _BLOCK], weight) for first in range(0, len(x), _BLOCK)])
    largest = torch.maximum(x.amax(dim=1, keepdim=True), x.amin(dim=1, keepdim=True).neg_())  # two reads, and no copy of x
    own = largest.float().div_(_LARGEST).clamp_min_(torch.finfo(torch.float32).tiny)
    return weight(x / own).mul_(own + (own - own)).to(x.dtype)  # what is infinite is no number then


def weight_bits(device: str, half: bool = False) -> int | None:
    """How many bits a weight is to have, so that a torch device makes its products exactly and faster than those of floats: 8 on
    x86 processors with AVX512-VNNI, 7 on others with AVX2. ``None``: leave weights as they are.

    ``half``: the floats have 16 bits. AMX multiplies these so fast that rounding takes longer than eight bits save.
    Elsewhere torch 2.13 goes through int8 matrices number by number, tens of times slower than float32.
    """
    if torch.device(device).type != "cpu" or (half and has_amx()):
        return None
    try:
        built = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        if not (built and torch.backends.mkldnn.enabled):
            return None
        if torch.cpu._is_vnni_supported() and _exact(8):
            return 8
        return 7 if torch.cpu._is_avx2_supported() and _exact(7) else None
    except (RuntimeError, AttributeError):
        return None


def _exact(bits: int) -> bool:
    """Whether sums of the largest products are right. Those of 8 bits are not where ``ONEDNN_MAX_CPU_ISA`` tells oneDNN to leave
    VNNI out, whatever the processor has."""
    made, most = (_Whole, _LARGEST) if bits == 8 else (_Short, _SHORT)
    x = torch.full((4, 32), float(_LARGEST))
    weight = torch.full((8, 32), float(most))
    weight[1::2, 1::2] = -most
    weight[2::4] *= -1
    x[1::2] *= -1
    x[2:, 1::2] *= -1
    return torch.equal(made(weight)(x.clone()), x @ weight.t())
