"""Rows as token ids, and the order in which they make batches."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cirf.errors import CirfError
from cirf.lm.prompt import encode, end_token, sanitise
from cirf.lm.training.loss import IGNORED


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
    (see `cirf.methods.latent.codi_loss`). ``groups``: the text that a decoder must predict from each group of its thoughts; none
    for an empty one (see `cirf.methods.latent.sim_cot_loss`). ``given``: the row's own."""

    ids: tuple[int, ...]
    start: int
    answer: int | None = None
    skipped: tuple[int, int] | None = None
    thoughts: tuple[int, int] | None = None
    teacher: Feature | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    given: int | None = None


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
        prompt = encode(tokenizer, row.prompt)
        written = sanitise(row.target, tokenizer, keep)
        target = encode(tokenizer, written)
        if not prompt:
            raise CirfError(f"training row {index}: the prompt is empty; give it a question")
        ids = (*prompt, *target, *end)
        answer = None
        if row.answer is not None:
            answer = len(prompt) + tokens_before(tokenizer, written, len(written) - row.answer)
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
    """``input_ids`` and ``labels`` [b x s], padded on the right to the longest row; prompt and padding are ignored labels.

    Where ids of a row are skipped there are ``position_ids`` [b x s] too.
    """
    longest = max(len(feature.ids) for feature in features)
    ids = torch.full((len(features), longest), padding)
    labels = torch.full((len(features), longest), IGNORED)
    for place, feature in enumerate(features):
        row = torch.tensor(feature.ids)
        ids[place, : len(row)] = row
        labels[place, feature.start : len(row)] = row[feature.start :]
    batch = {"input_ids": ids, "labels": labels}
    if any(feature.skipped for feature in features):
        places = torch.arange(longest).repeat(len(features), 1)
        for place, feature in enumerate(features):
            if feature.skipped is not None:
                places[place, feature.skipped[0] :] += feature.skipped[1]
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
        """Called by the training loop before each epoch."""
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
