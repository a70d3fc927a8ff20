"""Caches of models: whether their rows can be moved, and which rows can share a batch.

Most models keep keys and values, of which rows can leave and which a mask protects from padding. Hybrid and recurrent models
(Qwen3.5, LFM2, Mamba, RecurrentGemma, RWKV) keep states as well or instead, in a cache of another kind, or inside of the model.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

_SLACK, _SLACK_HALF = 1e-3, 0.1
"""How far logits may be apart, relative to their norm, and still be the same but for rounding: in float32, and in 16 bits."""

_known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def is_movable(cache: Any) -> bool:
    """Whether a generation can go on from a cache after `take_rows`: it counts its tokens, and its layers hold and move all of
    the past."""
    from transformers import cache_utils

    def holds(layer: Any) -> bool:
        if type(layer).__module__ != cache_utils.__name__:
            return False
        if isinstance(layer, cache_utils.LinearAttentionLayer):  # empty in RecurrentGemma, whose modules hold the states
            return any([*layer.is_conv_states_initialized.values(), *layer.is_recurrent_states_initialized.values()])
        return True

    counts = any(isinstance(layer, cache_utils.CacheLayerMixin) for layer in getattr(cache, "layers", ()))
    return type(cache) is cache_utils.DynamicCache and counts and all(map(holds, cache.layers))


def take_rows(cache: Any, rows: torch.Tensor) -> None:
    """Have a cache hold these of its rows, in this order; a row may be taken several times."""
    cache.reorder_cache(rows)  # unlike `batch_select_indices` it moves states, too


def keeps_keys(cache: Any) -> bool:
    """Whether a cache is keys and values alone, of which a mask hides what is not to be seen."""
    from transformers.cache_utils import DynamicLayer, LinearAttentionLayer

    layers = getattr(cache, "layers", None) or []
    return bool(layers) and not any(
        isinstance(layer, LinearAttentionLayer) or not isinstance(layer, DynamicLayer) for layer in layers
    )


def past_of(made: Any) -> Any:
    """The cache in a model's output; ``None`` where the model keeps its past elsewhere."""
    return getattr(made, "past_key_values", None)


def same(model: Any, logits: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether logits of a model are the same but for what its number format rounds otherwise."""
    slack = _SLACK if model.dtype == torch.float32 else _SLACK_HALF
    return bool((logits - wanted).norm() <= slack * wanted.norm())


def batches(model: Any, rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Which of some rows can be decoded in one batch, by their places: all; those of one length, where padding on the left
    changes what the model answers; or each by itself, where a second row does."""
    if len(rows) < 2:
        return [[place] for place in range(len(rows))]
    together = _together(model)
    groups: dict[Any, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault({"all": None, "equal lengths": len(row)}.get(together, -1 - place), []).append(place)
    return list(groups.values())


def _together(model: Any) -> str:
    """Which rows a model answers in a batch as it does alone: ``all``, those of ``equal lengths``, or ``none``."""
    if model not in _known:
        _known[model] = "all" if _attends_only(model) else _tried(model)
    return _known[model]


def _attends_only(model: Any) -> bool:
    """Whether it is known of a model that it keeps keys and values alone, which its mask protects."""
    from transformers import DynamicCache

    if not type(model).__module__.startswith("transformers.") or getattr(model, "_is_stateful", True):
        return False
    return keeps_keys(DynamicCache(config=model.config.get_text_config(decoder=True)))


@torch.inference_mode()
def _tried(model: Any) -> str:
    """`_together`, by the logits of two tokens after a short row: alone, in a batch of two, and padded."""
    from transformers import GenerationConfig

    known = model.get_input_embeddings().weight.shape[0]
    row = [(7 * place + 3) % known for place in range(5)]
    padding = [(11 * place + 5) % known for place in range(6)]

    def logits(ids: list[list[int]], before: int = 0) -> torch.Tensor:
        settings = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=False, max_new_tokens=2, eos_token_id=None, pad_token_id=0, output_logits=True, return_dict_in_generate=True
        )
        given = torch.tensor(ids, device=model.device)
        mask = torch.ones_like(given)
        mask[-1, :before] = 0
        made = model.generate(input_ids=given, attention_mask=mask, generation_config=settings)
        return torch.stack(made.logits)[:, -1].float()

    saved, model.generation_config = model.generation_config, GenerationConfig()  # type: ignore[no-untyped-call]
    try:
        alone = logits([row])
        if not same(model, logits([row[::-1], row]), alone):
            return "none"
        return "all" if same(model, logits([padding + row], len(padding)), alone) else "equal lengths"
    finally:
        model.generation_config = saved
