"""Attention of the next few tokens on a CPU, where several query heads share a key.

Without a mask torch's fused kernel goes through the keys once for each query head, in 16 bits at a tenth of the speed that is
there, and ``transformers`` lets it, or copies keys where there is a mask and more than one token.
Query heads that share a key can stand below one another as queries of one head: then each key is read once, and the same
products and sums are made. Long stretches, such as a prompt, go to the kernel as they are: there it is fast.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = "cirf_grouped"
"""What this is called among the attentions of ``transformers``."""

FEW = 8
"""Tokens at once that are the next few: one, or a guess to be checked."""


def group_queries(model: Any) -> bool:
    """Have a model that will only answer compute with it from now on, if it can; whether it does.

    It can on the CPU, if it computes with torch's kernel by the interface that lets others take its place.
    """
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

    What it is not made for is computed as ``transformers`` does.
    """
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
