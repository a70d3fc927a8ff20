"""Answers out of a closed set of words: yes and no, True and False, valid and invalid."""

import re

from cirf.tasks.parsing.anchors import anchors, first_sentence
from cirf.text.numerals import plain

_CLEAR = re.compile(r"(?<![\w-])(?<!\w['’])(yes|no|true|false)(?![\w-]|['’]\w)", re.I)
_PAIR = re.compile(r"\b(?:yes|no|true|false)\s*(?:/|,?\s*(?:or|and|nor)\s)\s*[\"'“‘]?(?:yes|no|true|false)\b", re.I)
_CLOSED = re.compile(r"[\"'”’)\]}*]*\s*(?:[.,;:!?()\]<–—-]|$)")
_REASON = re.compile(
    r"\b(?:because|since|as|although|though|even though|due to|given that|instead of|rather than|whereas|while)\s", re.I
)
_ENDS_REASON = re.compile(r"[.!?]\s|\n|\b(?:so|therefore|thus|hence|but|however)\b", re.I)
_STATEMENT = re.compile(r"\s+(?:the|it|it's|this|that|he|she|they|because|since|as|so|but)\b", re.I)
_OPENS = re.compile(r"[.!?:\n][\s\"'“‘*(]*$")
_DENIED = re.compile(r"(?:\b(?:not|never|no longer|no more|neither|nor|hardly|anything but)|n[’']t)\s+[\"'“‘*]*$", re.I)

_Found = tuple[int, int, str]  # start and end of a word in a text, and what it says


def _without_reasons(text: str, found: list[_Found]) -> list[str]:
    """The words of a text but those that a reason names for the one before: *no, because yes is wrong* is a no."""
    kept: list[_Found] = []
    for start, end, word in found:
        between = text[kept[-1][1] : start] if kept else ""
        reason = _REASON.search(between)
        if reason is None or _ENDS_REASON.search(between, reason.end()):
            kept.append((start, end, word))
    return [word for _, _, word in kept]


def _clear(text: str) -> list[_Found]:
    pairs = [match.span() for match in _PAIR.finditer(text)]
    words: list[_Found] = []
    for match in _CLEAR.finditer(text):
        word, end = match[1].casefold(), match.end()
        before = text[max(0, match.start() - 24) : match.start()]
        if any(start <= match.start() < stop for start, stop in pairs) or _DENIED.search(before):
            continue
        closed = bool(_CLOSED.match(text, end)) and not re.match(r"\.\s?[0-9]", text[end:])
        opens = bool(_OPENS.search(before)) or not text[: match.start()].strip(" \"'“‘*(")
        if word == "yes" or closed or (opens and (word != "no" or _STATEMENT.match(text, end))):
            words.append((match.start(), end, "yes" if word in ("yes", "true") else "no"))
    return words


def parse_yesno(text: str) -> str | None:
    """``yes`` or ``no``: of the last anchor that holds a clear one the one that it opens with, with a comma or nothing after it,
    or its last; else the text's last. *True* is yes, *False* no. What a reason names ("because") does not count."""
    for _, said in reversed(anchors(text)):
        sentence = first_sentence(plain(said))
        found = _clear(sentence)
        if found and not sentence[: found[0][0]].strip(" \"'“‘*(") and _CLOSED.match(sentence, found[0][1]):
            return found[0][2]
        if words := _without_reasons(sentence, found):
            return words[-1]
    whole = plain(text)
    words = _without_reasons(whole, _clear(whole))
    return words[-1] if words else None


def parse_truth(text: str) -> str | None:
    """``True`` or ``False``, read as yes and no are; ``not True`` and ``True or False`` are expressions yet to be worked out."""
    found = parse_yesno(text)
    return None if found is None else {"yes": "True", "no": "False"}[found]


_VALID = re.compile(r"(?<![\w'’-])(in)?valid(?![\w'’-])", re.I)
_VALID_PAIR = re.compile(r"\b(?:in)?valid\W{0,3}\s*(?:/|,?\s*(?:or|and|nor)\s)\s*\W{0,3}(?:in)?valid\b", re.I)
_OPEN = re.compile(r"\b(?:whether|if)\b[^.,;:\n]{0,200}$", re.I)
_GENERAL = re.compile(
    r"\b(?:an?|any|every|each|no)\s+(?:\w+\s+)?arguments?\s+(?:is|can be|would be|to be)\s+(?:\w+\s+){0,2}$", re.I
)
_NEITHER = re.compile(r"\b(?:neither|nor)\s+(?:\w+\s+(?:nor\s+)?){0,2}$", re.I)
_NOT = re.compile(
    r"(?:\b(?:not|never|cannot be|far from|no longer|fail(?:s|ed|ing)? to be)|n[’']t)(?:\s+(?:a|an|at all|be|deductively|"
    r"logically|necessarily|formally|strictly|really|actually|considered))*\W{0,3}$",
    re.I,
)


def _validities(text: str) -> list[str]:
    """What a text calls valid or invalid, in order. ``not valid`` is invalid; "whether it is valid", "an argument is valid if"
    and "neither valid nor sound" say nothing."""
    pairs = [match.span() for match in _VALID_PAIR.finditer(text)]
    found: list[_Found] = []
    for match in _VALID.finditer(text):
        before = text[max(0, match.start() - 240) : match.start()]
        if any(start <= match.start() < stop for start, stop in pairs) or _OPEN.search(before):
            continue
        if _GENERAL.search(before[-60:]) or _NEITHER.search(before[-60:]):
            continue
        says = "invalid" if (match[1] is not None) != bool(_NOT.search(before[-60:])) else "valid"
        found.append((match.start(), match.end(), says))
    return _without_reasons(text, found)


def parse_validity(text: str) -> str | None:
    """``valid`` or ``invalid``: what the last anchor that says either says last, else the text."""
    for _, said in reversed(anchors(text)):
        found = _validities(first_sentence(plain(said)))
        if found:
            return found[-1]
    found = _validities(plain(text))
    return found[-1] if found else None
