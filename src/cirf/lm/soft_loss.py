"""Training with vectors in prompts, made of the states of a guide that were computed before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cirf.lm.batches import Feature
from cirf.lm.objective import Batch, Objective
from cirf.lm.soft import find_run, slots_of, soft_logits


class SoftObjective(Objective):
    """Next-token cross-entropy on the targets of rows whose prompts have places for vectors.

    Which vectors a row has is for others to say: ``given`` adds to a batch what they are made of, ``vectors`` makes them.
    """

    def __init__(self, placeholder: int) -> None:
        """``placeholder``: the id that holds places."""
        self._placeholder = placeholder

    def collate(self, features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
        """Rows as ever, ``slots`` [b x s] (see `cirf.lm.soft`), and what their vectors are made of."""
        batch = super().collate(features, padding)
        runs = [find_run(feature.ids[: feature.start], self._placeholder) for feature in features]
        ids = [feature.ids for feature in features]
        starts, counts = [start for start, _ in runs], [count for _, count in runs]
        return batch | {"slots": slots_of(ids, starts, counts, batch["input_ids"].shape[1])} | self.given(features)

    def given(self, features: Sequence[Feature]) -> dict[str, torch.Tensor]:
        """What the vectors of some rows are made of, a row each."""
        raise NotImplementedError

    def vectors(self, batch: Batch) -> torch.Tensor:
        """The vectors of a batch [b x n x d]."""
        raise NotImplementedError

    def logits(self, model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [m x V] (float32) that predict the m targets, and the targets [m], row by row."""
        return soft_logits(model, batch["input_ids"], batch["labels"], batch["slots"], self.vectors(batch))


class Projected(SoftObjective):
    """Vectors that a linear map makes of a guide's states; the guide is frozen, so these are known beforehand (SoftCoT)."""

    def __init__(self, placeholder: int, states: torch.Tensor, width: int, seed: int) -> None:
        """``states`` [q x n x d_a]: those of each question, by its number (`Feature.given`); ``width`` is the model's, d."""
        super().__init__(placeholder)
        self._states = states
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module: torch.nn.Linear = torch.nn.Linear(states.shape[2], width)

    def given(self, features: Sequence[Feature]) -> dict[str, torch.Tensor]:
        """``states`` [b x n x d_a]."""
        return {"states": torch.stack([self._states[feature.given] for feature in features])}

    def vectors(self, batch: Batch) -> torch.Tensor:
        """W H + b."""
        made: torch.Tensor = self.module(batch["states"].to(self.module.weight.dtype))
        return made
