"""Steering a model of functional tokens while it answers, without training it again.

The model was trained to write functional tokens, each with or without a result, ``</cirf>``, answer, end. ``<cirf>`` comes first,
from the prompt or the model. Steering keeps the output in that form and controls two settings: how many functional tokens, and
whether results::

    nothing         <cirf><cirf_016>48<cirf_023>72</cirf>72
    budget 1        <cirf><cirf_016>48</cirf>72
    results off     <cirf><cirf_016><cirf_023></cirf>72
    budget 0        <cirf></cirf>72
    at most 16: 0   <cirf><cirf_023>72</cirf>72

Only tokens that the form allows at a place keep their logits, so greedy answers in form and within the limits are unchanged. The
model cannot write a functional token or delimiter too many, nor a second span.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from cirf.errors import CirfError
from cirf.lm.vocabulary import TokenNames


@dataclass(frozen=True, slots=True)
class Steering:
    """How answers are steered, all of it within the form of traces.

    ``budget``: most functional tokens, ``None``: as many as the model likes; where it would write one more, the trace is closed.
    ``results``: whether any are written. ``result_tokens``: most tokens of one result, ``None``: as many as it likes.
    ``result_cost``: nats subtracted from the logits of starting a result, between all results (0) and none. ``at_most``: codes,
    each with the most times that it is written, 0 to forbid it; ``together``: groups of codes, each with the most times that its
    codes are written taken together.
    """

    budget: int | None = None
    results: bool = True
    result_tokens: int | None = None
    result_cost: float = 0.0
    at_most: tuple[tuple[int, int], ...] = ()
    together: tuple[tuple[tuple[int, ...], int], ...] = ()

    @property
    def codes(self) -> list[int]:
        """The codes that are limited, in order."""
        return sorted({*dict(self.at_most), *(code for group, _ in self.together for code in group)})


def limited(how: Steering, at_most: Mapping[int, int], together: Iterable[tuple[tuple[int, ...], int]] = ()) -> Steering:
    """The steering with these limits of single codes besides its own, the lower of two, and with these of groups."""
    own = dict(how.at_most)
    both = own | {code: min(most, own.get(code, most)) for code, most in at_most.items()}
    return replace(how, at_most=tuple(sorted(both.items())), together=(*how.together, *together))


def check_codes(codes: Iterable[int], names: TokenNames) -> None:
    """``CirfError`` where one is no code of the names."""
    if unknown := [code for code in codes if code >= len(names.codes)]:
        raise CirfError(f"no functional token {unknown[0]}; the model has {names.codes[0]} to {names.codes[-1]}")


def expression(how: Steering, names: TokenNames, opened: bool) -> str:
    """A regular expression of the answers that are steered so, for servers with structured output. Results have up to 40
    characters and answers up to 80, none of them ``<``. ``opened``: the prompt ends with the opening delimiter. ``CirfError``: an
    expression cannot say it. It counts one thing alone, a budget or the times of one code or group; any other codes may be
    forbidden.
    """
    if how.result_tokens is not None or how.result_cost:
        raise CirfError("a regular expression cannot limit the tokens of a result or their cost; use `cirf serve`")
    limits = dict(how.at_most)
    rationed: list[tuple[tuple[int, ...], int]] = [((code,), most) for code, most in limits.items() if most]
    rationed += [(tuple(code for code in group if limits.get(code) != 0), most) for group, most in how.together]
    if len(rationed) + (how.budget is not None) > 1:
        counted = "one functional token or word" if how.budget is None else "a budget or one functional token"
        raise CirfError(f"a regular expression can limit only {counted}; limit that one and forbid others, or use `cirf serve`")
    text = "[^<]{0,40}" if how.results else ""
    named = [name[6:-1] for name in names.codes]
    others = "|".join(name for code, name in enumerate(named) if code not in {*how.codes})  # else it spells out new ones
    times = "*" if how.budget is None else f"{{0,{how.budget}}}"
    free = f"(<cirf_({others})>{text}){times}" if others else ""
    steps = free
    for group, most in rationed:
        each = "|".join(named[code] for code in group)
        steps += f"(<cirf_{each if len(group) == 1 else f'({each})'}>{text}{free}){{0,{most}}}" if group else ""
    return f"{'' if opened else names.start}{steps}{names.end}[^<]{{1,80}}"


class SteeringProcessor:
    """A logits processor in the sense of ``transformers``, for one batch: ids after the first prompt it sees are the model's.

    Args:
        steering: how.
        names: of the delimiters and functional tokens.
        tokenizer: it must know each name as one token.
        stops: ids that end an answer.

    ``CirfError`` where a name is no token of the tokenizer, or a code that is limited is none of the names'.
    """

    def __init__(self, steering: Steering, names: TokenNames, tokenizer: Any, stops: Sequence[int]) -> None:
        ids = tokenizer.convert_tokens_to_ids(list(names.all))
        known = tokenizer.get_added_vocab()
        if missing := [name for name in names.all if name not in known]:
            size = sum(name in known for name in names.codes)
            advice = f"; its codebook has {size} codes: use token_names({size})" if missing[0] in names.codes else ""
            raise CirfError(f"the model has no token {missing[0]}, so its traces cannot be steered{advice}")
        self.steering, self.stops = steering, list(stops)
        self.opening, self.closing, self.codes = ids[0], ids[1], ids[2:]
        check_codes(steering.codes, names)
        marks = {token for name, token in known.items() if name.strip()}  # runs of blanks are text, however they joined
        self._reserved = sorted({*marks, *tokenizer.all_special_ids, *stops})
        self._known = len(tokenizer)
        self._width: int | None = None
        self._masks: tuple[torch.Tensor, ...] = ()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``scores`` [rows x vocabulary] with minus infinity for what may not come next; ``input_ids`` [rows x so far]."""
        if self._width is None:
            self._width = input_ids.shape[1]
        return self._steered(input_ids[:, self._width - 1], input_ids[:, self._width :], scores)

    def ragged(self, last: Sequence[int], written: Sequence[Sequence[int]], scores: torch.Tensor) -> torch.Tensor:
        """As a call, for rows of different lengths: the last id of each one's prompt, and the ids written since."""
        longest = max(map(len, written))
        # An end of text before what was written is no token of a trace, and counts for nothing.
        filled = [[self.stops[0]] * (longest - len(row)) + [*row] for row in written]
        own = torch.tensor(filled, dtype=torch.long, device=scores.device).reshape(len(filled), longest)
        return self._steered(torch.tensor(last, device=scores.device), own, scores)

    def _steered(self, last: torch.Tensor, own: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``scores`` of rows whose prompts end with ``last`` [rows] and that have written ``own`` [rows x written]."""
        if not self._masks:
            self._masks = self._vocabulary(scores)
        is_code, plain, ends = self._masks
        opened = (own == self.opening).any(dim=1) | (last == self.opening)
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
        if how.budget is not None:  # where the model would begin another step, the last result is complete
            text = text & ~((count >= how.budget) & is_code[scores.argmax(dim=1)])
        allowed = (more[:, None] & is_code) | ((text | closed)[:, None] & plain) | (closed[:, None] & ends)
        for code, most in how.at_most:
            allowed[:, self.codes[code]] &= (own == self.codes[code]).sum(dim=1) < most
        for group, most in how.together:
            ids = torch.tensor([self.codes[code] for code in group], device=own.device)
            allowed[:, ids] &= (torch.isin(own, ids).sum(dim=1) < most)[:, None]
        allowed[:, self.opening] = ~opened
        allowed[:, self.closing] = inside
        if how.result_cost:
            scores = scores - how.result_cost * ((text & (length == 0))[:, None] & plain)
        return scores.masked_fill(~allowed, -math.inf)

    def _vocabulary(self, scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Which ids are functional tokens, which are ordinary text, which end an answer: each [vocabulary], boolean. Rows of the
        head that no token has are none of them."""
        size, device = scores.shape[1], scores.device

        def mask(ids: Sequence[int]) -> torch.Tensor:
            made = torch.zeros(size, dtype=torch.bool, device=device)
            made[torch.tensor(list(ids), dtype=torch.long, device=device)] = True
            return made

        plain = ~mask(self._reserved)
        plain[self._known :] = False
        return mask(self.codes), plain, mask(self.stops)
