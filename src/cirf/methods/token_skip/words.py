"""The words of a text, which are kept or dropped whole, and their scores from the tokens of a model.

::

    "Half of 48/2=24 clips,\\nso 12."   ->   Half | of | 48/2=24 | clips, | so | 12.

A word is the text between blanks, its punctuation included: an equation written without blanks is one word and is never
cut through, one written with blanks is as many as it has parts. Blanks and line breaks belong to no word. Chinese and
Japanese put no blanks between words: there every character is one, with adjacent punctuation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from cirf.errors import CirfError

Span = tuple[int, int]
"""A range of a text: ``text[start:end]``."""

_SIGN = "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
_OPENS = "「『【〔〈《（［｛“‘(\\["
_CLOSES = "」』】〕〉》）］｝”’)\\]、。，．：；！？…・,.;:!?\ufe00-\ufe0f"
_WORD = re.compile(rf"[{_OPENS}]*[{_SIGN}][{_CLOSES}]*|(?:(?![{_SIGN}])\S)+")


class Word(NamedTuple):
    """A word of a text, ``text[start:end]``, and how much it matters; what is larger is kept longer."""

    start: int
    end: int
    importance: float


def word_spans(text: str) -> list[Span]:
    """The words of a text in order. Together they hold all of it but blanks."""
    return [match.span() for match in _WORD.finditer(text)]


def per_word(values: Sequence[float], offsets: Sequence[Span], spans: Sequence[Span]) -> list[float]:
    """The mean value of each word's tokens, one number for each of ``spans``.

    A token counts for every word of which it holds a character; one of blanks alone for none. A word that no token holds
    (the tokenizer drops its characters) gets 0.

    Args:
        values: one a token.
        offsets: each token's place in the text, as fast tokenizers give it; in order.
        spans: the words, in order.
    """
    gathered: list[list[float]] = [[] for _ in spans]
    first = 0  # words before it end before this token
    for value, (start, end) in zip(values, offsets, strict=True):
        while first < len(spans) and spans[first][1] <= start:
            first += 1
        place = first
        while place < len(spans) and spans[place][0] < end:
            gathered[place].append(value)
            place += 1
    return [math.fsum(found) / len(found) if found else 0.0 for found in gathered]


def weighed(text: str, spans: Sequence[Span], importances: Sequence[float]) -> list[Word]:
    """The words with their importances. ``CirfError`` where one is not finite: no order could be made of them."""
    for (start, end), importance in zip(spans, importances, strict=True):
        if not math.isfinite(importance):
            word = text[start:end][:40]
            raise CirfError(f"the importance of {word!r} in {text[:60]!r} is not finite; score in float32 or by another model")
    return [Word(start, end, importance) for (start, end), importance in zip(spans, importances, strict=True)]
