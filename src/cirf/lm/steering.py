"""Steering a model of functional tokens while it answers, without training it again.

The model was taught functional tokens each with or without a result, ``</cirf>``, answer, end; before them stands ``<cirf>``,
which the prompt ends with, or else the model writes. Steering keeps what it writes in that form and turns the two dials that the
form has: how many functional tokens, and whether results::

    nothing         <cirf><cirf_016>48<cirf_023>72</cirf>72
    budget 1        <cirf><cirf_016>48</cirf>72
    results off     <cirf><cirf_016><cirf_023></cirf>72
    budget 0        <cirf></cirf>72

Only tokens that the form allows at a place keep their logits, so that greedy answers which are in form, and within the
dials, stay what they were. One functional token or delimiter too many cannot be written, nor a second span.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cirf.errors import CirfError
from cirf.lm.vocabulary import TokenNames


@dataclass(frozen=True, slots=True)
class Steering:
    """How answers are steered, all of it within the form of traces.

    ``budget``: most functional tokens, ``None``: as many as the model likes; ``results``: whether any are written;
    ``result_tokens``: most tokens of one result, ``None``: as many as it likes; ``result_cost``: nats that beginning a result
    is made less likely by, a dial between all results (0) and none.
    """

    budget: int | None = None
    results: bool = True
    result_tokens: int | None = None
    result_cost: float = 0.0

    def __post_init__(self) -> None:
        for name in ("budget", "result_tokens"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise CirfError(f"{name} is {value}; give 0 or more")
        if not (self.result_cost >= 0 and math.isfinite(self.result_cost)):
            raise CirfError(f"result_cost is {self.result_cost}; give a number of nats, 0 or more (none at all: results off)")


class Steered:
    """A logits processor in the sense of ``transformers``, for one batch: what is behind the first prompt it sees is the model's.

    Args:
        steering: how.
        names: of the delimiters and functional tokens.
        tokenizer: it must know each name as one token.
        stops: ids that end an answer.

    ``CirfError`` where a name is no token of the tokenizer.
    """

    def __init__(self, steering: Steering, names: TokenNames, tokenizer: Any, stops: Sequence[int]) -> None:
        ids = tokenizer.convert_tokens_to_ids(list(names.all))
        known = tokenizer.get_added_vocab()
        if missing := [name for name in names.all if name not in known]:
            raise CirfError(f"the model has no token {missing[0]}, so its traces cannot be steered")
        self.steering, self.stops = steering, list(stops)
        self.opening, self.closing, self.codes = ids[0], ids[1], ids[2:]
        marks = {token for name, token in known.items() if name.strip()}  # runs of blanks are text, however they joined
        self._reserved = sorted({*marks, *tokenizer.all_special_ids, *stops})
        self._known = len(tokenizer)
        self._width: int | None = None
        self._masks: tuple[torch.Tensor, ...] = ()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``scores`` [rows x vocabulary] with minus infinity for what may not come next; ``input_ids`` [rows x so far]."""
        if self._width is None:
            self._width = input_ids.shape[1]
            self._masks = self._vocabulary(scores)
        own = input_ids[:, self._width :]  # [rows x written]
        is_code, plain, ends = self._masks
        opened = (own == self.opening).any(dim=1) | (input_ids[:, self._width - 1] == self.opening)
        closed = (own == self.closing).any(dim=1)
        coded = is_code[own]  # [rows x written]
        count = coded.sum(dim=1)
        places = torch.arange(1, own.shape[1] + 1, device=own.device)
        length = own.shape[1] - (coded * places).amax(dim=1) if own.shape[1] else torch.zeros_like(count)
        inside, how = opened & ~closed, self.steering
        more = inside if how.budget is None else inside & (count < how.budget)
        text = inside & (count > 0) & how.results
        if how.result_tokens is not None:
            text = text & (length < how.result_tokens)
        allowed = (more[:, None] & is_code) | ((text | closed)[:, None] & plain) | (closed[:, None] & ends)
        allowed[:, self.opening] = ~opened
        allowed[:, self.closing] = inside
        if how.result_cost:
            scores = scores - how.result_cost * ((text & (length == 0))[:, None] & plain)
        return scores.masked_fill(~allowed, -math.inf)

    def _vocabulary(self, scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Which ids are functional tokens, which are ordinary text, which end an answer: each [vocabulary], boolean.

        Rows of the head that no token has are none of them.
        """
        size, device = scores.shape[1], scores.device

        def mask(ids: Sequence[int]) -> torch.Tensor:
            made = torch.zeros(size, dtype=torch.bool, device=device)
            made[torch.tensor(list(ids), dtype=torch.long, device=device)] = True
            return made

        plain = ~mask(self._reserved)
        plain[self._known :] = False
        return mask(self.codes), plain, mask(self.stops)
