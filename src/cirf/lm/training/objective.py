"""What a training minimises: how rows make a batch, and what its loss is. A method may have one of its own.

The one here serves every method that writes words. Others override what differs: `LatentObjective` other logits; a distillation
would override ``loss`` and add ids of its own to a batch; an auxiliary decoder is a ``module``.

A curriculum changes rows during training, as in stepwise internalisation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from cirf.lm.training.attention import tree_of
from cirf.lm.training.batches import Feature, Row, collate
from cirf.lm.training.loss import read_targets, summed, target_logits
from cirf.recipe import schema


@dataclass(frozen=True, slots=True)
class CurriculumRow:
    """A training row as text and as ids."""

    row: Row
    feature: Feature


class Curriculum(Protocol):
    """The rows at each update. It depends only on its arguments, so a resumed training sees the same."""

    @property
    def validation(self) -> list[Feature]:
        """The validation rows, in the form that the model is to answer in."""

    def feature(self, index: int, update: int) -> Feature:
        """Training row ``index`` in the update that follows ``update`` finished ones."""

    def fresh(self, update: int) -> bool:
        """Whether the optimiser's moments are reset before that update."""

    def summary(self) -> dict[str, Any]:
        """For the history: what happened when."""


Batch = Mapping[str, torch.Tensor]
"""Tensors by name, each with a row for each row of the batch; ``labels`` is one of them, of which exactly the targets are not
`IGNORED`."""


class Objective:
    """Next-token cross-entropy on the targets of rows.

    ``module`` is what is trained besides the model, if there is anything: it is saved in checkpoints, its parameters that require
    gradients are trained by the same optimiser, and it is not part of the resulting model. Its first values must depend on the
    seed alone.
    """

    module: torch.nn.Module | None = None
    trees: bool = False
    """Whether batches are prefix trees: only ever of a `plain` objective, with a model that is within `as_trees`."""
    _heavy: tuple[torch.Tensor, float] | None = None

    def weigh(self, ids: Sequence[int], weight: float) -> None:
        """Set the loss weight of targets with these ids; all others have weight 1."""
        self._heavy = torch.tensor(list(ids)), weight

    @property
    def plain(self) -> bool:
        """Whether batches, logits and loss are the ones here."""
        own = type(self)
        return own.collate is Objective.collate and own.logits is Objective.logits and own.loss is Objective.loss

    def join(self, model: Any, section: schema.Finetune, seed: int) -> None:
        """Called when ``model`` has its adapters and is ready for training: attach extra trained parts to it here."""

    def leave(self) -> None:
        """Called after training: release what was kept for it."""

    def collate(self, features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
        """Rows as a `Batch`, filled up with the id ``padding``."""
        batch = collate(features, padding)
        if not self.trees:
            return batch
        ids, positions, tree = tree_of(features)
        return {"input_ids": ids, "position_ids": positions, "labels": batch["labels"], **tree}

    def logits(self, model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [n x V] (float32) that predict the n targets, and the targets [n], row by row. Of these the loss in validation
        is made."""
        if "places" in batch:
            tree = {name: batch[name] for name in ("places", "first", "again")}
            given = {name: batch[name] for name in ("input_ids", "position_ids")}
            return read_targets(model, batch["labels"], tree["places"], cirf_tree=tree, use_cache=False, **given)[:2]
        return target_logits(model, batch["input_ids"], batch["labels"], batch.get("position_ids"))

    def loss(self, model: Any, batch: Batch, count: torch.Tensor | int | None) -> torch.Tensor:
        """What is minimised: the sum of the targets' negative log-likelihoods over ``count``, the targets of the whole update,
        so that each of them weighs the same however the rows are cut into batches; their mean where it is ``None``."""
        logits, targets = self.logits(model, batch)
        if self._heavy is None:
            return summed(logits, targets, count)
        ids, weight = self._heavy
        heavy = torch.isin(targets, ids.to(targets.device))
        return summed(logits, targets, count, torch.where(heavy, weight, 1.0))
