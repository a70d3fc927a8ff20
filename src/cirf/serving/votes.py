"""Of several sampled answers the one that most of them give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cirf.evaluation.voting import ballot
from cirf.tasks.answers import equal_answers


def elect(answers: Sequence[str | None]) -> tuple[int, dict[str, Any]]:
    """The place of the first vote for the answer that most give (0 where none gave any), and how the votes fell.

    Numbers are the same by value, other answers as texts. An empty answer is a vote for nothing, ``None`` one that was left.
    """
    groups = sorted(ballot([answer or None for answer in answers], same), key=len, reverse=True)
    counts = [{"answer": answers[group[0]], "count": len(group)} for group in groups]
    unread, left = answers.count(""), answers.count(None)
    return groups[0][0] if groups else 0, {"asked": len(answers), "counts": counts, "unread": unread, "left": left}


def same(one: str, other: str) -> bool:
    """Whether two answers are one."""
    return equal_answers("number", one, other) or equal_answers("text", one, other)
