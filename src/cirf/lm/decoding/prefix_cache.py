"""A cache for the shared prefixes of prompts: instructions and worked examples are computed once.

A worked example: of an opening of 700 tokens and a batch of three prompts that begin with it, kept are the keys and values of
the 700. A generation is given a copy of them in every row, and just the questions are left to compute::

    [opening][     question 1]
    [opening][a longer question]        [..]: padding, which the attention mask hides
    [opening][     question 3]

Rows may begin otherwise, each with its own opening or none: shorter openings are padded on the left too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from cirf.lm.decoding.rounds import is_movable, past_of, take_rows
from cirf.lm.prompt import encode

LEAST = 64
"""Tokens below which an opening is not worth keeping."""

MOST_BYTES = 2**30
"""Keys and values that are kept, all openings together; what was used longest ago goes first."""

Layers = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of one row [1 x heads x tokens x width], layer by layer."""


@dataclass(frozen=True, slots=True)
class PrefilledPrompts:
    """The state from which a generation starts: ``cache`` holds the first ``heads[row]`` positions of every row of ``prompts``,
    padded on the left to the longest of them. At least one token of a row is left to compute.

    ``vectors``: in each row a place, and the vectors [n x d] that replace its tokens from there on. An engine that is given
    prompts as vectors needs them.
    """

    prompts: list[list[int]]
    heads: list[int]
    cache: Any
    vectors: Sequence[tuple[int, torch.Tensor]] | None = None


VECTORS = 64
"""More than any method has thoughts, or vectors in its prompt."""


class Prefiller(Protocol):
    """Computes the beginning of prompts to one model by other means than token by token. ``besides``: the most vectors that it
    puts next to their tokens."""

    besides: int

    def prepare(self, prompts: Sequence[str]) -> None:
        """Compute now what rendered prompts need and what is kept for others, if anything is."""

    def begin(self, prompts: Sequence[list[int]]) -> PrefilledPrompts | None:
        """A cache for a batch of these prompts, a row each, and the prompts in their new form; ``None``: no cache."""


class PromptOpenings:
    """The openings of prompts to one model, with their keys and values as soon as they were needed.

    Openings are matched by tokens, not by text. The match depends on the prompt and the openings alone, not on earlier questions,
    so an evaluation resumed after a kill rounds as one that was never killed. Kept keys and values are never changed: a
    generation gets a copy.
    """

    besides = 0

    def __init__(self, model: Any, tokenizer: Any, openings: Iterable[str], most_bytes: int = MOST_BYTES) -> None:
        """Nothing is computed yet. ``openings`` are rendered prompts that end where the shared part ends."""
        self._model, self._tokenizer, self._most_bytes = model, tokenizer, most_bytes
        self._openings = [encode(tokenizer, text) for text in openings]
        self._kept: OrderedDict[tuple[int, ...], Layers] = OrderedDict()
        self._plain = True

    def heads(self, prompts: Sequence[list[int]]) -> list[int]:
        """How many tokens of each prompt are kept: those it shares with an opening, but never all of it; 0 below `LEAST`."""
        found = []
        for ids in prompts:
            shared = max((_shared(ids[:-1], opening) for opening in self._openings), default=0)
            found.append(shared if shared >= LEAST else 0)
        return found

    def prepare(self, prompts: Sequence[str]) -> None:
        """Compute now what is not kept yet of the openings of rendered prompts."""
        encoded = [encode(self._tokenizer, prompt) for prompt in prompts]
        for ids, head in zip(encoded, self.heads(encoded), strict=True):
            self._layers(ids[:head])

    @torch.inference_mode()
    def begin(self, prompts: Sequence[list[int]]) -> PrefilledPrompts | None:
        """A cache for a batch of these prompts, a row each; ``None`` where they share no opening, or where the model keeps its
        past in another way than key by key (sliding windows, states)."""
        heads = self.heads(prompts)
        longest = max(heads, default=0)
        rows = [self._layers(ids[:head]) for ids, head in zip(prompts, heads, strict=True)]
        if longest == 0 or not self._plain:
            return None
        return PrefilledPrompts(list(prompts), heads, joined(rows, longest))

    def _layers(self, ids: list[int]) -> Layers:
        """Keys and values of these tokens, kept or computed; nothing of nothing, and of a model that keeps others."""
        key = tuple(ids)
        if not ids or not self._plain:
            return []
        if key not in self._kept:
            with torch.inference_mode():
                given = torch.tensor([ids], device=self._model.device)
                cache = past_of(self._model(input_ids=given, use_cache=True, logits_to_keep=1))
            self._plain = is_plain(cache)
            if not self._plain:
                return []
            self._kept[key] = [(layer.keys, layer.values) for layer in cache.layers]
            self._make_room()
        self._kept.move_to_end(key)
        return self._kept[key]

    def _make_room(self) -> None:
        """Let go of what was used longest ago, but not of the newest."""
        sizes = {key: sum(part.nbytes for pair in kept for part in pair) for key, kept in self._kept.items()}
        while sum(sizes.values()) > self._most_bytes and len(sizes) > 1:
            oldest, _ = self._kept.popitem(last=False)
            del sizes[oldest]


