"""Answers whose order counts: lists of words, and strings of brackets."""

import re
from collections import Counter
from collections.abc import Collection, Sequence

from cirf.tasks.parsing.anchors import ENCLOSED, places

# Lists of words: canonical is one space between two words, in small letters

_TOKEN = re.compile(r"[^\s,;|<>→]+|[\n,;|<>→]")
_SEPARATORS = frozenset(",;|<>→\n")
_NUMBERING = re.compile(r"\(?\d{1,3}[.):]|\d{1,3}|[-–—•*+]+|=+")
_WRAPPING = "\"'“”‘’`*_.:!?()[]{}$\\"
_HALF = 0.5
_ENDS = frozenset(".:!?")

_ARROW = re.compile(r"\\(?:long)?(?:right|Right)arrow(?![A-Za-z])|\\(?:to|prec|lt|leq?)(?![A-Za-z])|-{1,2}>|=>|[⇒⟶➔➜]")
_SLASH = re.compile(r"(?<=\w)\s*/\s*(?=\w)")


def list_words(question: str) -> tuple[str, ...]:
    """The words that a question asks to be put in order, as it gives them: those after its last ``List:`` or colon; none where
    it has neither."""
    _, mark, listed = question.rpartition("List:")
    if not mark:
        _, mark, listed = question.rpartition(":")
    words = (_clean(word) for word in listed.replace(",", " ").split())
    return tuple(word for word in words if word) if mark else ()


def parse_list(text: str, question: str = "") -> str | None:
    """The words of a list in their order: ``a, b and c``, ``a -> b``, a line each, numbered or not.

    With the words of the question known, an answer is a row of such words separated only by commas, arrows, line ends, numbering
    and *and*. A row ends where a word occurs again, and a line with other words adds nothing to a row of lines before it. The
    result is the first row after the last anchor that has one, else the last one of the longest, if it holds at least half of the
    words or is all that the text has; the words in the question's own order only where no other row is as good. Without the
    question's words: the last anchor's line, else the text after its last colon, else the text.
    """
    given = list_words(question)
    anchored = places(text)
    if not given:
        said = next((said for _, _, said in reversed(anchored) if _words(said)), None)
        return " ".join(_words(said if said is not None else text.rpartition(":")[2])) or None
    for start, anchor, said in reversed(anchored):
        if said.startswith("not "):
            continue
        runs = _runs(said if anchor in ENCLOSED else text[start:], given)
        if runs and runs[0][0] <= len(said):
            rows = [row for _, row in runs]
            if tuple(rows[0]) == given:  # the question's list again
                return " ".join(next((row for row in rows[1:] if len(row) >= _HALF * len(given)), rows[0]))
            return " ".join(rows[0])
    rows = [row for _, row in _runs(text, given)]
    longest = max(map(len, rows), default=0)
    only = len(rows) == 1 and len(_words(text)) == longest
    if not longest or (longest < _HALF * len(given) and not only):
        return None
    best = [row for row in rows if len(row) == longest]
    return " ".join(next((row for row in reversed(best) if tuple(row) != given), best[-1]))


def _clean(token: str) -> str:
    return token.strip(_WRAPPING).casefold()


def _words(text: str) -> list[str]:
    text = re.sub(r"\\(?:text|mathrm|textbf)\s*\{([^{}]*)\}", r"\1", text)
    tokens = [token for token in _TOKEN.findall(text) if token not in _SEPARATORS and not _NUMBERING.fullmatch(token)]
    words = [_clean(token) for token in tokens]
    return [word for word in words if word and not _NUMBERING.fullmatch(word) and word not in ("and", "then")]


def _runs(text: str, given: Sequence[str]) -> list[tuple[int, list[str]]]:
    """The rows of given words that nothing else interrupts, each with its place. A sentence's end ends a row, and so does a
    word that the row has as often as the question."""
    text = re.sub(r"\\(?:text|mathrm|textbf|quad|,|;)\s*(?![a-z])", _spaces, _ARROW.sub(_spaces, text))
    if not any("/" in word for word in given):
        text = _SLASH.sub(_spaces, text)
    often = Counter(given)
    found: list[tuple[int, list[str]]] = []
    row: list[str] = []
    start = 0

    def close() -> None:
        nonlocal row
        if row:
            found.append((start, row))
        row = []

    offset = 0
    for line in text.splitlines(keepends=True):
        tokens = [(match.start() + offset, match[0]) for match in _TOKEN.finditer(line)]
        if any(_interrupts(token, often) for _, token in tokens):
            close()
        for place, token in tokens:
            word = token if token in often else _clean(token)
            if word in often:
                if row.count(word) == often[word]:
                    close()
                start = start if row else place
                row.append(word)
                if token[-1] in _ENDS:
                    close()
            elif _interrupts(token, often):
                close()
        offset += len(line)
    close()
    return found


def _spaces(match: re.Match[str]) -> str:
    """As many spaces as were matched, so that places stay what they are."""
    return " " * len(match[0])


