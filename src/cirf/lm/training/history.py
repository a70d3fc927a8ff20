"""What is reported about a finished training: its losses, and how the functional tokens' rows changed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cirf.lm.training.spec import TrainingData, TrainingSpec
from cirf.lm.vocabulary import matrices


@dataclass(frozen=True, slots=True)
class EmbeddingChange:
    """How training changed the functional tokens' embeddings, per matrix (``input``, and ``output`` where untied).

    ``cosine``: mean cosine between a row's first and last value. ``geometry``: correlation of the rows' pairwise cosines
    before and after (``None`` below three tokens). ``norm_before``, ``norm_after``: mean L2 norms.
    """

    matrix: str
    cosine: float
    geometry: float | None
    norm_before: float
    norm_after: float


@dataclass(frozen=True, slots=True)
class History:
    """The course of a training; no clock in it.

    ``losses``: ``{update, loss, gradient_norm, learning_rate}`` of every update, the loss being the mean over the update's
    target tokens before it; ``validation``: ``{update, loss, answer_loss, code_loss}``, the last two over the answer's tokens
    with the end token, and over the functional tokens where there are any, update 0 being the model before training;
    ``tokens`` and ``target_tokens`` are those of one epoch; ``computed_in``: the number format, weights that are trained being
    float32 in any case; ``curriculum``: the curriculum's own summary; ``ended``: why the training was ended early.
    """

    method: str
    adaptation: str
    rows: int
    dropped: int
    validation_rows: int
    updates: int
    updates_per_epoch: int
    epochs: float
    warmup_updates: int
    warmup_scaled_down: bool
    learning_rate: float
    tokens: int
    target_tokens: int
    trainable_parameters: int
    parameters: int
    computed_in: str
    losses: list[dict[str, float]]
    validation: list[dict[str, float]]
    functional_rows: list[EmbeddingChange]
    curriculum: dict[str, Any] | None = None
    ended: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON; a curriculum and a reason for an early end only where there was one."""
        row = dataclasses.asdict(self)
        return {name: value for name, value in row.items() if name not in ("curriculum", "ended") or value is not None}


def history_of(trainer: Any, model: Any, data: TrainingData, spec: TrainingSpec, ended: str | None) -> History:
    """The history of a training that ``trainer`` has finished, but for what became of the functional tokens' rows; ``model`` is
    the one with adapters, before they are merged."""
    section, plan, log = spec.section, data.plan, trainer.state.log_history
    return History(
        method=spec.method,
        adaptation="frozen" if spec.frozen else section.adaptation,
        rows=len(data.features),
        dropped=data.dropped,
        validation_rows=len(data.validation),
        updates=trainer.state.global_step,
        updates_per_epoch=plan.epoch,
        epochs=data.epochs,
        warmup_updates=plan.warmup,
        warmup_scaled_down=plan.warmup != section.warmup_steps,
        learning_rate=section.learning_rate,
        tokens=sum(len(feature.ids) for feature in data.features),
        target_tokens=sum(len(feature.ids) - feature.start for feature in data.features),
        trainable_parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        parameters=sum(p.numel() for p in model.parameters()),
        computed_in="bfloat16" if trainer.args.bf16 else str(model.dtype).removeprefix("torch."),
        losses=[
            {"update": row["step"], "loss": row["loss"], "gradient_norm": row["grad_norm"], "learning_rate": row["learning_rate"]}
            for row in log
            if "loss" in row
        ],
        validation=[
            {"update": row["step"], "loss": row["eval_loss"]} | _losses_of_parts(row) for row in log if "eval_loss" in row
        ],
        functional_rows=[],
        curriculum=None if data.curriculum is None else data.curriculum.summary(),
        ended=ended,
    )


def _losses_of_parts(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: row[f"eval_{name}"] for name in ("answer_loss", "code_loss") if f"eval_{name}" in row}


def code_rows(model: Any, new_ids: Sequence[int]) -> list[torch.Tensor]:
    """The functional tokens' rows [K x d] of each matrix, without the delimiters'; nothing if there are none."""
    codes = torch.tensor(list(new_ids[2:]))
    return [weight.detach()[codes.to(weight.device)].float().cpu() for weight in matrices(model)] if len(codes) else []


def embedding_changes(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> list[EmbeddingChange]:
    """What became of the rows of each matrix, as `code_rows` gives them."""
    return [_change_of(name, old, new) for name, old, new in zip(("input", "output"), before, after, strict=False)]


def _change_of(name: str, before: torch.Tensor, after: torch.Tensor) -> EmbeddingChange:
    """What became of the rows [K x d] of one matrix."""
    unit = [torch.nn.functional.normalize(rows, dim=1) for rows in (before, after)]
    geometry = None
    if len(before) > 2:
        above = torch.triu_indices(len(before), len(before), offset=1)
        pairs = torch.stack([(rows @ rows.T)[above[0], above[1]] for rows in unit])
        value = float(torch.corrcoef(pairs)[0, 1])
        geometry = round(value, 6) if math.isfinite(value) else None
    cosine = float((unit[0] * unit[1]).sum(dim=1).mean())
    norms = [float(rows.norm(dim=1).mean()) for rows in (before, after)]
    return EmbeddingChange(name, round(cosine, 6), geometry, round(norms[0], 6), round(norms[1], 6))
