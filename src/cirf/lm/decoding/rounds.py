"""Batched generation that drops finished rows.

A batch is as slow as its longest row: among 32 answers of 22 tokens on average one may have 60, and the others would wait for
it. So ``generate`` is called for a few tokens at a time, and between two rounds finished rows leave the batch and its cache. On a
CPU, whose time for a token grows with the rows, a round ends as soon as an eighth of its rows have ended.

Which rows can leave, and which can share a batch, depends on the model's cache. Most models keep keys and values, of which rows
can leave and which a mask protects from padding. Hybrid and recurrent models (Qwen3.5, LFM2, Mamba, RecurrentGemma, RWKV) keep
states as well or instead, in a cache of another kind, or inside of the model.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
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
        return [[index] for index in range(len(rows))]
    together = _together(model)
    groups: dict[Any, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault({"all": None, "equal lengths": len(row)}.get(together, -1 - index), []).append(index)
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
    row = [(7 * index + 3) % known for index in range(5)]
    padding = [(11 * index + 5) % known for index in range(6)]

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


OnStep = Callable[[Sequence[int], Sequence[int]], Sequence[bool]]
"""Called with the rows that still go on, by their place in the first batch, and each one's new token; returns for each whether it
is finished."""


class RoundCriterion:
    """A stopping criterion in the sense of ``transformers`` for one batch of ``count`` rows. ``over``: for each row still in the
    batch, whether it has ended."""

    def __init__(self, count: int, on_step: OnStep) -> None:
        self.over = [False] * count
        self._rows, self._on_step = list(range(count)), on_step

    def select(self, rows: Sequence[int]) -> None:
        self._rows, self.over = [self._rows[row] for row in rows], [self.over[row] for row in rows]

    def __call__(self, input_ids: torch.Tensor, scores: Any, **more: Any) -> torch.Tensor:
        """Which rows [rows] are to end; the last column of ``input_ids`` [rows x so far] is new."""
        last = input_ids[:, -1].tolist()
        going = [place for place, over in enumerate(self.over) if not over]
        ended = self._on_step([self._rows[place] for place in going], [last[place] for place in going])
        for place, over in zip(going, ended, strict=True):
            self.over[place] = over
        return torch.tensor(self.over, dtype=torch.bool, device=input_ids.device)


ROUND = 16
"""Most tokens between two looks at which rows are finished."""


def _over(new: torch.Tensor, ends: torch.Tensor, watch: RoundCriterion | None) -> torch.Tensor:
    """Which rows [b] of ``new`` [b x n] have one of the ``ends``, or were ended by ``watch``."""
    over = torch.isin(new, ends).any(dim=1)
    return over if watch is None else over | torch.tensor(watch.over, device=over.device)


def generate_in_rounds(
    model: Any,
    ids: torch.Tensor,
    mask: torch.Tensor,
    settings: Any,
    processors: Sequence[Any] = (),
    cache: Any = None,
    watch: RoundCriterion | None = None,
) -> list[list[int]]:
    """The ids written after each row of ``ids`` [b x s] (padded on the left, ``mask`` [b x s]).

    ``settings`` is a ``GenerationConfig``, which is changed: at most its ``max_new_tokens`` are written in a row, up to and with
    the first of its list ``eos_token_id``. A processor of ``processors`` that has state a row has ``select(rows)``, which
    receives the rows that stay; so has ``watch``, which receives every token and may end rows. A single row is written in one
    round, and so are those with a ``cache`` that cannot be cut: it may hold more than the ids.
    """
    from transformers import LogitsProcessorList, StoppingCriteriaList

    cap, ends = settings.max_new_tokens, torch.tensor(settings.eos_token_id, device=ids.device)
    settings.return_dict_in_generate = True
    rows, written = list(range(len(ids))), [[] for _ in range(len(ids))]  # type: tuple[list[int], list[list[int]]]
    whole = len(rows) == 1 or (cache is not None and not is_movable(cache))
    most, early = cap if whole else ROUND, not whole and ids.device.type == "cpu"

    def ended(ids: torch.Tensor, scores: Any, **more: Any) -> torch.Tensor:
        over = _over(ids[:, -1:], ends, watch)  # rows that ended before are filled up with an end
        return over | (early and bool(8 * over.sum() >= len(over)))

    while True:
        settings.max_new_tokens = min(most, cap)
        made = model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=settings,
            logits_processor=LogitsProcessorList(processors),
            stopping_criteria=StoppingCriteriaList([ended] if watch is None else [watch, ended]),
            **({} if cache is None else {"past_key_values": cache}),
        )
        new = made.sequences[:, ids.shape[1] :]  # [rows x up to ROUND]
        for row, tokens in zip(rows, new.tolist(), strict=True):
            written[row] += tokens
        cap -= new.shape[1]
        going = (~_over(new, ends, watch)).nonzero()[:, 0]
        if cap == 0 or not len(going):
            return written
        ids, cache = made.sequences, past_of(made)
        if not is_movable(cache):
            cache, early = None, False  # all is computed again in each round
        mask = torch.cat([mask, mask.new_ones(new.shape)], dim=1)
        if len(going) < len(rows):
            if cache is not None:
                take_rows(cache, going)
            ids, mask, rows = ids[going], mask[going], [rows[place] for place in going.tolist()]
            for one in (*processors, watch):
                if hasattr(one, "select"):
                    one.select(going.tolist())
