"""Training with vectors in prompts: where they come from, and what is minimised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from cirf.lm.adapters import seeded
from cirf.lm.training.batches import Feature
from cirf.lm.training.loss import IGNORED
from cirf.lm.training.objective import Batch, Objective
from cirf.methods.soft.encoder import SentenceEncoder
from cirf.methods.soft.guide import Guide
from cirf.methods.soft.prompts import PromptCache, find_run, slots_of, soft_logits
from cirf.recipe import schema


class FrozenGuideVectors:
    """Vectors that a linear map makes of a guide's states; the guide is frozen, so these are known beforehand."""

    def __init__(self, states: torch.Tensor, questions: Sequence[int], width: int, seed: int) -> None:
        """``states`` [q x n x d_a] are those of each question, ``questions`` the number of each row's; ``width`` is the model's,
        d."""
        self._states, self._questions = states, questions
        with seeded(seed):
            self.module: torch.nn.Module = torch.nn.Linear(states.shape[2], width)

    def given(self, numbers: Sequence[int]) -> dict[str, torch.Tensor]:
        """``states`` [b x n x d_a]."""
        return {"states": self._states[torch.tensor([self._questions[number] for number in numbers])]}

    def vectors(self, batch: Batch) -> torch.Tensor:
        made: torch.Tensor = self.module(batch["states"].float())
        return made


class TrainedGuideVectors:
    """Vectors that a guide makes which is itself trained."""

    def __init__(self, guide: Guide, rows: Sequence[Sequence[int]], questions: Sequence[int]) -> None:
        """``rows``: what it reads for each question (`Guide.ids`), ``questions`` the number of each row's."""
        self.module: torch.nn.Module = guide.requires_grad_(True)
        self._guide, self._rows, self._questions = guide, rows, questions

    def given(self, numbers: Sequence[int]) -> dict[str, torch.Tensor]:
        return self._guide.batch([self._rows[self._questions[number]] for number in numbers])

    def vectors(self, batch: Batch) -> torch.Tensor:
        made: torch.Tensor = self._guide(batch)
        return made


VectorSource = FrozenGuideVectors | TrainedGuideVectors
"""Where the vectors of rows come from: ``vectors`` of a batch [b x n x d] are made of what is ``given`` of its rows (known by
`Feature.given`); ``module`` is what of it is trained."""


class SoftObjective(Objective):
    """Next-token cross-entropy on the targets of rows whose prompts have places for vectors."""

    heads: PromptCache | None = None
    """What rows begin with, where nothing of the model itself is trained (see `soft_logits`)."""

    def __init__(self, placeholder: int, source: VectorSource) -> None:
        """``placeholder``: the id that holds places."""
        self._placeholder, self._source = placeholder, source
        self.module: torch.nn.Module = source.module

    def join(self, model: Any, section: schema.Finetune, seed: int) -> None:
        """See what of the model is trained; activations that are computed again go with no cache."""
        trained = section.gradient_checkpointing or any(value.requires_grad for value in model.parameters())
        self.heads = None if trained or _angles_by_length(model.config) else PromptCache()

    def leave(self) -> None:
        self.heads = None if self.heads is None else PromptCache()

    def collate(self, features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
        """Rows as usual, ``slots`` [b x s] (see `cirf.methods.soft.prompts`), and what their vectors are made of."""
        batch = super().collate(features, padding)
        runs = [find_run(feature.ids[: feature.start], self._placeholder) for feature in features]
        starts, counts = [start for start, _ in runs], [count for _, count in runs]
        batch["slots"] = slots_of(starts, counts, batch["input_ids"].shape[1])
        return batch | self._source.given(_numbers(features))

    def logits(self, model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [m x V] (float32) that predict the m targets, and the targets [m], row by row."""
        return soft_logits(model, batch["input_ids"], batch["labels"], batch["slots"], self._source.vectors(batch), self.heads)


def _angles_by_length(config: Any) -> bool:
    """Whether a model turns its keys by angles that depend on how long a row is: then it cannot be read in parts."""
    rope = getattr(config.get_text_config(decoder=True), "rope_parameters", None) or {}
    kinds = {part.get("rope_type") for part in (rope, *rope.values()) if isinstance(part, Mapping)}
    return bool(kinds & {"dynamic", "longrope"})


class SemanticObjective(SoftObjective):
    """That, and that the vectors mean what the rationale does: ``alpha (1 - cos(T(Z), T(H))) + (1 - alpha) CE`` (SemCoT).

    T is frozen: the loss reaches the vectors Z through it. What the rationales' states H come to in it is known beforehand. A
    row's meaning weighs as much as its targets do in the cross-entropy, however the rows are cut into batches.
    """

    def __init__(
        self, placeholder: int, source: VectorSource, encoder: SentenceEncoder, meant: torch.Tensor, alpha: float
    ) -> None:
        """``meant`` [r x w]: T(H) of each row."""
        super().__init__(placeholder, source)
        self._encoder, self._meant, self._alpha = encoder.requires_grad_(False).eval(), meant, alpha

    def collate(self, features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
        """As before, and ``meant`` [b x w]."""
        return super().collate(features, padding) | {"meant": self._meant[torch.tensor(_numbers(features))]}

    def loss(self, model: Any, batch: Batch, count: torch.Tensor | int | None) -> torch.Tensor:
        vectors = self._source.vectors(batch)
        logits, targets = soft_logits(model, batch["input_ids"], batch["labels"], batch["slots"], vectors, self.heads)
        whole = targets.numel() if count is None else count
        answer = torch.nn.functional.cross_entropy(logits, targets, reduction="sum") / whole
        semantics = self._encoder(vectors, vectors.new_ones(vectors.shape[:2]))
        weights = (batch["labels"] != IGNORED).sum(dim=1) / whole
        apart = ((1 - torch.nn.functional.cosine_similarity(semantics, batch["meant"], dim=1)) * weights).sum()
        return self._alpha * apart + (1 - self._alpha) * answer


def _numbers(features: Sequence[Feature]) -> list[int]:
    numbers = [feature.given for feature in features]
    assert None not in numbers, "rows without a number cannot have vectors"
    return [number for number in numbers if number is not None]
