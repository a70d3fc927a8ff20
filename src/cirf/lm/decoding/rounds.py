"""Batched generation that drops finished rows.

A batch is as slow as its longest row: among 32 answers of 22 tokens in the mean one may have 60, and the others would wait for
it. So ``generate`` is called for a few tokens at a time, and between two rounds finished rows leave the batch and its cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cirf.lm.decoding.caches import is_movable, past_of, take_rows

ROUND = 16
"""Tokens between two looks at which rows are finished."""


def generate_in_rounds(
    model: Any,
    ids: torch.Tensor,
    mask: torch.Tensor,
    settings: Any,
    cap: int,
    stops: Sequence[int],
    processors: Sequence[Any] = (),
    cache: Any = None,
    watch: Any = None,
) -> list[list[int]]:
    """The ids written after each row of ``ids`` [b x s] (padded on the left, ``mask`` [b x s]): at most ``cap``, up to and with
    the first of ``stops``.

    ``settings`` is a ``GenerationConfig`` whose ``max_new_tokens`` is set here. A processor of ``processors`` that has state
    a row has ``select(rows)``, which receives the rows that stay; so has ``watch``, which receives every token and may end rows
    (`cirf.lm.decoding.watching.Watch`). With a ``cache`` that cannot be cut all rows stay, in one round: it may hold more than
    the ids.
    """
    from transformers import LogitsProcessorList, StoppingCriteriaList

    ends = torch.tensor(list(stops), device=ids.device)
    settings.return_dict_in_generate = True
    rows, written = list(range(len(ids))), [[] for _ in range(len(ids))]  # type: tuple[list[int], list[list[int]]]
    most = cap if cache is not None and not is_movable(cache) else ROUND
    while True:
        settings.max_new_tokens = min(most, cap)
        made = model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=settings,
            logits_processor=LogitsProcessorList(processors),
            stopping_criteria=StoppingCriteriaList([] if watch is None else [watch]),
            **({} if cache is None else {"past_key_values": cache}),
        )
        new = made.sequences[:, ids.shape[1] :]  # [rows x up to ROUND]
        for row, tokens in zip(rows, new.tolist(), strict=True):
            written[row] += tokens
        cap -= settings.max_new_tokens
        over = torch.isin(new, ends).any(dim=1)
        if watch is not None:
            over |= torch.tensor(watch.over, device=over.device)
        going = (~over).nonzero()[:, 0]
        if cap == 0 or not len(going):
            return written
        ids, cache = made.sequences, past_of(made)
        if not is_movable(cache):
            cache = None
        mask = torch.cat([mask, mask.new_ones(new.shape)], dim=1)
        if len(going) < len(rows):
            if cache is not None:
                take_rows(cache, going)
            ids, mask, rows = ids[going], mask[going], [rows[place] for place in going.tolist()]
            for one in (*processors, watch):
                if hasattr(one, "select"):
                    one.select(going.tolist())