class SharedPrompts:
    """Prompts of which a batch holds each several times: all but the last token of each is computed once for all its rows."""

    def __init__(self, model: Any, prefixes: Prefiller | None = None) -> None:
        """``prefixes`` computes the beginning of a prompt that is the only one of its batch."""
        self._model, self._prefixes = model, prefixes
        self.besides = 0 if prefixes is None else prefixes.besides

    def prepare(self, prompts: Sequence[str]) -> None:
        """Nothing is kept."""

    @torch.inference_mode()
    def begin(self, prompts: Sequence[list[int]]) -> PrefilledPrompts | None:
        """A cache for a batch of these prompts; that of ``prefixes`` where all differ or it holds several, ``None`` where the
        model's cache has no rows to repeat."""
        numbers = {row: number for number, row in enumerate(dict.fromkeys(map(tuple, prompts)))}
        different = [list(row) for row in numbers]
        begun = None if self._prefixes is None else self._prefixes.begin(different)
        if self._prefixes is not None and begun is not None and (len(different) > 1 or not is_movable(begun.cache)):
            return self._prefixes.begin(prompts)
        start, cache = (0, None) if begun is None else (begun.heads[0], begun.cache)
        different = different if begun is None else begun.prompts
        heads = [len(ids) - 1 for ids in different]
        if len(different) == len(prompts) or min(heads) < 1:
            return begun
        longest, device, padded = max(heads), self._model.device, {}
        if len(different) > 1:
            mask = torch.tensor([[0] * (longest - head) + [1] * head for head in heads], device=device)
            padded = {"attention_mask": mask, "position_ids": (mask.cumsum(dim=1) - 1).clamp_min(0)}
        if start < longest:
            ids = torch.tensor([[0] * (longest - len(row) + 1) + row[start:-1] for row in different], device=device)
            cache = past_of(self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1, **padded))
        if not (is_plain(cache) if padded else is_movable(cache)):
            return None
        rows = [numbers[tuple(row)] for row in prompts]
        take_rows(cache, torch.tensor(rows, device=device))
        return PrefilledPrompts([different[row] for row in rows], [heads[row] for row in rows], cache)


def _shared(ids: Sequence[int], opening: Sequence[int]) -> int:
    """How many tokens two rows have in common at their beginning."""
    pairs = enumerate(zip(ids, opening, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(ids), len(opening)))


def joined(rows: Sequence[Layers], longest: int) -> Any:
    """A cache of copies of rows, zeros on the left of those shorter than ``longest``. A row may hold nothing, but not all."""
    from transformers import DynamicCache

    cache = DynamicCache()
    for layer, like in enumerate(next(row for row in rows if row)):
        keys, values = (
            _side_by_side([row[layer][side] if row else None for row in rows], like[side], longest) for side in (0, 1)
        )
        cache.update(keys, values, layer)
    return cache


def is_plain(cache: Any) -> bool:
    """Whether a cache is one pair of key and value for each token and layer, and no more."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    return type(cache) is DynamicCache and all(type(layer) is DynamicLayer and layer.is_initialized for layer in cache.layers)


def _side_by_side(rows: Sequence[torch.Tensor | None], like: torch.Tensor, longest: int) -> torch.Tensor:
    """Rows [1 x heads x tokens x width] as one tensor [rows x heads x longest x width], zeros on the left of shorter ones."""
    made = like.new_zeros(len(rows), like.shape[1], longest, like.shape[3])
    for index, row in enumerate(rows):
        if row is not None:
            made[index, :, longest - row.shape[2] :] = row[0]
    return made
