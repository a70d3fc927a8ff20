"""The text of a step for the embedding model: what the step does, with as little of its content as the recipe says.

A rationale of a question with the choices ``bank`` and ``mall``, with ``choices: mask`` and ``closing: drop``::

    A. Bank: a bank is guarded, so it fits.   ->  it: a it is guarded, so it fits.
    B. Mall: a mall is open to all.           ->  it: a it is open to all.
    The bank has more to guard.               ->  The it has more to guard.
    Therefore, the answer is A.                   (not read: a line of the last step that closes the rationale)

A single letter is a choice's, except an ``A`` before a word in small letters, which is an article. The changed text is used for
embeddings alone; segments, results and training rows stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase

from cirf.recipe import schema
from cirf.text.step_marks import closing_start

WORDING = ("numbers", "choices", "closing")
"""The keys of ``embeddings`` that decide it; ``keep`` leaves the text unchanged."""

_NUMBER = re.compile(r"[$€£]?\d+(?:[.,]\d+)*%?")
_PLACEHOLDER = "it"
_LETTER = r"\((?:{letters})\)|\b(?:{letters})\b(?!['’-])(?!(?<=A) [a-z])[.):]?"  # "A bank": an article


def wordings(segments: Sequence[str], section: schema.Embeddings, choices: Sequence[str] | None = None) -> list[str]:
    """The texts to embed for the steps of one rationale, in their order, of a question with these ``choices``."""
    return [
        wording(text if index + 1 < len(segments) else _unclosed(text, section), section, choices)
        for index, text in enumerate(segments)
    ]


def wording(text: str, section: schema.Embeddings, choices: Sequence[str] | None = None) -> str:
    """The text to embed for a step that is not the last: numbers as ``N`` and choices as ``it``, where the section says so."""
    if choices and section.choices == "mask":
        text = _unnamed(text, choices)
    return text if section.numbers == "keep" else _NUMBER.sub("N", text)


def _unclosed(text: str, section: schema.Embeddings) -> str:
    """A last step without its closing statement; whole where it is nothing else."""
    return text if section.closing == "keep" else text[: closing_start(text)].rstrip() or text


def _unnamed(text: str, choices: Sequence[str]) -> str:
    letters = "|".join(ascii_uppercase[: len(choices)])
    marked = re.compile(_LETTER.format(letters=letters))
    names = sorted(filter(None, map(str.strip, choices)), key=len, reverse=True)
    named = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, names))})(?!\w|\.\d)", re.IGNORECASE) if names else None
    found = marked.sub(_PLACEHOLDER, text)
    found = named.sub(_PLACEHOLDER, found) if named else found
    return re.sub(rf"\b{_PLACEHOLDER}\b(?:[ ,\"']+{_PLACEHOLDER}\b)+", _PLACEHOLDER, found)
