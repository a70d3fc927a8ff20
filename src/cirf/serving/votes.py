"""Of several sampled answers the one that most of them give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cirf.evaluation.election import Election
from cirf.tasks.answers import equal_answers, number_value


def ballot(election: Election, answers: Mapping[int, str], asked: int) -> dict[str, Any]:
    """How the votes fell: ``answers`` of those that were written to their end, by their places, empty where none was read."""
    counts = [{"answer": answers[places[0]], "count": len(places)} for places in election.groups]
    unread = sum(not answer for answer in answers.values())
    return {"asked": asked, "counts": counts, "unread": unread, "left": asked - len(answers)}


def same(one: str, other: str) -> bool:
    """Whether two answers are one: by value if either is a number, else as texts."""
    numbers = number_value(one) is not None or number_value(other) is not None
    return equal_answers("number" if numbers else "text", one, other)
