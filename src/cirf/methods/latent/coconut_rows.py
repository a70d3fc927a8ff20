"""Rows whose steps are replaced by thoughts, stage by stage, during training (Coconut; Hao et al. 2024).

Of a rationale of three steps, with two thoughts a stage and two stages::

    stage 0:      How many?48/2 = 24.\\n48+24 = 72.\\nSo 72.\\n#### 72
    stage 1:      How many?<latent>z z</latent>48+24 = 72.\\nSo 72.\\n#### 72
    stage 2:      How many?<latent>z z z z</latent>So 72.\\n#### 72
    the last one: How many?<latent>z z z z</latent>72

The last is the form used when answering. Stage 0 has no marks: it is training on plain rationales.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal, Protocol

from cirf.lm.prompt import encode, end_token, sanitise
from cirf.lm.training.batches import Feature, Row, tokens_before
from cirf.lm.training.curriculum import CurriculumRow
from cirf.methods.latent.groups import aligned, groups_of

_SMALL = 1e-9


class Schedule(Protocol):
    """How thoughts replace steps, see `cirf.methods.latent.coconut`."""

    @property
    def stages(self) -> int: ...
    @property
    def stage_epochs(self) -> float | None: ...
    @property
    def done_by(self) -> float: ...
    @property
    def pad_latent_to_max(self) -> bool: ...
    @property
    def uniform_prob(self) -> float: ...
    @property
    def fresh_optimizer(self) -> Literal["stage", "epoch", "never"]: ...
    def count(self, stage: int) -> int: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Course:
    """How long a training is, and what its rows become."""

    end: str
    """The mark after thoughts; the one before them, if there are any, ends every prompt."""
    first: int
    """The stage to begin with."""
    epochs: float
    updates: int
    """Of one epoch."""
    seed: int
    explained: int = 0
    """How many thoughts of a training row a decoder reads as one group; 0: none does."""


class Staged:
    """A curriculum: rationales whose first steps are replaced by thoughts."""

    def __init__(
        self,
        train: Sequence[CurriculumRow],
        validation: Sequence[CurriculumRow],
        tokenizer: Any,
        write: Callable[[Sequence[str], str], str],
        settings: Schedule,
        course: Course,
    ) -> None:
        """``write`` makes a target of the steps that are left and the answer."""
        first, epochs, updates = course.first, course.epochs, course.updates
        self.settings, self.first, self.updates, self.seed = settings, first, updates, course.seed
        self._tokenizer, self._write, self._explained = tokenizer, write, course.explained
        self._thinks = settings.count(settings.stages) > 0
        self._end = tokenizer.convert_tokens_to_ids(course.end) if self._thinks else None
        self._train = list(train)
        self._made: dict[tuple[int, int], Feature] = {}
        self.last = max(0, math.ceil(epochs * updates - _SMALL) - 1)
        self.final = settings.stages + 1
        if settings.stage_epochs is not None:
            self._span = settings.stage_epochs * updates
        else:
            self._span = max(min(settings.done_by * epochs * updates, self.last) / max(self.final - first, 1), _SMALL)
        count = settings.count(self.final)
        self._validation = [dataclasses.replace(self._row(pair, self.final, count), groups=()) for pair in validation]

    @property
    def validation(self) -> list[Feature]:
        """Validation rows in the form used when answering: no step, all thoughts."""
        return self._validation

    def stage(self, update: int) -> int:
        """The stage of that update."""
        return min(self.first + math.floor(update / self._span + _SMALL), self.final)

    def feature(self, index: int, update: int) -> Feature:
        """A training row at the stage of that update, or at one drawn for it."""
        stage, steps = self.stage(update), len(self._train[index].row.steps)
        if self.settings.uniform_prob:
            chance = Random(f"stage {self.seed} {update} {index}")
            if chance.random() < self.settings.uniform_prob:
                stage = min(chance.randint(0, steps), self.final)
        if (index, stage) not in self._made:
            count = self.settings.count(stage if self.settings.pad_latent_to_max else min(stage, steps))
            self._made[index, stage] = self._row(self._train[index], stage, count)
        return self._made[index, stage]

    def _row(self, pair: CurriculumRow, stage: int, count: int) -> Feature:
        row, whole = pair.row, pair.feature
        answer = row.target[len(row.target) - (row.answer or 0) :]
        gone = len(row.steps) if stage == self.final else stage
        text = sanitise(self._write(row.steps[gone:], answer), self._tokenizer)
        head = whole.ids[: whole.start - (self._thinks and not count)]
        start = len(head) + bool(count)
        mark = (self._end,) if count else ()
        ids = (*head, *mark, *encode(self._tokenizer, text), whole.ids[-1])
        place = start + tokens_before(self._tokenizer, text, len(text) - len(answer))
        return Feature(
            ids, start, place, thoughts=(len(head), count) if count else None, groups=self._groups(row, gone, count, text)
        )

    def _groups(self, row: Row, gone: int, count: int, after: str) -> tuple[tuple[int, ...], ...]:
        """The decoder's targets for a row's thoughts, one group per stage; extra groups get what follows the thoughts."""
        if not self._explained:
            return ()
        texts = aligned(row.steps[:gone], math.ceil(count / self._explained), after)
        return groups_of(self._tokenizer, texts, end_token(self._tokenizer))

    def fresh(self, update: int) -> bool:
        """Where a stage begins, or an epoch, as the settings say."""
        if update == 0 or self.settings.fresh_optimizer == "never":
            return False
        if self.settings.fresh_optimizer == "epoch":
            return update % self.updates == 0
        return self.stage(update) != self.stage(update - 1)

    def summary(self) -> dict[str, Any]:
        """The update at which each stage begins, with its thoughts and the share of all steps that are left."""
        changes = [update for update in range(self.last + 1) if update == 0 or self.stage(update) != self.stage(update - 1)]
        begun = [{"update": update, **self._described(self.stage(update))} for update in changes]
        summary: dict[str, Any] = {"kind": "stages", "stages": begun}
        if self.stage(self.last) < self.final:
            summary["note"] = f"training ended at stage {self.stage(self.last)} of {self.final}, before all steps were gone"
        return summary

    def _described(self, stage: int) -> dict[str, Any]:
        steps = [len(pair.row.steps) for pair in self._train]
        left = 0 if stage == self.final else sum(max(0, count - stage) for count in steps)
        share = round(left / sum(steps), 4) if sum(steps) else 0.0
        return {"stage": stage, "thoughts": self.settings.count(stage), "steps_left": share}
