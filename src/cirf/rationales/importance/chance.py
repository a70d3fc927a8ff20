"""Chance: the control that every other way of weighing words has to beat at the same length."""

from __future__ import annotations

import random
from collections.abc import Sequence

from cirf.progress import SILENT, Progress
from cirf.rationales.importance.scorer import Reasoned
from cirf.rationales.importance.words import Word, weighed, word_spans


class Chance:
    """Scores words by numbers drawn from [0, 1), by the seed, the question and the rationale, whatever is scored beside it."""

    def __init__(self, seed: int = 0) -> None:
        """``seed``: another one, another draw."""
        self._seed = seed

    def score(self, texts: Sequence[Reasoned], progress: Progress = SILENT) -> list[list[Word]]:
        """See ``Scorer``."""
        return [self._weigh(text) for text in texts]

    def _weigh(self, text: Reasoned) -> list[Word]:
        draw = random.Random(f"{self._seed}\0{text.question}\0{text.rationale}")
        spans = word_spans(text.rationale)
        return weighed(text.rationale, spans, [draw.random() for _ in spans])
