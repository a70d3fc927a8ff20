"""A model's likelihood of traces with results left out (paper 3.4): the scorer for `cirf.compression.search`.

Traces that differ by one result share everything before it. So the model's keys and values of a search's current trace are kept;
for a candidate only the tokens after the removed result are computed::

    question <cirf><cirf_016>12<cirf_016>16<cirf_023>28</cirf>28      kept
    .............................<cirf_016>                           shared with the candidate without 16
                                           <cirf_023>28</cirf>28      computed for it

Candidates of many questions are computed in one batch: what they share padded on the left, what is their own on the right.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from cirf.compression.search import Losses, Query
from cirf.lm.decoding.prefix_cache import joined
from cirf.lm.training.batches import Feature
from cirf.lm.training.loss import IGNORED, only_at, summed, target_logits

KeysValues = list[tuple[torch.Tensor, torch.Tensor]]  # a row's keys and values [h x s x d], a pair a layer
_COPIED = 16
_CALL = 64  # tokens that a processor computes in the time a call takes apart from them; an accelerator needs full batches


@dataclass(frozen=True, slots=True)
class RowParts:
    """A training row with a trace, cut up: prompt and start; each step's functional token; its result's ids; end; answer."""

    head: tuple[int, ...]
    codes: tuple[int, ...]
    results: tuple[tuple[int, ...], ...]
    end: int
    answer: tuple[int, ...]

    @classmethod
    def of(cls, feature: Feature, names: Sequence[int]) -> RowParts:
        """Cut a row as `tokenise` makes it; ``names``: the ids of start, end and the functional tokens."""
        start, end, codes = names[0], names[1], set(names[2:])
        ids = feature.ids
        first = ids.index(start, feature.start - 1)  # the prompt may end with it
        last = ids.index(end, first)
        marks = [place for place in range(first + 1, last) if ids[place] in codes]
        results = tuple(ids[place + 1 : stop] for place, stop in pairwise([*marks, last]))
        return cls(ids[: first + 1], tuple(ids[place] for place in marks), results, end, ids[last + 1 : -1])

    def tokens(self) -> tuple[int, ...]:
        return tuple(map(len, self.results))


@dataclass(slots=True)
class _Row:
    """A query in computation: the shared part of its item's memory, its own ids after that, and the places of the targets."""

    query: Query
    shared: int
    ids: list[int]
    before: float  # loss of the results in the shared part
    targets: list[tuple[int, int, int]] = field(default_factory=list)  # own position that predicts, target id, step or -1


class _Memory(NamedTuple):
    """The stored results of a computed trace: its steps, keys and values, each kept result's loss. ``cache`` holds what comes
    after the first ``shared`` tokens; those are in the memory that the trace was computed from."""

    kept: tuple[int, ...]
    cache: KeysValues
    losses: dict[int, float]
    shared: int = 0


def answer_losses(model: Any, features: Sequence[Feature]) -> list[float]:
    """Negative log-likelihood [nats] of each row's answer (`Feature.answer`), summed over tokens; a row a pass: they are long."""
    device = next(model.parameters()).device
    losses = []
    for feature in features:
        ids = torch.tensor([feature.ids], device=device)
        labels = torch.full_like(ids, IGNORED)
        labels[:, feature.answer :] = ids[:, feature.answer :]
        with torch.inference_mode():
            losses.append(summed(*target_logits(model, ids, labels), 1).item())
    return losses


