"""Rows that change during training, as in stepwise internalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from cirf.lm.training.batches import Feature, Row


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
        ...

    def feature(self, index: int, update: int) -> Feature:
        """Training row ``index`` in the update that follows ``update`` finished ones."""
        ...

    def fresh(self, update: int) -> bool:
        """Whether the optimiser's moments are reset before that update."""
        ...

    def summary(self) -> dict[str, Any]:
        """For the history: what happened when."""
        ...
