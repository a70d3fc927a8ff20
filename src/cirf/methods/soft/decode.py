"""Answers of a model that is given vectors: a guide reads the question, and its vectors go into the cache from which decoding
continues.

What the decoder is shown of a prompt with two vectors, and what of it the cache holds already::

    How many clips? # # <end of turn> <assistant>
    [-------------- cache ---------]

The guide reads the question for every answer, and its time is part of the answer's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cirf.errors import CirfError
from cirf.lm.decoding.prefix_cache import Begun
from cirf.methods.soft.guide import Guide, Soft
from cirf.methods.soft.prompts import Frame, find_run, prefill


class Guided:
    """Begins prompts to one model with a guide's vectors in their places (see `cirf.lm.decoding.prefix_cache.Beginnings`)."""

    def __init__(self, model: Any, tokenizer: Any, soft: Soft, guide: Guide) -> None:
        """``CirfError`` where the tokenizer does not know the token that holds places."""
        self._model, self.guide, self._frame = model, guide, Frame(tokenizer)
        known = tokenizer.get_vocab()
        if soft.placeholder not in known:
            raise CirfError(f"the tokenizer does not know {soft.placeholder}, which is to hold the places of vectors")
        self._holder = known[soft.placeholder]

    def prepare(self, prompts: Sequence[str]) -> None:
        """Nothing is kept for other prompts: what a guide reads is part of the answer, and of its time."""

    @torch.inference_mode()
    def vectors(self, prompts: Sequence[list[int]]) -> torch.Tensor:
        """The vectors [b x n x d] for a batch of prompts with n places each. ``CirfError`` for prompts of unlike numbers."""
        counts = {find_run(ids, self._holder)[1] for ids in prompts}
        if len(counts) > 1:
            raise CirfError("prompts of one batch have different numbers of places for vectors; send them separately")
        count = counts.pop()
        rows = [self.guide.ids(self._frame.text(ids), count) for ids in prompts]
        made: torch.Tensor = self.guide(self.guide.batch(rows))
        return made

    @torch.inference_mode()
    def fill(self, prompts: Sequence[list[int]], vectors: torch.Tensor | Sequence[torch.Tensor]) -> Begun:
        """The prompts with these vectors, [n x d] each, in their places, however many there are; all but the last token of each
        is in the cache. ``CirfError`` for a prompt that ends in its places: then nothing would be left to go on from."""
        shown, starts = [], []
        for ids, own in zip(prompts, vectors, strict=True):
            start, count = find_run(ids, self._holder)
            if start + count == len(ids):
                raise CirfError("a prompt ends with the places of vectors; there is no token after them")
            shown.append([*ids[:start], *[self._holder] * len(own), *ids[start + count :]])
            starts.append(start)
        cache = prefill(self._model, [row[:-1] for row in shown], starts, list(vectors))
        return Begun(shown, [len(row) - 1 for row in shown], cache)

    def begin(self, prompts: Sequence[list[int]]) -> Begun:
        """The prompts with the guide's vectors."""
        return self.fill(prompts, self.vectors(prompts))
