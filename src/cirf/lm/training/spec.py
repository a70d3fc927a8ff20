"""What a fine-tuning is given: what is trained and how, its rows as token ids, and the updates that they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.lm.training.batches import Feature, Row, safe_row, tokenise
from cirf.lm.training.objective import Curriculum, CurriculumRow, Objective
from cirf.recipe import schema

EarlyLook = Callable[[Any, int, int], str | None]
"""Given the model, the updates made and all updates: why the training is to end, or ``None``."""

MakeCurriculum = Callable[[list[CurriculumRow], list[CurriculumRow], int], Curriculum | None]
"""Makes a curriculum of the training rows, the validation rows and the updates of an epoch."""


@dataclass(frozen=True, slots=True)
class TrainingSpec:
    """What a fine-tuning trains and how."""

    section: schema.Finetune
    """The recipe's keys, as `Finetune.resolved` gives them for the method."""
    method: str
    """Name of the method, for messages and the history."""
    new_ids: Sequence[int]
    """Ids of the rows that are new (LoRA trains them with the adapters): delimiters first, then codes."""
    work: Path
    """Folder for checkpoints; remove it when the result is safe."""
    seed: int
    """Of the order of rows, the adapters' first values and dropout."""
    input_ids: Sequence[int] = ()
    """Ids of new rows that are read and never written; LoRA trains them in the input matrix alone."""
    ends: bool = True
    """Whether the end token is a target."""
    teach: MakeCurriculum | None = None
    """Makes the curriculum; ``None``: the rows are the same throughout."""
    objective: Objective | None = None
    """What is minimised; ``None``: the cross-entropy of the targets. Its module is left as training leaves it."""
    frozen: bool = False
    """The model itself is not trained, the objective's module alone is."""
    look: EarlyLook | None = None
    """Shown the model once, about a third of the way (`cirf.lm.training.callbacks`); it may end the training there."""
    device: str | None = None
    """A torch device; ``None``: where the model is."""
    attention: str = "auto"
    """``auto``: the kernel that is fastest for these rows; else the model's own is kept."""
    run_name: str | None = None
    """What trackers call it; ``None``: the method's name."""

    @property
    def codes(self) -> Sequence[int]:
        return self.new_ids[2:]

    @property
    def checkpoints(self) -> Path:
        return self.work / "checkpoints"


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """The number of updates per epoch, in total, and in the warm-up."""

    epoch: int
    total: int
    warmup: int


def plan_updates(rows: int, section: schema.Finetune, epochs: float) -> UpdatePlan:
    """The updates that ``rows`` rows make. A warm-up as long as the whole training is cut to a tenth of it."""
    epoch = section.an_epoch(rows)
    total = max(1, math.ceil(epochs * epoch - 1e-9))
    return UpdatePlan(epoch, total, section.warmup_steps if section.warmup_steps < total else total // 10)


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Rows as token ids, and the updates that they make."""

    features: list[Feature]
    """The training rows."""
    problems: list[str]
    """The problem of each training row, or an empty text."""
    dropped: int
    """Training rows that were longer than ``finetune.max_length``."""
    validation: list[Feature]
    """The validation rows, in the form that the model is to answer in."""
    curriculum: Curriculum | None
    """What the training rows are at each update; ``None``: the same throughout."""
    epochs: float
    """Passes over the rows."""
    plan: UpdatePlan
    """The updates of these passes."""

    @property
    def longest(self) -> int:
        return max(len(feature.ids) for feature in [*self.features, *self.validation])


def training_data(tokenizer: Any, train: Sequence[Row], validation: Sequence[Row], spec: TrainingSpec) -> TrainingData:
    """Tokenise the rows and make their curriculum. ``CirfError``: no row to train on, or every row too long."""
    known = (tokenizer, spec.section.max_length, spec.new_ids, spec.ends)
    features, dropped = tokenise(train, *known)
    held_out, too_long = tokenise(validation, *known)
    if not features:
        why = "every row is longer than finetune.max_length" if train else "there is no row to train on"
        raise CirfError(f"fine-tuning {spec.method}: {why}; look at what `cirf check` says of the data")
    section = spec.section.settled(len(features))
    epochs = float(section.epochs)
    plan = plan_updates(len(features), section, epochs)
    kept, kept_out = _without(train, dropped), _without(validation, too_long)
    curriculum = None
    if spec.teach is not None:
        pairs = (_paired(kept, features, tokenizer, spec.new_ids), _paired(kept_out, held_out, tokenizer, spec.new_ids))
        curriculum = spec.teach(*pairs, plan.epoch)
    if curriculum is not None:
        held_out = curriculum.validation
    return TrainingData(features, [row.problem for row in kept], len(dropped), held_out, curriculum, epochs, plan)


def _without(rows: Sequence[Row], dropped: Sequence[int]) -> list[Row]:
    left_out = set(dropped)
    return [row for index, row in enumerate(rows) if index not in left_out]


def _paired(rows: Sequence[Row], features: Sequence[Feature], tokenizer: Any, new_ids: Sequence[int]) -> list[CurriculumRow]:
    """Rows, their targets as they were made safe, and their ids side by side."""
    return [CurriculumRow(safe_row(row, tokenizer, new_ids), feature) for row, feature in zip(rows, features, strict=True)]
