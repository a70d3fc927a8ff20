"""Answers out of a closed set of words: yes and no, True and False, valid and invalid."""

from __future__ import annotations

import re

from cirf.tasks.numerals import plain
from cirf.tasks.parsing.anchors import anchors, first_sentence

_CLEAR = re.compile(r"(?<![\w-])(?<!\w['’])(yes|no|true|false)(?![\w-]|['’]\w)", re.IGNORECASE)
_PAIR = re.compile(r"\b(?:yes|no|true|false)\s*(?:/|,?\s*(?:or|and|nor)\s)\s*[\"'“‘]?(?:yes|no|true|false)\b", re.IGNORECASE)
_CLOSED = re.compile(r"[\"'”’)\]}*]*\s*(?:[.,;:!?()\]<–—-]|$)")
_STATEMENT = re.compile(r"\s+(?:the|it|it's|this|that|he|she|they|because|since|as|so|but)\b", re.IGNORECASE)
_OPENS = re.compile(r"[.!?:\n][\s\"'“‘*(]*$")
_DENIED = re.compile(r"\b(?:not|never|n't|isn't)\s+$", re.IGNORECASE)


def _clear_words(text: str) -> list[str]:
    pairs = [match.span() for match in _PAIR.finditer(text)]
    words = []
    for match in _CLEAR.finditer(text):
        word, end = match[1].casefold(), match.end()
        before = text[max(0, match.start() - 24) : match.start()]
        if any(start <= match.start() < stop for start, stop in pairs) or _DENIED.search(before):
            continue
        closed = bool(_CLOSED.match(text, end)) and not re.match(r"\.\s?[0-9]", text[end:])
        opens = bool(_OPENS.search(before)) or not text[: match.start()].strip(" \"'“‘*(")
        if word == "yes" or closed or (opens and (word != "no" or _STATEMENT.match(text, end))):
            words.append("yes" if word in ("yes", "true") else "no")
    return words


def parse_yesno(text: str) -> str | None:
    """``yes`` or ``no``: the last clear one of the last anchor that holds one, else of the text. *True* is yes, *False* no."""
    for _, said in reversed(anchors(text)):
        words = _clear_words(first_sentence(plain(said)))
        if words:
            return words[-1]
    words = _clear_words(plain(text))
    return words[-1] if words else None


# True and False


def parse_truth(text: str) -> str | None:
    """``True`` or ``False``, read as yes and no are; ``not True`` and ``True or False`` are expressions yet to be worked out."""
    found = parse_yesno(text)
    return None if found is None else {"yes": "True", "no": "False"}[found]


# Valid and invalid

_VALID = re.compile(r"(?<![\w'’-])(in)?valid(?![\w'’-])", re.IGNORECASE)
_VALID_PAIR = re.compile(r"\b(?:in)?valid\W{0,3}\s*(?:/|,?\s*(?:or|and|nor)\s)\s*\W{0,3}(?:in)?valid\b", re.IGNORECASE)
_OPEN = re.compile(r"\b(?:whether|if)\b[^.,;:\n]{0,200}$", re.IGNORECASE)
_NOT = re.compile(
    r"(?:\b(?:not|never|cannot be|far from|no longer)|n[’']t)(?:\s+(?:a|an|at all|be|deductively|logically|necessarily|formally|"
    r"strictly|really|actually|considered))*\W{0,3}$",
    re.IGNORECASE,
)


def _validities(text: str) -> list[str]:
    """What a text calls valid or invalid, in order. ``not valid`` is invalid; "whether it is valid" says nothing."""
    pairs = [match.span() for match in _VALID_PAIR.finditer(text)]
    found = []
    for match in _VALID.finditer(text):
        before = text[max(0, match.start() - 240) : match.start()]
        if any(start <= match.start() < stop for start, stop in pairs) or _OPEN.search(before):
            continue
        found.append("invalid" if (match[1] is not None) != bool(_NOT.search(before[-60:])) else "valid")
    return found


def parse_validity(text: str) -> str | None:
    """``valid`` or ``invalid``: what the last anchor that says either says last, else the text."""
    for _, said in reversed(anchors(text)):
        found = _validities(first_sentence(plain(said)))
        if found:
            return found[-1]
    found = _validities(plain(text))
    return found[-1] if found else None
