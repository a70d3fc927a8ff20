"""Rows as token ids, the order in which they make batches, and passes that pad little."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Any

import torch

from cirf.errors import CirfError
from cirf.lm.prompt import encode, end_token, sanitise
from cirf.lm.training.loss import IGNORED


def sft_rows(rows: Sequence[Row], tokenizer: Any, keep: Collection[int] = ()) -> list[dict[str, str]]:
    """``prompt`` and ``completion`` of each row, from which a trainer such as TRL's makes the ids that we train on: it adds the
    tokenizer's own prefix and the end token, which must be `cirf.lm.prompt.end_token`. ``keep`` are the added tokens that belong
    in a completion, as in `tokenise`."""
    beginning = beginning_of(tokenizer)
    return [{"prompt": row.prompt.removeprefix(beginning), "completion": sanitise(row.target, tokenizer, keep)} for row in rows]


def beginning_of(tokenizer: Any) -> str:
    """What the tokenizer puts before a text by itself; usually nothing."""
    first = tokenizer("").input_ids[:1]
    return str(tokenizer.bos_token) if first and first == [tokenizer.bos_token_id] else ""


_PASS = {"cpu": 64}
_PASS_ELSEWHERE = 4096


def pass_price(device: str) -> int:
    """The padding, in positions, that costs as much as one more pass on a kind of device (``cpu``, ``cuda``, ...): a CPU computes
    position by position and little else costs it time; an accelerator waits as long for a short pass as for one of thousands."""
    return _PASS.get(device, _PASS_ELSEWHERE)


def cut(lengths: Sequence[int], price: int) -> list[list[int]]:
    """Row numbers by pass, the shortest rows first, so that positions and ``price`` a pass are the fewest. ``lengths``: positions
    of each row; the rows of a pass are padded to its longest. Rows of one length are never parted."""
    alike: dict[int, list[int]] = {}
    for row in sorted(range(len(lengths)), key=lambda row: (lengths[row], row)):
        alike.setdefault(lengths[row], []).append(row)
    before = [0, *accumulate(map(len, alike.values()))]  # rows shorter than the n-th length
    best, begins = [0], [0]  # of the first n lengths: the fewest positions, and where their last pass begins
    for end, widest in enumerate(alike, start=1):
        cost, begin = min((best[start] + (before[end] - before[start]) * widest + price, start) for start in range(end))
        best.append(cost)
        begins.append(begin)
    rows, found = list(alike.values()), []
    end = len(rows)
    while end:
        found.append(list(chain.from_iterable(rows[begins[end] : end])))
        end = begins[end]
    return found[::-1]


@dataclass(frozen=True, slots=True)
class Row:
    """A training row: the rendered prompt (``prompt_text``) and the text to write after it, without end token. The last
    ``answer`` characters of the target are the answer (``None``: unknown). ``steps`` are those of its rationale,
    for a curriculum that takes them away. ``given`` is the number of what the method prepared for the row, for its objective.
    ``problem`` names the row in messages."""

    prompt: str
    target: str
    answer: int | None = None
    steps: tuple[str, ...] = ()
    given: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Feature:
    """A row as ids; the first ``start`` of them are the prompt and are not learned. The answer begins at ``answer``
    (``None``: unknown). ``skipped``: a place in the row, and how many positions further on its ids from there are.
    ``thoughts``: a place in the row before its targets, and how many vectors the model computes between the text before it and
    the rest (see `cirf.methods.latent.loop`). ``teacher``: the same question with its rationale, which the row is to come near
    (see `cirf.methods.latent.loss`). ``groups``: the text that a decoder must predict from each group of its thoughts; none
    for an empty one (see `cirf.methods.latent.loss`). ``given``: the row's own."""

    ids: tuple[int, ...]
    start: int
    answer: int | None = None
    skipped: tuple[int, int] | None = None
    thoughts: tuple[int, int] | None = None
    teacher: Feature | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    given: int | None = None


