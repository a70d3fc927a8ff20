"""Self-distillation: a model that thinks in vectors comes near what it is itself with a rationale (CODI, Shen et al. 2025).

Both sequences go through one network with one set of adapters, the teacher's once. Where each predicts the answer's first token
the student's states of all layers are to be the teacher's, from which no gradient comes; and both are to write what they should::

    loss = CE of the student + gamma * distance + rho * CE of the teacher
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cirf.lm.batches import Feature, collate
from cirf.lm.latent import Thoughts, behind
from cirf.lm.latent_loss import LatentObjective, cut, place_and_count
from cirf.lm.loss import read_targets, summed
from cirf.lm.objective import Batch
from cirf.lm.projector import Projector


class Distillation(LatentObjective):
    """The loss of rows that have a teacher (`Feature.teacher`); of others it is that of `LatentObjective`.

    A batch's distance and its teachers' loss weigh in an update as much as its targets are of those of the update.
    """

    def __init__(self, projector: Projector | None, gamma: float, rho: float) -> None:
        """What the distance and the teacher's own loss weigh; with 0 it is not computed."""
        super().__init__(projector)
        self.gamma, self.rho = gamma, rho

    def collate(self, features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
        """As `cut`, and ``column`` [b]: where in ``input_ids`` the student predicts the answer's first token; ``teacher`` and
        ``taught`` [b x u]: the teacher's ids and labels, padded on the right; ``taught_column`` [b]: where it predicts it."""
        teachers = [feature.teacher for feature in features if feature.teacher is not None]
        if not teachers:
            return super().collate(features, padding)
        batch, theirs = cut(features, padding), collate(teachers, padding)
        batch["column"] = _before_answers(features) - torch.tensor([place_and_count(feature)[0] for feature in features])
        return batch | {
            "teacher": theirs["input_ids"],
            "taught": theirs["labels"],
            "taught_column": _before_answers(teachers),
        }

    def parts(self, model: Any, batch: Batch, count: torch.Tensor | int | None) -> tuple[torch.Tensor, Thoughts | None]:
        """The loss and the student's thoughts."""
        if "teacher" not in batch:
            return super().parts(model, batch, count)
        thoughts = self.think(model, batch)
        student = behind(model, thoughts, batch["input_ids"], batch["behind"], batch["labels"], states=self.gamma > 0)
        loss = summed(student.logits, student.targets, count)
        share = 1.0 if count is None else student.targets.numel() / count
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.rho > 0):
            taught, states = teach(model, batch["teacher"], batch["taught"], batch["taught_column"])
        if self.gamma > 0:
            assert student.states is not None
            loss = loss + self.gamma * share * distance(at(student.states, batch["column"]), states)
        if self.rho > 0:
            loss = loss + self.rho * share * taught
        return loss, thoughts


def teach(model: Any, ids: torch.Tensor, labels: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean loss of the teacher's targets, and its states [L+1 x b x d] at ``columns`` [b], in one pass.

    ``ids`` and ``labels`` are [b x u], padded on the right; no mask is needed.
    """
    logits, targets, made = read_targets(model, labels, input_ids=ids, use_cache=False, output_hidden_states=True)
    return summed(logits, targets, None), at(made.hidden_states, columns)


def at(states: Sequence[torch.Tensor], columns: torch.Tensor) -> torch.Tensor:
    """Of states [b x t x d] a layer those of one column a row: [L+1 x b x d], float32."""
    rows = torch.arange(len(columns), device=columns.device)
    return torch.stack([layer[rows, columns].float() for layer in states])


def distance(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Mean over the layers of ``SmoothL1(student, teacher) / std(teacher)``, both [L+1 x b x d].

    SmoothL1 is the mean over rows and numbers with its bend at 1; the standard deviation, too, is over both (CODI, eq. of the
    distillation loss). No gradient goes to the teacher.
    """
    teacher = teacher.detach()
    near = torch.nn.functional.smooth_l1_loss(student, teacher, reduction="none").mean(dim=(1, 2))
    return (near / teacher.flatten(1).std(dim=1)).mean()


def _before_answers(rows: Sequence[Feature]) -> torch.Tensor:
    """Where each of some rows predicts the first token of its answer [b]."""
    places = [row.answer for row in rows if row.answer is not None]
    assert len(places) == len(rows)
    return torch.tensor(places) - 1
