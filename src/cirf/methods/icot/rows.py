"""Stepwise internalisation's rows: rationales that lose their first tokens while training goes on (Deng et al. 2024)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from random import Random
from typing import Any, Literal, Protocol

from cirf.errors import CirfError
from cirf.lm.training.batches import Feature, tokens_before
from cirf.lm.training.curriculum import CurriculumRow

_FARTHEST = 100  # tokens of an offset
_ALL = 10**9  # tokens: more than any rationale has


class Schedule(Protocol):
    """How rationales are taken away, see `cirf.methods.icot.icot_si`."""

    @property
    def rate(self) -> float | None: ...
    @property
    def done_by(self) -> float: ...
    @property
    def jump(self) -> int | None: ...
    @property
    def pretrain(self) -> float: ...
    @property
    def smoothing(self) -> float | None: ...
    @property
    def side(self) -> Literal["left", "right"]: ...
    @property
    def keep_position(self) -> bool: ...
    @property
    def fresh_optimizer(self) -> bool: ...
    @property
    def targets(self) -> Literal["all", "answer"]: ...


class Removal:
    """A curriculum: rationales that lose their first tokens during training."""

    def __init__(
        self,
        train: Sequence[CurriculumRow],
        validation: Sequence[CurriculumRow],
        tokenizer: Any,
        mark: str,
        settings: Schedule,
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
        self._validation = [self._without(row, min(length, self.gone(self.last)), length) for row, length in held_out]

    def _in_time(self, epochs: float) -> int:
        """Tokens per epoch, a whole number, that remove everything in time, at the latest for the last update."""
        settings = self.settings
        left = min(settings.done_by * epochs * self.updates, self.last) - settings.pretrain * self.updates
        if left <= 0:
            raise CirfError(
                f"of {self.last + 1} updates none is left in which the rationales could go; lower pretrain, or raise "
                "done_by or the epochs"
            )
        whole = self.jump * math.ceil(self.longest / self.jump)
        return max(1, math.ceil(whole * self.updates / left - 1e-9))

    @property
    def validation(self) -> list[Feature]:
        """Validation rows as the training leaves them."""
        return self._validation

    def gone(self, update: int) -> int:
        """s: the number of tokens removed in that update, before any offset; once all are removed, more than any rationale
        has."""
        since = update - self.settings.pretrain * self.updates
        if since < 0:
            return 0
        s = self.jump * math.floor(since * self.rate / (self.updates * self.jump) + 1e-9)
        return s if s < self.longest else _ALL

    def feature(self, index: int, update: int) -> Feature:
        """A training row without the tokens that are gone by then."""
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
        """Where more goes than before, unless everything was gone before."""
        if not self.settings.fresh_optimizer or update == 0:
            return False
        before = self.gone(update - 1)
        return before < self.longest and self.gone(update) > before

    def share(self, update: int) -> float:
        """Share of all rationale tokens that are gone in that update, before offsets."""
        total = sum(self.lengths)
        return sum(min(length, self.gone(update)) for length in self.lengths) / total if total else 1.0

    def summary(self) -> dict[str, Any]:
        """The schedule, and the share of the rationales' tokens gone at each update where more goes."""
        changes = [update for update in range(self.last + 1) if update == 0 or self.gone(update) != self.gone(update - 1)]
        removed = [{"update": update, "share": round(self.share(update), 4)} for update in changes]
        summary = {"kind": "removal", "rate": self.rate, "jump": self.jump, "longest": self.longest, "removed": removed}
        if self.final_share < 1:
            summary["note"] = f"only {self.final_share:.0%} of the rationales' tokens were gone when training ended"
        return summary


def _length(pair: CurriculumRow, tokenizer: Any, mark: str) -> int:
    """Tokens of a target before its answer line, which begins with ``mark``."""
    return tokens_before(tokenizer, pair.row.target, pair.row.target.rindex(mark))