def safe_row(row: Row, tokenizer: Any, keep: Collection[int]) -> Row:
    """The row with every added token of its target broken up but for those in ``keep`` (see `sanitise`), in its answer, too."""
    target = sanitise(row.target, tokenizer, keep)
    if target == row.target or not row.answer:
        return replace(row, target=target)
    answer = sanitise(row.target[-row.answer :], tokenizer, keep)
    return replace(row, target=target, answer=len(answer) if target.endswith(answer) else row.answer)


def tokenise(
    rows: Sequence[Row], tokenizer: Any, max_length: int, keep: Collection[int] = (), ends: bool = True
) -> tuple[list[Feature], list[int]]:
    """Rows as ids, and the indices of those longer than ``max_length`` tokens, which are left out.

    Prompt and target are encoded apart, as they will be when generating. Every target ends with the token that closes
    the assistant's turn: a model that never saw it would not learn to stop. Added tokens in a target are broken up as in
    a question, but for those in ``keep`` (the functional tokens). Without ``ends`` there is no end token.
    """
    end = [end_token(tokenizer)] if ends else []
    features, dropped = [], []
    for index, row in enumerate(rows):
        prompt, safe = encode(tokenizer, row.prompt), safe_row(row, tokenizer, keep)
        target = encode(tokenizer, safe.target)
        if not prompt:
            raise CirfError(f"training row {index}: the prompt is empty; give it a question")
        ids = (*prompt, *target, *end)
        answer = None
        if safe.answer is not None:
            answer = len(prompt) + tokens_before(tokenizer, safe.target, len(safe.target) - safe.answer)
        if len(ids) > max_length:
            dropped.append(index)
        else:
            features.append(Feature(ids, len(prompt), answer, given=row.given))
    return features, dropped


def tokens_before(tokenizer: Any, text: str, place: int) -> int:
    """How many of the text's tokens end before the character at ``place``; one that holds it, too, is none of them."""
    if place <= 0:
        return 0
    if not tokenizer.is_fast:
        return len(encode(tokenizer, text[:place]))
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True).offset_mapping
    return sum(end <= place for _, end in offsets)


def collate(features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
    """``input_ids`` and ``labels`` [b x s], padded on the right to the longest row; prompt and padding are ignored labels. Where
    ids of a row are skipped there are ``position_ids`` [b x s] too."""
    longest = max(len(feature.ids) for feature in features)
    ids = torch.full((len(features), longest), padding)
    labels = torch.full((len(features), longest), IGNORED)
    for index, feature in enumerate(features):
        row = torch.tensor(feature.ids)
        ids[index, : len(row)] = row
        labels[index, feature.start : len(row)] = row[feature.start :]
    batch = {"input_ids": ids, "labels": labels}
    if any(feature.skipped for feature in features):
        places = torch.arange(longest).repeat(len(features), 1)
        for index, feature in enumerate(features):
            if feature.skipped is not None:
                places[index, feature.skipped[0] :] += feature.skipped[1]
        batch["position_ids"] = places
    return batch


class LengthSampler(torch.utils.data.Sampler[int]):
    """Row indices in an order that depends on the seed and the epoch alone.

    Rows are shuffled, then sorted by length within pools of ``POOL`` batches, cut into batches, and the batches are
    shuffled: rows of a batch are of like length, so little is padding, and no part of the epoch sees only long rows.
    The one batch that may be smaller than the others stays last. Without ``group`` the rows are just shuffled.
    """

    POOL = 32

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int, group: bool = True) -> None:
        """``lengths``: tokens of each row."""
        self.lengths, self.batch_size, self.seed, self.group = list(lengths), batch_size, seed, group
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        chance = random.Random(f"rows {self.seed} {self.epoch}")
        order = list(range(len(self.lengths)))
        chance.shuffle(order)
        if not self.group:
            yield from order
            return
        pool = self.batch_size * self.POOL
        whole = len(order) - len(order) % self.batch_size
        batches = []
        for start in range(0, whole, pool):
            alike = sorted(order[start : min(start + pool, whole)], key=lambda i: self.lengths[i])
            batches += [alike[at : at + self.batch_size] for at in range(0, len(alike), self.batch_size)]
        chance.shuffle(batches)
        for batch in [*batches, order[whole:]]:
            yield from batch
