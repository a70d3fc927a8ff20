"""A text of more pieces than a model takes at once, cut where it hurts least."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from cirf.rationales.importance.words import Span

_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s)|[。！？｡]|\n")


def chunks(text: str, offsets: Sequence[Span], spans: Sequence[Span], limit: int) -> list[Span]:
    """Ranges ``[first, last)`` of pieces, in order and together all of them, none of more than ``limit``.

    Each is as long as it may be and ends, if it can, with a sentence or a line; else with a word.

    Args:
        text: what was cut into pieces.
        offsets: where each piece stands in it, in order.
        spans: its words.
        limit: most pieces of a chunk.
    """
    sentences = _places((match.end() for match in _END.finditer(text)), offsets)
    words = _places((end for _, end in spans), offsets)
    found, first = [], 0
    while first < len(offsets):
        last = min(first + limit, len(offsets))
        if last < len(offsets):
            last = _latest(sentences, first, last) or _latest(words, first, last) or last
        found.append((first, last))
        first = last
    return found


def _places(ends: Iterable[int], offsets: Sequence[Span]) -> list[int]:
    """The first piece that begins at or after each of these places in the text."""
    starts = [start for start, _ in offsets]
    return [bisect_left(starts, end) for end in ends]


def _latest(places: Sequence[int], first: int, last: int) -> int | None:
    """The latest of these places after ``first`` and not after ``last``."""
    at = bisect_left(places, last + 1) - 1
    return places[at] if at >= 0 and places[at] > first else None
