"""Matrix products in float32 by oneDNN, if torch has it, and linear layers with adapters in few passes over memory.

The default library of torch uses AVX-512 on Intel's processors alone: on others it has half of oneDNN's speed (100 against 230
GFLOP/s on one core of an AMD EPYC). Without AVX-512 it is the faster one (76 against 70 on another).

PEFT adds an adapter to a layer's output in separate steps: the input in float32 and back, two small products, a scaling, a sum,
each with a copy and its own backward step. Here the adapter's product is added into the output in place, and backwards into
the input's gradient, in the layer's number format; the adapter's weights stay float32. It is the same function up to rounding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x W^T + bias`` of x [b x k] and W [n x k]: [b x n], with its gradients; equal to torch's own up to rounding."""
    if x.device.type != "cpu" or x.dtype != torch.float32 or not len(x) or not is_faster():
        return torch.nn.functional.linear(x, weight, bias)
    made: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return made


class Linear(torch.nn.Linear):
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
def is_faster() -> bool:
    """Whether this torch has the operation, it is correct, and the processor has AVX-512."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    try:
        one = torch.arange(6.0).reshape(2, 3)
        return torch.equal(_product(one, one, torch.ones(2)), one @ one.t() + 1)
    except (RuntimeError, AttributeError):
        return False


class AdaptedLinear(torch.autograd.Function):
    """``x W^T + bias + scale (x A^T) B^T`` of x [m x k], W [n x k], A [r x k], B [n x r]; W and bias are frozen."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor, scale: float
    ) -> torch.Tensor:
        a, b = a.to(x.dtype), (b * scale).to(x.dtype)
        inner = x @ a.t()  # [m x r]
        ctx.save_for_backward(x, weight, a, b, inner)
        ctx.scale = scale
        return nn.functional.linear(x, weight, bias).addmm_(inner, b.t())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, a, b, inner = ctx.saved_tensors
        to_x, _, _, to_a, to_b, *_ = ctx.needs_input_grad
        back = gradient @ b  # [m x r], scaled
        return (
            (gradient @ weight).addmm_(back, a) if to_x else None,
            None,
            None,
            (back.t() @ x).float() if to_a else None,
            (gradient.t() @ inner).float().mul_(ctx.scale) if to_b else None,
            None,
        )


def _forward(layer: Any, x: torch.Tensor, *args: Any, **keys: Any) -> torch.Tensor:
    """The layer's output [... x n]; as PEFT computes it if it is not a plain adapter on a plain layer."""
    active = layer.active_adapters
    name = active[0] if len(active) == 1 else None
    weight: torch.Tensor = layer.base_layer.weight
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    plain = (
        name in layer.lora_A
        and name not in layer.lora_variant
        and not (args or keys or layer.disable_adapters or layer.merged)
        and isinstance(layer.lora_dropout[name], nn.Identity)
        and weight.dtype == dtype
        and not weight.requires_grad
    )
    if not plain:
        result: torch.Tensor = type(layer).forward(layer, x, *args, **keys)
        return result
    a, b, bias = layer.lora_A[name].weight, layer.lora_B[name].weight, layer.base_layer.bias
    with torch.autocast(kind, enabled=False):
        flat = x.to(dtype).reshape(-1, x.shape[-1])
        out: torch.Tensor = AdaptedLinear.apply(flat, weight, bias, a, b, layer.scaling[name])  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], weight.shape[0])


@contextlib.contextmanager
def in_place(model: Any) -> Iterator[int]:
    """Within, the adapted linear layers of a model use this; yields how many there are."""
    from peft.tuners.lora.layer import Linear

    layers: list[Any] = [layer for layer in model.modules() if type(layer) is Linear and type(layer.base_layer) is nn.Linear]
    for layer in layers:
        layer.forward = partial(_forward, layer)
    try:
        yield len(layers)
    finally:
        for layer in layers:
            del layer.forward
