r"""Where a text says outright what its answer is: ``#### x``, ``\boxed{x}``, ``The answer is x``, ``Answer: x``."""

from __future__ import annotations

import re

_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_BOXED = re.compile(r"\\boxed\s*\{")
_BRACE = re.compile(r"[{}]")
_ANSWER_IS = re.compile(
    r"(?<!each )(?<!every )\banswer\b(?:\s+(?:choice|option))?\s*(?:\*\*)?\s*"
    r"(?:\bis\b|\b(?:must|should|would|will|has to|can only) be\b|:|=)\s*:?\s*(?=([^\n]*))",
    re.IGNORECASE,
)
_ANSWER_TO_IS = re.compile(r"\banswer\s+(?:to|for|of|that|which)\s[^.:\n=]{0,160}?\bis\b\s*:?\s*(?=([^\n]*))", re.IGNORECASE)
SENTENCE_END = re.compile(r"(?<=[.!?])(?<![\s(*][A-Z]\.)[\"'”’)*]*\s+(?=[^\s])")


def anchors(text: str, *extra: re.Pattern[str]) -> list[tuple[str, str]]:
    """The anchored answers of a text, in order: ``(anchor, what it says)`` with anchor ``hashes``, ``boxed`` or ``phrase``."""
    return [(kind, said) for _, kind, said in places(text, *extra)]


def places(text: str, *extra: re.Pattern[str]) -> list[tuple[int, str, str]]:
    """As ``anchors``, each with the place in ``text`` where what it says begins. Braces inside a box must balance."""
    found = [(match.start(1), "hashes", match[1]) for match in _HASHES.finditer(text)]
    boxes = list(_BOXED.finditer(text))
    closed = _closed_braces(text) if boxes else {}
    for match in boxes:
        end = closed.get(match.end() - 1)
        if end is not None:
            found.append((match.end(), "boxed", text[match.end() : end]))
    for pattern in (_ANSWER_IS, _ANSWER_TO_IS, *extra):
        found.extend((match.start(1), "phrase", match[1]) for match in pattern.finditer(text))
    return sorted(found)


def _closed_braces(text: str) -> dict[int, int]:
    """Where the braces that open at some place close."""
    opened: list[int] = []
    closed = {}
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif opened:
            closed[opened.pop()] = match.start()
    return closed


def first_sentence(text: str) -> str:
    """The text up to the first end of a sentence."""
    return SENTENCE_END.split(text.strip(), 1)[0]


def last_sentence(text: str) -> str:
    """The last sentence of the last line that is not blank."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return SENTENCE_END.split(lines[-1].strip())[-1] if lines else ""
