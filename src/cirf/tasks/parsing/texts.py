"""Free text: an answer of some words, and what counts of it."""

from __future__ import annotations

import re
import unicodedata

from cirf.tasks.numerals import plain
from cirf.tasks.parsing.anchors import ENCLOSED, anchors, first_sentence

_APOSTROPHES = re.compile(r"['\u2019]")
_DASHES = re.compile(r"[\u2010-\u2015\u2212]")
_COMPOUND = re.compile(r"(?<=[^\W\d_])\s*-+\s*(?=[^\W\d_]{2})")  # well-known; not x-1, nor a-b
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_STOPS = re.compile(r"(?<!\d)\.|\.(?!\d)|(?<![^\W_])\*|\*(?![^\W_])")  # full stops and emphasis
_SIGNS = ".-%#&@*/\\"
_SPACED = re.compile(r"\s*([+*/=<>^])\s*|(?<=\w)\s+(-)\s+(?=\w)")


def normalise_text(text: str) -> str:
    """What counts of a text: case folded, one space between words, and no punctuation of sentences.

    Signs that mean something stay: ``C++``, ``x - 1``, ``-5``, ``3.5``, ``$5``, ``50%``. A text of signs alone stays whole.
    """
    told = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    while re.search(r"[^\W_]", told) and (barer := _barer(told)) != told:
        told = barer
    return told


def _barer(text: str) -> str:
    """One round of taking off what does not count."""
    text = _DASHES.sub("-", _APOSTROPHES.sub("", text))
    text = _COMPOUND.sub(" ", _THOUSANDS.sub("", text))
    text = _STOPS.sub(" ", text)
    kept = (" " if sign in "_`" or (unicodedata.category(sign)[0] == "P" and sign not in _SIGNS) else sign for sign in text)
    return _SPACED.sub(r"\1\2", " ".join("".join(kept).split()))  # of many spaces it would try every one


def parse_text(text: str) -> str | None:
    """The anchored answer, else the last line; ``None`` for nothing."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    for anchor, said in reversed(anchors(text)):
        clean = tidy(said if anchor in ENCLOSED else first_sentence(said))
        if clean:
            return clean
    return tidy(lines[-1]) or None


def tidy(text: str) -> str:
    """Without quotation marks, emphasis and a closing full stop."""
    text = plain(text).strip().strip('"“”‘’ ').strip()
    return text.removesuffix(".").strip()
