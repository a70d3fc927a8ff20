"""Options: a letter of its own, or an option's own text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from cirf.tasks.numerals import plain
from cirf.tasks.parsing.anchors import anchors, first_sentence, last_sentence
from cirf.tasks.parsing.texts import normalise_text

_BEST_IS = re.compile(r"\b(?:answer|choice|option|fit)\b[^.:\n]{0,200}\bis:\s*(?=([^\n]*))", re.IGNORECASE)
_CHOOSE = re.compile(r"\b(?:choose|chose|pick|select|go with)\s+(?:option\s+|answer\s+|choice\s+)?(?=([^\n]*))", re.IGNORECASE)
_IS_RIGHT = re.compile(
    r"((?:\boption\s+|\bchoice\s+)?\(?\b[A-Z]\b\)?)\W{0,4}\s(?:is|would be) (?:the |clearly )?(?:correct|right|best|most)\b"
)
_NEGATION = re.compile(
    r"\b(?:not|never|cannot|unlike|rather than|instead of|neither|nor|wrong|incorrect|rule out|eliminate)\b|n[’']t\b",
    re.IGNORECASE,
)


def mentions(text: str, choices: Sequence[str]) -> list[tuple[int, int, int]]:
    """Where options' texts stand in ``text`` as whole words: ``(start, end, index)`` in order, longer options first.

    A leading article of an option may be missing, and a plural ``s`` may be there or not. Where one option's text lies
    inside another's, the longer one counts.
    """
    spans: list[tuple[int, int, int]] = []
    for index, choice in enumerate(choices):
        words = re.sub(r"^(?:an?|the)\s+(?=\S)", "", " ".join(choice.split()), flags=re.IGNORECASE)
        if not words:
            continue
        singular = words[:-1] if re.search(r"[^\Ws]{3}s$", words) else words
        pattern = r"\s+".join(re.escape(word) for word in singular.split(" "))
        found = re.finditer(rf"(?<!\w){pattern}(?:e?s)?(?!\w)", text, re.IGNORECASE)
        spans.extend((match.start(), match.end(), index) for match in found)
    outer, reach = [], -1  # the furthest end of what begins earlier, or as early and is longer
    for (_, end), group in itertools.groupby(sorted(spans, key=lambda s: (s[0], -s[1])), key=lambda s: s[:2]):
        if reach < end:
            outer += list(group)
            reach = end
    return sorted(outer)


_CONTRAST = re.compile(
    r",\s*(?:and\s+)?not\s+(?!only)|,?\s*\b(?:rather than|instead of)\s", re.IGNORECASE
)  # what follows is denied


def parse_option(text: str, choices: Sequence[str] | None) -> str | None:
    """The letter of the option that a text settles on; ``None`` if it settles on none, or on several."""
    count = len(choices) if choices else 26
    for _, said in reversed(anchors(text, _BEST_IS, _CHOOSE, _IS_RIGHT)):
        letter = _option_at_front(first_sentence(said), choices or (), count)
        if letter:
            return letter
    whole = plain(text).strip()
    letter = _letter_alone(whole, count) or _only_mention(whole, choices or (), whole=True)
    if letter:
        return letter
    marked = {m[1] for m in re.finditer(r"(?:^|\n)[ \t]*(?:[-•*]\s*)?\(?([A-Z])[).:](?=\s|$)|\(([A-Z])\)", whole)} - {None}
    front = re.match(r"\(?([A-Z])[).:](?=\s)", whole)
    if front and _in_range(front[1], count) and marked <= {front[1]}:
        return front[1]
    last = _CONTRAST.split(plain(last_sentence(text)), 1)[0]
    if _NEGATION.search(last):
        return None
    named = {found for m in re.finditer(r"\(([A-Z])\)|\b(?:[Oo]ption|[Cc]hoice) ([A-Z])\b", last) if (found := m[1] or m[2])}
    if named:
        return named.pop() if len(named) == 1 and all(_in_range(found, count) for found in named) else None
    return _only_mention(last, choices or (), whole=False)


def _in_range(letter: str, count: int) -> bool:
    return 0 <= ord(letter) - 65 < count


def _letter_alone(text: str, count: int) -> str | None:
    match = re.fullmatch(r"[\s(\[{\"'$]*([A-Za-z])[\s)\]}.:,\"'$!]*", text)
    letter = match[1].upper() if match else ""
    return letter if letter and _in_range(letter, count) else None


def _option_at_front(said: str, choices: Sequence[str], count: int) -> str | None:
    """The option that a text begins with: a letter of its own, or an option's own text."""
    said = plain(said).strip().lstrip("\"'“‘$*: ")
    alone = _letter_alone(said, count)
    if alone:
        return alone
    if re.match(r"not\b", said, re.IGNORECASE):
        return None
    said = re.sub(r"^(?:option|choice|letter)\s+", "", said, flags=re.IGNORECASE)
    match = re.match(r"\(([A-Za-z])\)|([A-Z])(?=[).:,;\]\"'”’]|\s*$|\s+-|\s*\(|\s+(?:because|since|is)\b)|([A-Z])(?=\s)", said)
    letter = next((part for part in match.groups() if part), "").upper() if match else ""
    rest = said[match.end() :] if match else said
    own = _mention_at_front(rest, choices)
    if letter and _in_range(letter, count) and match:
        bare = match[3] is not None  # "A roof": the letter or the article?
        if not bare or own == letter or (letter not in "AI" and own is None):
            return letter
    return _mention_at_front(said, choices) or _only_mention(said, choices, whole=False, negated=bool(_NEGATION.search(said)))


def _mention_at_front(text: str, choices: Sequence[str]) -> str | None:
    lead = re.match(r"\W*(?:(?:an?|the)\s+)?\W*", text, re.IGNORECASE)
    offset = lead.end() if lead else 0
    starts = {index for start, _, index in mentions(text, choices) if start <= offset}
    return chr(65 + starts.pop()) if len(starts) == 1 else None


def _only_mention(text: str, choices: Sequence[str], whole: bool, negated: bool = False) -> str | None:
    if whole:
        same = [index for index, choice in enumerate(choices) if normalise_text(choice) == normalise_text(text)]
        return chr(65 + same[0]) if len(same) == 1 else None
    named = {index for _, _, index in mentions(text, choices)}
    return chr(65 + named.pop()) if len(named) == 1 and not negated else None
