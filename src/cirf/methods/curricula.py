"""Rows that change during training: steps are replaced by thoughts, stage by stage (Coconut; Hao et al. 2024), or rationales lose
their first tokens (stepwise internalisation; Deng et al. 2024).

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
from typing import TYPE_CHECKING, Any

from cirf.errors import CirfError
from cirf.lm.prompt import encode, end_token, sanitise
from cirf.lm.training.batches import Feature, Row, tokens_before
from cirf.lm.training.objective import CurriculumRow

if TYPE_CHECKING:
    from cirf.methods.icot_si import InternalisationSettings
    from cirf.methods.latent.coconut import CoconutSettings


def aligned(steps: Sequence[str], count: int, rest: str = "") -> list[str]:
    """The target of each of ``count`` groups of thoughts: one step each, and the last group all that are left.

    With fewer steps than groups, the others get ``rest``::

        steps      3 groups                4 groups, rest "72"
        a b c d    [a] [b] [c d]           [a] [b] [c] [d]
        a b        [a] [b] [rest]          [a] [b] [72] [72]
    """
    if not count:
        return []
    own = [*steps[: count - 1], "\n".join(steps[count - 1 :])] if len(steps) >= count else list(steps)
    return own + [rest] * (count - len(own))


def groups_of(tokenizer: Any, texts: Sequence[str], end: int) -> tuple[tuple[int, ...], ...]:
    """Texts as ids with the end token; nothing of an empty one."""
    return tuple((*encode(tokenizer, sanitise(text, tokenizer)), end) if text else () for text in texts)


_SMALL = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class CurriculumPlan:
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


class StagedCurriculum:
    """A curriculum: rationales whose first steps are replaced by thoughts."""

    def __init__(
        self,
        train: Sequence[CurriculumRow],
        validation: Sequence[CurriculumRow],
        tokenizer: Any,
        write: Callable[[Sequence[str], str], str],
        settings: CoconutSettings,
        course: CurriculumPlan,
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
        self.validation = [dataclasses.replace(self._row(pair, self.final, count), groups=()) for pair in validation]
        """Validation rows in the form used when answering: no step, all thoughts."""

    def stage(self, update: int) -> int:
        return min(self.first + math.floor(update / self._span + _SMALL), self.final)

    def feature(self, index: int, update: int) -> Feature:
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
        if update == 0 or self.settings.fresh_optimizer == "never":
            return False
        if self.settings.fresh_optimizer == "epoch":
            return update % self.updates == 0
        return self.stage(update) != self.stage(update - 1)

    def summary(self) -> dict[str, Any]:
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


_FARTHEST = 100  # tokens of an offset
_ALL = 10**9  # tokens: more than any rationale has


class RemovalCurriculum:
    """A curriculum: rationales that lose their first tokens during training."""

    def __init__(
        self,
        train: Sequence[CurriculumRow],
        validation: Sequence[CurriculumRow],
        tokenizer: Any,
        mark: str,
        settings: InternalisationSettings,
        epochs: float,
        updates: int,
        seed: int,
    ) -> None:
        """``mark`` begins the answer line; ``updates`` are those of one epoch."""
        self.settings, self.updates, self.seed = settings, updates, seed
        self.rows = [pair.feature for pair in train]
        self.lengths = [_length(pair, tokenizer, mark) for pair in train]
        self.longest = sorted(self.lengths)[math.ceil(0.95 * len(self.lengths)) - 1]
        self.jump = settings.jump or max(1, math.ceil(self.longest / 10))
        self.last = max(0, math.ceil(epochs * updates - 1e-9) - 1)
        self.rate = settings.rate or self._in_time(epochs)
        self.final_share = self.share(self.last)
        held_out = [(pair.feature, _length(pair, tokenizer, mark)) for pair in validation]
        self.validation = [self._without(row, min(length, self.gone(self.last)), length) for row, length in held_out]
        """Validation rows as the training leaves them."""

    def _in_time(self, epochs: float) -> int:
        """Tokens per epoch, a whole number, that remove everything in time, at the latest for the last update."""
        settings = self.settings
        left = min(settings.done_by * epochs * self.updates, self.last) - settings.pretrain * self.updates
        if left <= 0:
            raise CirfError(f"of {self.last + 1} updates none is left in which rationales could go; raise done_by or the epochs")
        whole = self.jump * math.ceil(self.longest / self.jump)
        return max(1, math.ceil(whole * self.updates / left - 1e-9))

    def gone(self, update: int) -> int:
        """s: the number of tokens removed in that update, before any offset; once all are removed, more than any rationale
        has."""
        since = update - self.settings.pretrain * self.updates
        if since < 0:
            return 0
        s = self.jump * math.floor(since * self.rate / (self.updates * self.jump) + 1e-9)
        return s if s < self.longest else _ALL

    def feature(self, index: int, update: int) -> Feature:
        s, offset = self.gone(update), 0
        if self.settings.smoothing is not None and update >= self.settings.pretrain * self.updates:
            chance = Random(f"offset {self.seed} {update} {index}").random()
            offset = min(_FARTHEST, math.floor(-math.log(1 - chance) / self.settings.smoothing))
        return self._without(self.rows[index], min(self.lengths[index], s + offset), self.lengths[index])

    def _without(self, row: Feature, k: int, length: int) -> Feature:
        begin, end = row.start, row.start + length
        cut = (begin, begin + k) if self.settings.side == "left" else (end - k, end)
        ids = row.ids[: cut[0]] + row.ids[cut[1] :]
        answer = None if row.answer is None else row.answer - k
        learned = end - k if self.settings.targets == "answer" else begin  # else the rest of the rationale is learned, too
        skipped = (cut[0], k) if self.settings.keep_position and k else None
        return dataclasses.replace(row, ids=ids, start=learned, answer=answer, skipped=skipped)

    def fresh(self, update: int) -> bool:
        if not self.settings.fresh_optimizer or update == 0:
            return False
        before = self.gone(update - 1)
        return before < self.longest and self.gone(update) > before

    def share(self, update: int) -> float:
        """Share of all rationale tokens that are gone in that update, before offsets."""
        total = sum(self.lengths)
        return sum(min(length, self.gone(update)) for length in self.lengths) / total if total else 1.0

    def summary(self) -> dict[str, Any]:
        changes = [update for update in range(self.last + 1) if update == 0 or self.gone(update) != self.gone(update - 1)]
        removed = [{"update": update, "share": round(self.share(update), 4)} for update in changes]
        summary = {"kind": "removal", "rate": self.rate, "jump": self.jump, "longest": self.longest, "removed": removed}
        if self.final_share < 1:
            summary["note"] = f"only {self.final_share:.0%} of the rationales' tokens were gone when training ended"
        return summary


def _length(pair: CurriculumRow, tokenizer: Any, mark: str) -> int:
    """Tokens of a target before its answer line, which begins with ``mark``."""
    return tokens_before(tokenizer, pair.row.target, pair.row.target.rindex(mark))
