"""How long a training takes on this machine, from its operations and a timed matrix product."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cirf.recipe.schema import Backbone, Finetune

_SHARE = 0.6
"""Speed of a training relative to that of its largest matrix products. Measured with LoRA of a 135M model on a CPU: 0.57."""

_ROWS = (64, 4096)
"""Fewest and most rows of the timed product, which has about as many as a batch has tokens."""


def operations(section: Finetune, sizes: Mapping[str, int], tokens: float, target_tokens: float) -> float:
    """Floating-point operations of training on ``tokens``, ``target_tokens`` of them targets. ``sizes``: see `parameter_count`.

    A weight costs two for a token going forward and two for the gradient of its input; two more for its own gradient where it is
    trained. The head's weights are used for targets alone. Adapters and attention are small beside these and left out.
    """
    each = 6.0 if section.adaptation == "full" else 4.0
    return each * (sizes["inside"] * tokens + sizes["width"] * sizes["vocabulary"] * target_tokens)


def speed(backbone: Backbone, section: Finetune, sizes: Mapping[str, int], row_tokens: float) -> float:
    """Floating-point operations a second of a training with rows of ``row_tokens``, by timing a product of the backbone's
    shape."""
    from cirf.cpu.number_formats import computed_in
    from cirf.lm.backbone import pick_device

    device = pick_device(backbone.device)
    cast = section.bf16 and computed_in("bfloat16", device) == "bfloat16"
    kept = "float32" if section.adaptation == "full" else computed_in(backbone.dtype, device)
    rows = min(max(2 ** round(math.log2(section.batch_size * max(1.0, row_tokens))), _ROWS[0]), _ROWS[1])
    shape = (rows, sizes["width"], sizes["inner"])
    return _SHARE * 2.0 * math.prod(shape) / _product_seconds(*shape, "bfloat16" if cast else kept, device)


@cache
def _product_seconds(rows: int, width: int, inner: int, dtype: str, device: str) -> float:
    """The shortest time of a matrix product in a fifth of a second, at the present load of the machine."""
    import torch

    left, right = (torch.ones(*shape, dtype=getattr(torch, dtype), device=device) for shape in ((rows, width), (width, inner)))
    taken, began = list[float](), time.perf_counter()
    while len(taken) < 3 or time.perf_counter() - began < 0.2:
        start = time.perf_counter()
        left @ right
        getattr(torch, torch.device(device).type).synchronize()
        taken.append(time.perf_counter() - start)
    return min(taken)


def in_hours(seconds: float) -> str:
    """``3.5 hours``, ``25 minutes``."""
    if seconds < 90 * 60:
        minutes = max(1, round(seconds / 60))
        return f"{minutes} minute{'s' * (minutes > 1)}"
    return f"{seconds / 3600:.1f} hours"
