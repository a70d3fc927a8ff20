"""Of several sampled answers the one that most of them give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cirf.evaluation.voting import ballot
from cirf.tasks.answers import equal_answers


def elect(answers: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """The place of the first vote for the answer that most give (0 where none gave any), and how the votes fell.

    Numbers are the same by value, other answers as texts. An empty answer is a vote for nothing.
    """
    groups = sorted(ballot([answer or None for answer in answers], _same), key=len, reverse=True)
    counts = [{"answer": answers[group[0]], "count": len(group)} for group in groups]
    read = sum(map(len, groups))
    return groups[0][0] if groups else 0, {"asked": len(answers), "counts": counts, "unread": len(answers) - read}


def _same(one: str, other: str) -> bool:
    return equal_answers("number", one, other) or equal_answers("text", one, other)
