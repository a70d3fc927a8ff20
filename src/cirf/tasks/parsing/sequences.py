"""Answers whose order counts: lists of words, and strings of brackets."""

from __future__ import annotations

import re
from collections.abc import Collection

from cirf.tasks.parsing.anchors import places

# Lists of words: canonical is one space between two words, in small letters

_TOKEN = re.compile(r"[^\s,;|<>→]+|[\n,;|<>→]")
_SEPARATORS = frozenset(",;|<>→\n")
_NUMBERING = re.compile(r"\(?\d{1,3}[.):]|\d{1,3}|[-–—•*+]+|=+")
_WRAPPING = "\"'“”‘’`*_.:!?()[]{}$\\"
_HALF = 0.5
_ENDS = frozenset(".:!?")


def list_words(question: str) -> frozenset[str]:
    """The words that a question asks to be put in order: those after its last ``List:`` or colon; none where it has neither."""
    _, mark, listed = question.rpartition("List:")
    if not mark:
        _, mark, listed = question.rpartition(":")
    return frozenset(_clean(word) for word in listed.replace(",", " ").split()) - {""} if mark else frozenset()


def parse_list(text: str, question: str = "") -> str | None:
    """The words of a list in their order: ``a, b and c``, a line each, numbered or not.

    With the words of the question known, an answer is a row of such words with nothing else between them but commas, line
    ends, numbering and *and*: the first row behind the last anchor that has one, else the last one of the longest, if it
    holds at least half of the words or is all that the text has. Without them: the last anchor's line, else the text behind
    its last colon, else the text.
    """
    known = list_words(question)
    anchored = places(text)
    if not known:
        said = next((said for _, _, said in reversed(anchored) if _words(said)), None)
        return " ".join(_words(said if said is not None else text.rpartition(":")[2])) or None
    for start, anchor, said in reversed(anchored):
        part = said if anchor == "boxed" else text[start:]
        runs = _runs(part, known)
        if runs and runs[0][0] <= len(said):
            return " ".join(runs[0][1])
    rows = [row for _, row in _runs(text, known)]
    longest = max(map(len, rows), default=0)
    only = len(rows) == 1 and len(_words(text)) == longest
    if not longest or (longest < _HALF * len(known) and not only):
        return None
    return " ".join(next(row for row in reversed(rows) if len(row) == longest))


def _clean(token: str) -> str:
    return token.strip(_WRAPPING).casefold()


def _words(text: str) -> list[str]:
    """Every word of a bare list."""
    text = re.sub(r"\\(?:text|mathrm|textbf)\s*\{([^{}]*)\}", r"\1", text)
    tokens = [token for token in _TOKEN.findall(text) if token not in _SEPARATORS and not _NUMBERING.fullmatch(token)]
    words = [_clean(token) for token in tokens]
    return [word for word in words if word and not _NUMBERING.fullmatch(word) and word not in ("and", "then")]


def _runs(text: str, known: Collection[str]) -> list[tuple[int, list[str]]]:
    """The rows of known words that nothing else interrupts, each with its place. A sentence's end ends a row."""
    text = re.sub(r"\\(?:text|mathrm|textbf|quad|,|;)\s*(?![a-z])", " ", text)
    found: list[tuple[int, list[str]]] = []
    row: list[str] = []
    start = 0

    def close() -> None:
        nonlocal row
        if row:
            found.append((start, row))
        row = []

    for match in _TOKEN.finditer(text):
        token, word = match[0], _clean(match[0])
        if token in _SEPARATORS:
            continue
        if token in known or word in known:
            start = start if row else match.start()
            row.append(word if word in known else token)
            if token[-1] in _ENDS:
                close()
        elif word and word not in ("and", "then") and not _NUMBERING.fullmatch(token.strip("*`")):
            close()
    close()
    return found


# Brackets: canonical is one space between two of them

BRACKETS = "()[]{}<>"
_RUN = re.compile(r"[][(){}<>](?:(?:[\s,;'\"“”‘’`]|\b(?:and|then|followed by)\b)*[][(){}<>])*")
_REMARK = re.compile(r"[({[][^][(){}]*[A-Za-z0-9][^][(){}]*[])}]")
_APART = re.compile(rf"(?<![\w=+*/|&^-]){_RUN.pattern}(?![\w=+*/|&^-])")
_COMPARED = re.compile(r"(?<=[0-9])\s*[<>]=?\s*(?=-?[0-9A-Za-z])|(?<=\b[a-z])\s*[<>]=?\s*(?=-?[0-9]|[a-z]\b)")
_NESTED = 3
_BOX = re.compile(r"\\boxed\s*\{([^\n]*)\}")
_TAG = re.compile(r"</?[A-Za-z_]\w*>")


def parse_brackets(text: str, question: str = "") -> str | None:
    """The brackets that an answer consists of; spaces, commas, quotes and *and* between them do not count.

    Of the last anchored line that holds brackets the first row of them, else of the last such line of the text the last row;
    remarks in parentheses and comparisons (``2 < 3``) are passed over, and without an anchor also what touches a word or a
    sign of calculation. An answer that repeats the whole sequence of the question and goes on counts as what it goes on with,
    since the task is to complete it; one that only repeats it is no answer.
    """
    given = "".join(_brackets(_last(_RUN.findall(_plainer(question)))))
    boxes = [match[1] for match in _BOX.finditer(text)]
    said = boxes or [said for _, anchor, said in places(text) if anchor != "boxed"]
    for part in reversed(said):
        rows = _RUN.findall(_plainer(part))
        if rows:
            return _completion(rows[0], given)
    for line in reversed(text.splitlines()):
        rows = _APART.findall(_COMPARED.sub(" ", _plainer(line)))
        if rows:
            return _completion(rows[-1], given)
    return None


def same_brackets(parsed: str, gold: str) -> bool:
    """Whether two texts have the same brackets in the same order."""
    return _brackets(parsed) == _brackets(gold)


def _brackets(text: str) -> list[str]:
    return [sign for sign in text if sign in BRACKETS]


def _plainer(text: str) -> str:
    """Without markup and without remarks in parentheses."""
    text = re.sub(r"\\[()\[\]]", " ", text)
    text = _TAG.sub(" ", re.sub(r"\\(?:[A-Za-z]+|,|;)\s*|[\\$*]", " ", text))
    for _ in range(_NESTED):
        text = _REMARK.sub(" ", text)
    return text


def _last(rows: list[str]) -> str:
    return rows[-1] if rows else ""


def _completion(row: str, given: str) -> str | None:
    signs = "".join(_brackets(row))
    if given and signs.startswith(given):
        signs = signs[len(given) :]
    return " ".join(signs) or None