def _interrupts(token: str, known: Collection[str]) -> bool:
    """Whether a token is a word that is none of the list's."""
    word = _clean(token)
    if token in _SEPARATORS or token in known or word in known or not word or word in ("and", "then"):
        return False
    return not _NUMBERING.fullmatch(token.strip("*`"))


# Brackets: canonical is one space between two of them

BRACKETS = "()[]{}<>"
_RUN = re.compile(r"[][(){}<>](?:(?:[\s,;'\"“”‘’`]|\b(?:and|then|followed by)\b)*[][(){}<>])*")
_REMARK = re.compile(r"[({[][^][(){}]*[A-Za-z0-9][^][(){}]*[])}]")
_APART = re.compile(rf"(?<![\w=+*/|&^-]){_RUN.pattern}(?![\w=+*/|&^-])")
_COMPARED = re.compile(r"(?<=[0-9])\s*[<>]=?\s*(?=-?[0-9A-Za-z])|(?<=\b[a-z])\s*[<>]=?\s*(?=-?[0-9]|[a-z]\b)")
_NESTED = 3
_BOX = re.compile(r"\\boxed\s*\{([^\n]*)\}")
_TAG = re.compile(r"</?[A-Za-z_]\w*>")
_SMILEY = re.compile(r"(?<!\w)[:;]-?[()](?!\s*[])}>])")
_ROW_LEAD = re.compile(
    r"(?:^\W*|[:=]\s*|\b(?:is|are|be|by|with|add|adding|added|append|sequence|brackets?|parenthes[ie]s|gives?|get)\s*)[\"'“‘`\s]*$",
    re.I,
)
_ROW_TAIL = re.compile(r"[\"'”’`\s]*(?:$|[.,;:!](?:\s|$)|(?:because|since|as|to|in order|which|where|so that)\b)", re.I)
_ARROWS = re.compile(r"[-=]+>|<[-=]+")


def parse_brackets(text: str, question: str = "") -> str | None:
    """The brackets that an answer consists of; spaces, commas, quotes and *and* between them do not count.

    Of the last anchored line with such a row the first row; else of the last line that ends in one or is nothing else, if
    all of it closes or it says the question's sequence again. A row is at the start of a statement or after words such as *is*
    and *with*; prose that mentions single brackets has none. Remarks in parentheses, arrows and comparisons (``2 < 3``) are
    passed over, and without an anchor also what touches a word or a sign of calculation. An answer that repeats the whole
    sequence of the question and goes on counts as what it goes on with, since the task is to complete it; one that only repeats
    it is no answer.
    """
    given = "".join(_brackets("".join(_RUN.findall(_plainer(question))[-1:])))
    boxes = [match[1] for match in _BOX.finditer(text)]
    said = boxes or [said for _, anchor, said in places(text) if anchor != "boxed"]
    for part in reversed(said):
        row = _row(_plainer(part), _RUN)
        if row:
            return _completion(row, given)
    for line in reversed(text.splitlines()):
        row = _row(_COMPARED.sub(" ", _plainer(line)), _APART, ends=True)
        signs = "".join(_brackets(row or ""))
        if row and ((given and signs.startswith(given)) or not set(signs) & set("([{<")):
            return _completion(row, given)
    return None


def _row(line: str, pattern: re.Pattern[str], ends: bool = False) -> str | None:
    """The row of brackets that a line answers with, if it has one; the line must end with it where ``ends``."""
    line = _SMILEY.sub(" ", line)
    found = list(pattern.finditer(line))
    if not found:
        return None
    chosen = found[-1] if ends else found[0]
    lead, tail = line[: chosen.start()], line[chosen.end() :]
    if ends and re.search(r"\w", tail):
        return None
    several = len({"".join(_brackets(match[0])) for match in found}) > 1
    after_colon = re.search(r":\s*[\"'“‘`\s]*$", lead) is not None
    if several and not (after_colon if ends else _ROW_TAIL.match(tail) and _ROW_LEAD.search(lead)):
        return None
    at_end = not re.search(r"\w", tail)
    fits = _ROW_LEAD.search(lead) and (at_end or _ROW_TAIL.match(tail))
    return chosen[0] if fits else None


def same_brackets(parsed: str, gold: str) -> bool:
    return _brackets(parsed) == _brackets(gold)


def _brackets(text: str) -> list[str]:
    return [sign for sign in text if sign in BRACKETS]


def _plainer(text: str) -> str:
    """Without markup and without remarks in parentheses."""
    text = _ARROWS.sub(" ", re.sub(r"\\[()\[\]]", " ", text))
    text = _TAG.sub(" ", re.sub(r"\\(?:[A-Za-z]+|,|;)\s*|[\\$*]", " ", text))
    for _ in range(_NESTED):
        text = _REMARK.sub(" ", text)
    return text


def _completion(row: str, given: str) -> str | None:
    signs = "".join(_brackets(row))
    if given and signs.startswith(given):
        signs = signs[len(given) :]
    return " ".join(signs) or None
