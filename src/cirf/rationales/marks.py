"""Marks that number the steps of a rationale, and letters that head its options. All texts here are in plain form.

Ordinal marks, best first: ``Step k`` at the start of a line; ``k.``, ``k)``, ``(k)``, ``k:`` at the start of a line; the
same within a line after a sentence's end; ``First, ... Second, ...``. A series counts up by one from 1 (``Step`` may
start anywhere and skip; lines may skip where all their numbers rise), so a stray ``No. 4`` or a line that begins with
``3.5`` is no mark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER = rf"(\d{{1,3}}|{'|'.join(_WORDS)})"
_STEP_BODY = rf"(?:\d{{1,3}}[.)][ ]+)?step[ ]?#?{_NUMBER}"
_LINE_STEP = re.compile(rf"^{_STEP_BODY}(?:[ ]?[:.)\-–—]+(?=\s|\(|$)[ ]?|[ ]?$|[ ](?=[A-Z(]))", re.IGNORECASE | re.MULTILINE)
_BARE_STEP = re.compile(r"(?i:step)[ ]?#?\w+[ ]$")
_INLINE_STEP = re.compile(rf"(?:(?<=[.!?:;)\]][ ])|^){_STEP_BODY}[:.)]+(?=\s)", re.IGNORECASE | re.MULTILINE)
_LINE_STYLES = {
    "dot": re.compile(r"^(\d{1,2})\.(?=\s|$)[ ]?", re.MULTILINE),
    "close": re.compile(r"^(\d{1,2})\)(?=\s|$)[ ]?", re.MULTILINE),
    "paren": re.compile(r"^\((\d{1,2})\)(?=\s|$)[ ]?", re.MULTILINE),
    "colon": re.compile(r"^(\d{1,2}):(?=\s|$)[ ]?", re.MULTILINE),
}
_INLINE_STYLES = {
    "dot": re.compile(
        r"(?:(?<=[.!?:;][ ])(?<!\b[Nn]o\.[ ])(?<!\bFig\.[ ])(?<!\bEq\.[ ])|^)(\d{1,2})\.[ ](?=[\"'(]?[A-Z])", re.MULTILINE
    ),
    "close": re.compile(r"(?:(?<=[.!?:;,][ ])|(?<=and[ ])|^)(\d{1,2})\)[ ](?=[\"'(]?[A-Za-z])", re.MULTILINE),
    "paren": re.compile(r"(?:(?<=[.!?:;,][ ])|(?<=and[ ])|^)\((\d{1,2})\)[ ](?=[\"'(]?[A-Za-z])", re.MULTILINE),
}
_ORDER = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_ORDER_WORD = re.compile(
    rf"(?:(?<=[.!?:;][ ])|^)(?:({'|'.join(_ORDER)})(?:ly)?(?:[ ]step)?|(finally|lastly))(?:,|:)[ ]?", re.IGNORECASE | re.MULTILINE
)
_OPTION = re.compile(
    r"^(?:\d{1,2}[.)][ ])?(?P<option>(?:Option |Choice |Answer )?(?:\(([A-Z])\)|([A-Z])[.):](?=\s|$)))", re.MULTILINE
)
_CONCLUDING = re.compile(
    r"(?:thus|therefore|hence|so|overall|in conclusion|in summary|to sum up|conclusion|after|based on|given|considering|among|"
    r"of (?:the|these|all)|from (?:the|this)|the (?:most|best|correct|right|final|only|answer)|"
    r"final answer|answer|finally|since)\b",
    re.IGNORECASE,
)
# As `_CONCLUDING`, but read of lines within a step: "Since Bo waits, it stays" and "So it costs $56" are what the step does.
_CLOSING = re.compile(
    r"(?:thus|therefore|hence|so,? (?:the|final)|overall|in conclusion|in summary|to sum up|conclusion|"
    r"after (?:all|both|these|this|the|tracking|considering|following|going|analyzing|evaluating)|at the end|based on|"
    r"considering|since neither|final|finally|answer)\b",
    re.IGNORECASE,
)
_CONCLUSION_HEAD = re.compile(
    r"^(?:conclusion|summary|final (?:answer|result|conclusion|step))(?:[ ]?:[ ]?|[ ]?\.?$)", re.IGNORECASE | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Mark:
    """An ordinal: its number, where the mark begins and where the step's own text does (character offsets)."""

    number: int
    start: int
    end: int


