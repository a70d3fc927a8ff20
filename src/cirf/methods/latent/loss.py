"""Training to think in vectors: rows that are cut at their thoughts, and the logits of the tokens after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cirf.lm.training.batches import Feature
from cirf.lm.training.loss import IGNORED, summed
from cirf.lm.training.objective import Batch, Objective
from cirf.methods.latent.loop import Thoughts, logits_after, padded_left, think
from cirf.methods.latent.projector import Projector


class LatentObjective(Objective):
    """Next-token cross-entropy on the targets of rows with thoughts in them (`Feature.thoughts`). The graph goes through all of
    these. A batch in which no row thinks is a plain one."""

    def __init__(self, projector: Projector | None = None) -> None:
        """``projector`` is f, trained with the model; ``None``: states are fed in unchanged."""
        self.projector = projector
        self.module = projector

    def collate(self, features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
        """As `cut`, or as usual if no row thinks."""
        if not any(feature.thoughts for feature in features):
            return super().collate(features, padding)
        return cut(features, padding)

    def logits(self, model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [n x V] (float32) that predict the n targets, and the targets [n], row by row."""
        return self._read(model, batch)[1]

    def loss(self, model: Any, batch: Batch, count: torch.Tensor | int | None) -> torch.Tensor:
        """What is minimised, as `Objective.loss` says."""
        return self.parts(model, batch, count)[0]

    def parts(self, model: Any, batch: Batch, count: torch.Tensor | int | None) -> tuple[torch.Tensor, Thoughts | None]:
        """The loss, and the thoughts that it went through; ``None`` where no row of the batch is cut."""
        thoughts, (logits, targets) = self._read(model, batch)
        return summed(logits, targets, count), thoughts

    def _read(self, model: Any, batch: Batch) -> tuple[Thoughts | None, tuple[torch.Tensor, torch.Tensor]]:
        if "counts" not in batch:
            return None, super().logits(model, batch)
        thoughts = self.think(model, batch)
        return thoughts, logits_after(model, thoughts, batch["input_ids"], batch["tail_mask"], batch["labels"])

    def think(self, model: Any, batch: Batch) -> Thoughts:
        """The thoughts of a batch that is cut."""
        return think(model, batch["heads"], batch["seen"], batch["counts"], self.projector)


def cut(features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
    """``heads`` [b x s] and ``seen`` [b x s]: ids before the thoughts and their mask, padded on the left; ``counts`` [b]: how
    many thoughts; ``input_ids``, ``tail_mask`` and ``labels`` [b x t]: ids after them, mask and labels, padded on the right.

    A row without thoughts is cut before the last token that is not learned.
    """
    cuts = [place_and_count(feature) for feature in features]
    heads, seen = padded_left([feature.ids[:place] for feature, (place, _) in zip(features, cuts, strict=True)], padding)
    tails = [feature.ids[place:] for feature, (place, _) in zip(features, cuts, strict=True)]
    longest = max(map(len, tails))
    ids, labels = (torch.full((len(tails), longest), filler) for filler in (padding, IGNORED))
    tail_mask = torch.zeros(len(tails), longest, dtype=torch.long)
    for row, (feature, tail, (place, _)) in enumerate(zip(features, tails, cuts, strict=True)):
        ids[row, : len(tail)] = torch.tensor(tail)
        tail_mask[row, : len(tail)] = 1
        labels[row, feature.start - place : len(tail)] = torch.tensor(feature.ids[feature.start :])
    counts = torch.tensor([count for _, count in cuts])
    return {"heads": heads, "seen": seen, "counts": counts, "input_ids": ids, "tail_mask": tail_mask, "labels": labels}


def place_and_count(feature: Feature) -> tuple[int, int]:
    """Where a row is cut, and how many thoughts are there."""
    return feature.thoughts or (feature.start - 1, 0)
