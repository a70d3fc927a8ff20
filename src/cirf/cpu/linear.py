"""Matrix products in float32 by oneDNN, if torch has it.

On processors other than Intel's the default library of torch has half the speed (100 against 230 GFLOP/s on one core of an AMD
EPYC with AVX-512).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x W^T + bias`` of x [b x k] and W [n x k]: [b x n], with its gradients; equal to torch's own up to rounding."""
    if x.device.type != "cpu" or x.dtype != torch.float32 or not len(x) or not _is_there():
        return torch.nn.functional.linear(x, weight, bias)
    made: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return made


class Linear(torch.nn.Linear):
    """A layer that uses `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """[... x k] -> [... x n]."""
        return linear(x.reshape(-1, x.shape[-1]), self.weight, self.bias).reshape(*x.shape[:-1], self.out_features)


def by_onednn(module: Any) -> Any:
    """Replace every plain linear layer of a module by a `Linear`, in place; its parameters are unchanged."""
    for part in module.modules():
        if type(part) is torch.nn.Linear:
            part.__class__ = Linear
    return module


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        return _product(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (
            _product(gradient, weight.t()) if to_x else None,
            _product(gradient.t(), x.t()) if to_weight else None,
            gradient.sum(dim=0) if to_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    made: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return made


@cache
def _is_there() -> bool:
    """Whether this torch has the operation, and it is correct."""
    try:
        one = torch.arange(6.0).reshape(2, 3)
        return torch.equal(_product(one, one, torch.ones(2)), one @ one.t() + 1)
    except (RuntimeError, AttributeError):
        return False