class TraceScorer:
    """Says how likely the traces of a list of rows are by one model.

    Args:
        model: trained on full traces, in evaluation mode.
        rows: one an item.
        whole: compute the loss of results too (``Losses.written``), not of the answer alone.
        batch_tokens: most tokens computed at once, padding included.
    """

    def __init__(self, model: Any, rows: Sequence[RowParts], whole: bool, batch_tokens: int = 2048) -> None:
        self._model, self._rows, self._whole, self._limit = model, list(rows), whole, batch_tokens
        self._current: dict[int, _Memory] = {}
        self._scored: dict[Query, _Memory] = {}
        self._caching = not getattr(model, "_is_stateful", False)  # what a recurrent model remembers cannot be cut short

    def settle(self, chosen: Sequence[Query]) -> None:
        """Go on from these of the queries scored last: what is remembered of others is forgotten."""
        self._current = {query.item: self._whole_memory(query) for query in chosen} if self._caching else {}
        self._scored = {}

    def _whole_memory(self, query: Query) -> _Memory:
        """The memory of a scored trace from its first token on."""
        own = self._scored[query]
        if not own.shared:
            return own
        before = self._current[query.item].cache
        joined = [
            (torch.cat((keys[:, : own.shared], own_keys), 1), torch.cat((values[:, : own.shared], own_values), 1))
            for (keys, values), (own_keys, own_values) in zip(before, own.cache, strict=True)
        ]
        return own._replace(cache=joined, shared=0)

    def score(self, queries: Sequence[Query]) -> list[Losses]:
        rows = [self._row(query) for query in queries]
        order = sorted(range(len(rows)), key=lambda i: (-len(rows[i].ids), -rows[i].shared, i))
        found: dict[int, Losses] = {}
        for batch in _batches(order, rows, self._limit, _CALL if self._model.device.type == "cpu" else self._limit):
            found |= dict(zip(batch, self._compute([rows[i] for i in batch]), strict=True))
        return [found[i] for i in range(len(rows))]

    def _row(self, query: Query) -> _Row:
        pieces = self._rows[query.item]
        memory = self._current.get(query.item)
        split = -1  # last step whose functional token is in the shared part
        ids: list[int] = []
        if memory is None:
            shared, before = 0, 0.0
            ids = list(pieces.head)
        else:
            split = next((step for step in memory.kept if step not in query.kept), len(pieces.codes) - 1)
            earlier = [step for step in query.kept if step < split]
            shared = len(pieces.head) + split + 1 + sum(len(pieces.results[step]) for step in earlier)
            before = sum(memory.losses[step] for step in earlier) if self._whole else 0.0
        row = _Row(query, shared, ids, before)
        kept = set(query.kept)
        for step in range(split + 1, len(pieces.codes)):
            ids.append(pieces.codes[step])
            if step in kept:
                for target in pieces.results[step]:
                    if self._whole:
                        row.targets.append((len(ids) - 1, target, step))
                    ids.append(target)
        ids.append(pieces.end)
        for target in pieces.answer:
            row.targets.append((len(ids) - 1, target, -1))
            ids.append(target)
        ids.pop()  # nothing follows the answer's last token
        return row

    def _compute(self, rows: list[_Row]) -> list[Losses]:
        width = max(len(row.ids) for row in rows)
        past = max(row.shared for row in rows)
        device = self._model.device
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        places = torch.zeros(len(rows), width, dtype=torch.long)
        mask = torch.zeros(len(rows), past + width, dtype=torch.long)
        flat, targets, owners, steps = [], [], [], []
        for at, row in enumerate(rows):
            ids[at, : len(row.ids)] = torch.tensor(row.ids)
            places[at] = torch.arange(row.shared, row.shared + width)
            mask[at, past - row.shared : past + len(row.ids)] = 1
            for position, target, step in row.targets:
                flat.append(at * width + position)
                targets.append(target)
                owners.append(at)
                steps.append(step)
        places.clamp_(max=int(max(row.shared + len(row.ids) for row in rows)) - 1)  # padding: anywhere that exists
        with torch.inference_mode(), only_at(self._model, torch.tensor(flat, device=device)) as kept:
            shared: dict[str, Any] = {"use_cache": False}
            if self._caching:
                shared = {"use_cache": True, "past_key_values": self._stacked(rows, past), "position_ids": places.to(device)}
            made = self._model(input_ids=ids.to(device), attention_mask=mask.to(device) if past else None, **shared)
            logits = kept(made.logits).float()
            losses = torch.nn.functional.cross_entropy(logits, torch.tensor(targets, device=device), reduction="none").tolist()
        sums = [(dict[int, float](), list[float]()) for _ in rows]
        for owner, step, loss in zip(owners, steps, losses, strict=True):
            results, answer = sums[owner]
            if step >= 0:
                results[step] = results.get(step, 0.0) + loss
            else:
                answer.append(loss)
        self._remember(rows, made.past_key_values if self._caching else None, past, [results for results, _ in sums])
        return [
            Losses(
                sum(answer) / max(1, len(answer)), row.before + sum(results.values()) + sum(answer) if self._whole else math.nan
            )
            for row, (results, answer) in zip(rows, sums, strict=True)
        ]

    def _stacked(self, rows: list[_Row], past: int) -> Any:
        """What the rows share with their items' memories, padded on the left to ``past`` tokens."""
        from transformers import DynamicCache

        if not past:
            return DynamicCache()
        shared = [
            [(keys[None, :, : row.shared], values[None, :, : row.shared]) for keys, values in self._current[row.query.item].cache]
            for row in rows
        ]
        return joined(shared, past)

    def _remember(self, rows: list[_Row], cache: Any, past: int, results: list[dict[int, float]]) -> None:
        """Keep the rows' keys and values for `settle`; a model without such a cache computes whole rows from now on."""
        if cache is None:
            return
        width = past + max(len(row.ids) for row in rows)
        layers: list[Any] = [
            (getattr(layer, "keys", None), getattr(layer, "values", None)) for layer in getattr(cache, "layers", ())
        ]
        if not layers or any(keys is None or values is None or keys.shape[-2] != width for keys, values in layers):
            self._caching = False
            return
        for at, row in enumerate(rows):
            stop = past + len(row.ids)
            own = [(keys[at, :, past:stop].clone(), values[at, :, past:stop].clone()) for keys, values in layers]
            before = self._current.get(row.query.item)
            earlier = {step: loss for step, loss in before.losses.items() if step in row.query.kept} if before else {}
            self._scored[row.query] = _Memory(row.query.kept, own, earlier | results[at], row.shared)


def _batches(order: Sequence[int], rows: Sequence[_Row], limit: int, call: int) -> list[list[int]]:
    """The cheapest cut of ``order`` (the longest first) into batches, each of at least one row. A batch costs its tokens, padding
    included, and ``call`` tokens more. It computes at most ``limit`` tokens and copies at most ``_COPIED`` times as many that its
    rows share."""
    best: list[tuple[int, int]] = [(0, 0)]  # by number of rows batched: what that costs, and where the last batch begins
    for stop in range(1, len(order) + 1):
        found, past = (sys.maxsize, stop - 1), 0
        for start in range(stop - 1, -1, -1):
            row, count = rows[order[start]], stop - start
            past = max(past, row.shared)
            if count > 1 and (len(row.ids) * count > limit or past * count > _COPIED * limit):
                break
            found = min(found, (best[start][0] + len(row.ids) * count + call, start))
        best.append(found)
    batches = []
    stop = len(order)
    while stop:
        start = best[stop][1]
        batches.append(list(order[start:stop]))
        stop = start
    return batches[::-1]
