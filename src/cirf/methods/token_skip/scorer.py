"""What says how much each word of a rationale matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cirf.methods.token_skip.words import Word
from cirf.progress import SILENT, Progress


@dataclass(frozen=True, slots=True)
class Reasoned:
    """A worked solution with what it solves."""

    question: str
    rationale: str
    answer: str


class Scorer(Protocol):
    """Weighs the words of rationales.

    The importances of one rationale compare with each other, not with those of another rationale or scorer. Which other
    rationales are scored in the same call decides how a model's sums are rounded, and what is rare for the rules: whoever
    scores in parts keeps the parts the same, and gives the rules all rationales at once.
    """

    def score(self, texts: Sequence[Reasoned], progress: Progress = SILENT) -> list[list[Word]]:
        """The words of every rationale (``word_spans``), in order, none left out; ``CirfError`` where that cannot be done."""
        ...
