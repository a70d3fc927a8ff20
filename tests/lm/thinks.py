"""A curriculum of rows that all have thoughts."""

from __future__ import annotations

from typing import Any

from cirf.lm.training.batches import Feature


class Thinks:
    """Every row with ``count`` thoughts before ``end``; ``validation`` is its first ``watched`` rows."""

    def __init__(self, lessons: Any, end: int, count: int, watched: int = 2) -> None:
        self.rows = []
        for feature in (lesson.feature for lesson in lessons):
            ids = (*feature.ids[: feature.start], end, *feature.ids[feature.start :])
            self.rows.append(Feature(ids, feature.start + 1, thoughts=(feature.start, count)))
        self.validation = self.rows[:watched]

    def feature(self, index: int, update: int) -> Feature:
        return self.rows[index]

    def fresh(self, update: int) -> bool:
        return False

    def summary(self) -> dict[str, Any]:
        return {}