def ordinal_marks(text: str, words: bool = False) -> tuple[Mark, ...]:
    """The series of marks that numbers the steps, empty where there is none. ``words``: take ``First, ... Second, ...`` too.

    Of an announced plan and the steps that carry it out, the steps are taken: ``Step`` goes before ``k.``, and of two
    runs of the same length the later.
    """
    steps = _series(_line_steps(text), gaps=True)
    if len(steps) >= 2:
        return steps
    numbered = [_found(pattern, text) for pattern in _LINE_STYLES.values()]
    lines = max([*map(_series, numbered), *map(_rising, numbered)], key=len)
    if len(lines) >= 2:
        # "Step 1" alone over a list of numbered sub-steps, or the one "Step" in a numbered rationale: the longer series
        return lines
    inline = _series(_found(_INLINE_STEP, text), gaps=True)
    if len(inline) >= 2:
        return inline
    inner = max((_series(_found(pattern, text)) for pattern in _INLINE_STYLES.values()), key=len)
    if len(inner) >= 2:
        return inner
    spelled = _order_words(text) if words else ()
    return spelled if len(spelled) >= 2 else steps or inline


def option_starts(text: str, options: int | None) -> tuple[int, ...]:
    """Offsets where options A, B, C ... open (after a list's ``1.``), each letter once, rising; empty below two."""
    starts: list[int] = []
    last = 0
    for match in _OPTION.finditer(text):
        place = ord(match[2] or match[3]) - ord("A") + 1
        if place > last and place <= (options or 26) and (starts or place <= 2):
            starts.append(match.start("option"))
            last = place
    return tuple(starts) if len(starts) >= 2 else ()


def option_letter(text: str) -> str:
    """The letter of the option that a text begins with (``B) walk``: ``B``); empty where it begins with none."""
    match = _OPTION.match(text)
    return (match[2] or match[3]) if match else ""


def split_last_option(text: str) -> tuple[str, str]:
    """The last option's own text and what concludes after it: the next paragraph, or a line that opens like a conclusion."""
    lines = text.split("\n")
    for index in range(1, len(lines)):
        if lines[index] and (not lines[index - 1] or _CONCLUDING.match(lines[index])):
            return "\n".join(lines[:index]), "\n".join(lines[index:])
    return text, ""


def closing_start(text: str) -> int:
    """Where the lines of a last step begin that close the rationale (``At the end of these steps, ...``); never at 0."""
    start = 0
    for line in text.split("\n"):
        if start and _CLOSING.match(line):
            return start
        start += len(line) + 1
    return len(text)


def split_conclusion(text: str) -> tuple[str, str]:
    """A last step's own text and a conclusion under its own heading (``Conclusion:``), heading included; else all and nothing."""
    found = _CONCLUSION_HEAD.search(text)
    if found is None or found.start() == 0:
        return text, ""
    return text[: found.start()], text[found.start() :]


def conclusion_body(text: str) -> str:
    """What stands under a conclusion's heading."""
    found = _CONCLUSION_HEAD.match(text)
    return text[found.end() :].strip() if found else text


def _line_steps(text: str) -> list[Mark]:
    marks = []
    for match in _LINE_STEP.finditer(text):
        bare = _BARE_STEP.search(match[0]) is not None
        following = text[match.end() : match.end() + 1]
        if bare and not (following.isupper() or following == "("):  # "Step 2 gives 5" speaks of a step, it does not open one
            continue
        marks.append(Mark(_value(match[1]), match.start(), match.end()))
    return marks


def _found(pattern: re.Pattern[str], text: str) -> list[Mark]:
    return [Mark(_value(match[1]), match.start(), match.end()) for match in pattern.finditer(text)]


def _value(number: str) -> int:
    return int(number) if number.isdigit() else _WORDS.index(number.casefold()) + 1


def _order_words(text: str) -> tuple[Mark, ...]:
    """``First, ... Second, ... Finally, ...``; the text must open with the first, so that nothing before it is lost."""
    marks: list[Mark] = []
    for match in _ORDER_WORD.finditer(text):
        number = _ORDER.index(match[1].casefold()) + 1 if match[1] else len(marks) + 1
        if number == len(marks) + 1:
            marks.append(Mark(number, match.start(), match.end()))
    return tuple(marks) if marks and marks[0].start == 0 else ()


def _series(marks: Sequence[Mark], gaps: bool = False) -> tuple[Mark, ...]:
    """The longest rising series among marks of one style; of equally long ones that do not overlap, the last."""
    best: tuple[Mark, ...] = ()
    for index, first in enumerate(marks):
        if not gaps and first.number != 1:
            continue
        if best and first.number != best[0].number:
            continue
        chain = [first]
        for mark in marks[index + 1 :]:
            expected = chain[-1].number + 1
            if mark.number == expected or (gaps and mark.number > expected and not _later(marks, mark, expected)):
                chain.append(mark)
        if len(chain) > len(best) or (len(chain) == len(best) and chain[0].start > best[-1].start):
            best = tuple(chain)
    return best


def _rising(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """All the marks, if they begin with 1 and every one is higher than that before it (a list with numbers left out)."""
    rises = all(one.number < other.number for one, other in pairwise(marks))
    return tuple(marks) if rises and marks and marks[0].number == 1 else ()


def _later(marks: Sequence[Mark], after: Mark, number: int) -> bool:
    return any(mark.number == number for mark in marks if mark.start > after.start)
