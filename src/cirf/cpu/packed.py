"""Linear layers whose weights are stored in the order in which the processor reads them.

A product with one row reads every weight once and computes little, so it is limited by memory bandwidth. With a checkpoint's
layout it reaches a third of that, because the weights are reordered into the processor's blocks at every call. Here that is done
once, by oneDNN, as torch's own compiler does when it freezes a model. In bfloat16 the products are bit-identical; in float32 they
are rounded differently. Such a layer has no gradient.

Attention of the next few tokens on a CPU, where several query heads share a key.

Without a mask torch's fused kernel goes through the keys once for each query head, in 16 bits at a tenth of the possible speed;
``transformers`` uses it, or copies keys if there is a mask and more than one token. Query heads that share a key can be stacked
as queries of one head: then each key is read once, with the same products and sums. Long inputs, such as a prompt, go to the
kernel unchanged: there it is fast.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

SMALLEST = 2**16
"""Weights of a layer below which it is unchanged: the call of oneDNN costs more than it saves."""

_ROWS = 4  # of the input for which blocks are chosen; the layout works for any number


class PackedLinear(nn.Module):
    """``x W^T + bias`` for x [... x k] of the layer it replaces, with W [n x k] packed."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach(), persistent=False)
        self.load(layer.weight.detach())
        self.held_bytes = layer.weight.nbytes + (0 if layer.bias is None else layer.bias.nbytes)
        """Its bytes in memory, which are not parameters; blocks take no more."""

    def load(self, weight: torch.Tensor) -> None:
        """Replace the weights by others [n x k]."""
        self._packed = packed_weight(weight)

    @property
    def weight(self) -> torch.Tensor:
        """The weights [n x k] in a checkpoint's layout, unpacked at every call."""
        dense: torch.Tensor = self._packed.to_dense()
        return dense

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[... x k] -> [... x n]."""
        made: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return made

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """As a linear layer's: the saved checkpoint is plain."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = self.weight
        if self.bias is not None:
            destination[f"{prefix}bias"] = self.bias


def settle(model: Any, attention: str = "auto") -> None:
    """Optimise a model for inference: pack weights, and group queries unless ``attention`` names a kernel."""
    if attention == "auto":
        group_queries(model)
    pack(model)


def pack(model: Any, smallest: int = SMALLEST) -> int:
    """Pack the linear layers of a model for inference, in place; returns how many were packed. None on devices other than a CPU,
    or if torch has no oneDNN for the weights' number format."""
    layers = {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and module.weight.numel() >= smallest and can_pack(module.weight)
    }
    for name, layer in layers.items():
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, PackedLinear(layer))
    return len(layers)


def unpack(model: Any) -> None:
    """Undo `pack`, in place: the weights are parameters again, and tied ones are one."""
    for name, packed in [*model.named_modules()]:
        if isinstance(packed, PackedLinear):
            layer = nn.Linear(packed.in_features, packed.out_features, packed.bias is not None, "meta")
            layer.weight = nn.Parameter(packed.weight, requires_grad=False)
            if isinstance(packed.bias, torch.Tensor):
                layer.bias = nn.Parameter(packed.bias, requires_grad=False)
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, layer.train(packed.training))
    model.tie_weights()


def can_pack(weight: torch.Tensor) -> bool:
    if weight.device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    try:
        return bool(torch.equal(packed_weight(weight.detach()[:8, :8].contiguous()).to_dense(), weight[:8, :8]))
    except (RuntimeError, AttributeError):  # no such operation, or not for this processor and number format
        return False


@torch.no_grad()
def packed_weight(weight: torch.Tensor) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
    return packed


NAME = "cirf_grouped"
"""Its name among the attention functions of ``transformers``."""

FEW = 8
"""Most tokens at once that count as few: one, or a draft to verify."""


def group_queries(model: Any) -> bool:
    """Use it for a model in inference, if possible; returns whether it does. It is possible on the CPU, if the model uses torch's
    kernel through the replaceable attention interface."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    kernel = getattr(model.config, "_attn_implementation", None)
    if model.device.type != "cpu" or kernel != "sdpa" or not getattr(model, "_supports_attention_backend", False):
        return kernel == NAME
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    return bool(model.config._attn_implementation == NAME)


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """[b x h x s x d], keys and values [b x g x t x d] -> [b x s x h x d]; ``attention_mask`` [b x 1 x s x t], or none for s = 1.
    Other cases are computed as in ``transformers``."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    (b, heads, s, width), groups = query.shape, key.shape[1]
    together = heads // groups
    simple = not any(value is not None for name, value in more.items() if name in ("position_bias", "cache", "softcap", "s_aux"))
    masked = s == 1 if attention_mask is None else attention_mask.ndim == 4 and attention_mask.shape[1] == 1
    if together == 1 or s > FEW or not simple or not masked:
        made: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **more
        )
        return made
    if attention_mask is not None:
        attention_mask = attention_mask.expand(-1, 1, s, -1).repeat(1, 1, together, 1)
    out = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(b, groups, together * s, width), key, value, attention_mask, dropout, scale=scaling
    )
    return out.reshape(b, heads, s, value.shape[-1]).transpose(1, 2).contiguous(), None
