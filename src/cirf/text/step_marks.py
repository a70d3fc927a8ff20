"""Marks that number the steps of a rationale, and letters that head its options. All texts here are in plain form.

Ordinal marks, best first: ``Step k`` at the start of a line; ``k.``, ``k)``, ``(k)``, ``k:`` at the start of a line; the same
within a line after a sentence's end; ``①``, ``第一步``; ``First, ... Second, ...``. A series counts up by one from 1 (``Step``
may start anywhere, skip and repeat a number; lines may skip where all their numbers rise), so a stray ``No. 4`` or a line
that begins with ``3.5`` is no mark. A list within an item is a part of it, whether indented or numbered from 1 again.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cirf.text.sentences import sentences

_DEEP = 8  # lists within lists
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER = rf"(\d{{1,3}}|{'|'.join(_WORDS)})"
_STEP = "(?:step|schritt|étape|etape|paso|passo|pasul|шаг|крок|stap|krok|adım|langkah|bước|चरण|الخطوة|步骤|步驟|ステップ|단계)"
_STEP_BODY = rf"(?:\d{{1,3}}[.)][ ]+)?[(\[]?{_STEP}[ _-]?#?{_NUMBER}(?:[ ]?(?:/|of)[ ]?\d{{1,3}})?[)\]]?"
_LINE_STEP = re.compile(rf"^{_STEP_BODY}(?:[ ]?(?:[:.)\-–—]+(?=\s|\(|$)|：)[ ]?|[ ]?$|[ ](?=[A-Z(]))", re.I | re.M)
_INLINE_STEP = re.compile(rf"(?:(?<=[.!?:;)\]][ ])|^){_STEP_BODY}[:.)]+(?=\s)", re.I | re.M)
_SIGNS = re.compile(r"([\u2460-\u2487\u2776-\u2793]|\d(?=\ufe0f?\u20e3))(?:\ufe0f?\u20e3)?[ ]?")  # in a circle, on a key
_COUNTED = re.compile(
    r"(?:(?<=[。；;.][ ])|(?<![^。；;\n]))(?:第(?=..?步)|(?=..?단계))([一二三四五六七八九十]|\d\d?)[步단]계?[ ]?[:：，,、]?[ ]?"
)
_OPENS = r"(?:(?<!\n)|(?!.1\b))"  # 1 only where the text opens: elsewhere it may be a reference, or a rank
_LINE_STYLES = tuple(
    re.compile(rf"^{mark}[ ]?", re.M)
    for mark in (
        *(r"(\d{1,2})(?:\.(?=\s|$)|[．、])", r"(\d{1,2})\)(?=\s|$)", r"\((\d{1,2})\)(?=\s|$)", r"(\d{1,2}):(?=\s|$)"),
        *(rf"{_OPENS}\[(\d\d?)\](?=\s|$)", rf"{_OPENS}#(\d\d?)[:.)]?(?=\s|$)"),
        r"(\d{1,2})(?:[ ]?[-–—]|/)[ ](?=[\"'(]?[^\W\d_]{2})",  # not a difference: "5 - 3 = 2"
    )
)
_INLINE_STYLES = {
    "dot": re.compile(r"(?:(?<=[.!?:;][ ])(?<!\b[Nn]o\.[ ])(?<!\bFig\.[ ])(?<!\bEq\.[ ])|^)(\d{1,2})\.[ ](?=[\"'(]?[A-Z])", re.M),
    "close": re.compile(r"(?:(?<=[.!?:;,][ ])|(?<=and[ ])|^)(\d{1,2})\)[ ](?=[\"'(]?[A-Za-z])", re.M),
    "paren": re.compile(r"(?:(?<=[.!?:;,][ ])|(?<=and[ ])|^)\((\d{1,2})\)[ ](?=[\"'(]?[A-Za-z])", re.M),
    "sign": _SIGNS,
    "counted": _COUNTED,
}
_ORDER = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_ORDER_WORD = re.compile(
    rf"(?:(?<=[.!?:;][ ])|^)(?:({'|'.join(_ORDER)})(?:ly)?(?:[ ]step)?|(finally|lastly))(?:,|:)[ ]?", re.I | re.M
)
_OPTION = re.compile(r"^(?:\d{1,2}[.)][ ])?(?P<option>(?:Option |Choice |Answer )?(?:\(([A-Z])\)|([A-Z])[.):](?=\s|$)))", re.M)
_CONCLUDING = re.compile(
    r"(?:thus|therefore|hence|so|overall|in conclusion|in summary|to sum up|conclusion|after|based on|given|considering|among|"
    r"of (?:the|these|all)|from (?:the|this)|the (?:most|best|correct|right|final|only|answer)|"
    r"final answer|answer|finally|since)\b",
    re.I,
)
# As `_CONCLUDING`, but read of lines within a step: "Since Bo waits, it stays" and "So it costs $56" are what the step does.
_CLOSING = re.compile(
    r"(?:thus|therefore|hence|so,? (?:the|final)|overall|in conclusion|in summary|to sum up|conclusion|"
    r"after (?:all|both|these|this|the|tracking|considering|following|going|analyzing|evaluating)|at the end|based on|"
    r"considering|since neither|final|finally|answer)\b",
    re.I,
)
_PLAN = re.compile(r"\b(?:plan|outline|roadmap|strategy|approach)\b", re.I)
_REDO = re.compile(
    r"\b(?:wait|redo|again|over|retry|try|restart|mistake|error|wrong|correct(?:ed|ion|ing)?|revised?|fix(?:ed)?|instead|"
    r"(?:that|this)(?:['’]s| is| was) (?:incorrect|not (?:quite )?right)|actually|oops|hold on|scratch)\b",
    re.I,
)
_PART = re.compile(
    r"(?:part|case|scenario|section|sub-?problem|question) (?:\d\d?|[A-Z]|[IVX]+|one|two|three) *(?:[^\w ].*)?\Z", re.I
)
_HEADED = re.compile(r"\n[ ]*\n([^\n]{1,60}:)[ ]*\n+")
_CARRIES_OUT = re.compile(r"\b(?:now|carry|carrying|execut\w+|solution|solve|solving|step by step|calculations?|working)\b", re.I)
_LOOKS_BACK = re.compile(r"\b(?:summar\w+|sum up|conclu\w+|recap|check\w*(?! (?:each|every|all|if))|verif\w+|overall)\b", re.I)


@dataclass(frozen=True, slots=True)
class Mark:
    """An ordinal: its number, where the mark begins and where the step's own text does (character offsets)."""

    number: int
    start: int
    end: int


def ordinal_marks(text: str, words: bool = False) -> tuple[Mark, ...]:
    """The series of marks that numbers the steps, empty where there is none. ``words``: take ``First, ... Second, ...`` too.

    Of an announced plan and the steps that carry it out, the steps are taken, and of a first try and another the other:
    ``Step`` goes before ``k.``, and of two runs of the same length the later, or a later and shorter one after *Wait*, *Now solve
    it* or a plan's heading. A run within another's item is a part of that item.
    """
    steps = _series(_line_steps(text), text, gaps=True)
    numbered = [_found(pattern, text) for pattern in _LINE_STYLES]
    lines = _best([series for marks in numbered for series in (*_all_series(marks), _rising(marks)) if series], text)
    if len(steps) >= 2:
        return lines if len(lines) >= 2 and _supersedes(lines, steps, text) else steps
    if len(lines) >= 2:
        # "Step 1" alone over a list of numbered sub-steps, or the one "Step" in a numbered rationale: the longer series
        return lines
    inline = _series(_found(_INLINE_STEP, text), text, gaps=True)
    if len(inline) >= 2:
        return inline
    inner = max((_series(_found(pattern, text), text) for pattern in _INLINE_STYLES.values()), key=len)
    if len(inner) >= 2:
        return inner
    spelled = _order_words(text) if words else ()
    return spelled if len(spelled) >= 2 else steps or inline


def carrying_out(text: str) -> int:
    """Where the part begins that carries out the numbered plan of a text, under its own heading (``Solution:``); 0 without
    both."""
    marks = ordinal_marks(text)
    if len(marks) < 2 or not _PLAN.search(text[: marks[0].start].rstrip().rpartition("\n")[2]):
        return 0
    for match in _HEADED.finditer(text, marks[-1].end):
        carries_out = _CARRIES_OUT.search(match[1]) and not _LOOKS_BACK.search(match[1])
        if carries_out and len(sentences(text[match.end() :])) > 1:
            return match.end()
    return 0


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


def _line_steps(text: str) -> list[Mark]:
    marks = []
    for match in _LINE_STEP.finditer(text):
        bare = match[0].endswith(" ") and match[0][-2:-1].isalnum()
        following = text[match.end() : match.end() + 1]
        if bare and not (following.isupper() or following == "("):  # "Step 2 gives 5" speaks of a step, it does not open one
            continue
        marks.append(Mark(_value(match[1]), match.start(), match.end()))
    return marks


def _found(pattern: re.Pattern[str], text: str) -> list[Mark]:
    return [Mark(_value(match[1]), match.start(), match.end()) for match in pattern.finditer(text)]


def _value(number: str) -> int:
    if number.isdecimal():
        return int(number)
    return int(unicodedata.numeric(number)) if len(number) == 1 else _WORDS.index(number.casefold()) + 1


def _order_words(text: str) -> tuple[Mark, ...]:
    """``First, ... Second, ... Finally, ...``; the text must open with the first, so that nothing before it is lost."""
    marks: list[Mark] = []
    for match in _ORDER_WORD.finditer(text):
        number = _ORDER.index(match[1].casefold()) + 1 if match[1] else len(marks) + 1
        if number == len(marks) + 1:
            marks.append(Mark(number, match.start(), match.end()))
    return tuple(marks) if marks and marks[0].start == 0 else ()


def _series(marks: Sequence[Mark], text: str, gaps: bool = False) -> tuple[Mark, ...]:
    return _best(_all_series(marks, gaps), text)


def _all_series(marks: Sequence[Mark], gaps: bool = False) -> list[tuple[Mark, ...]]:
    """Every rising series among marks of one style. A 1, or a 0, opens one, within the one before it if that goes on later. With
    ``gaps`` a series may open with any number, skip numbers, and take one up again."""
    found: list[list[Mark]] = []
    opened: list[list[Mark]] = []
    last = {mark.number: mark.start for mark in marks}
    for mark in marks:
        depth = next((d for d in range(len(opened), 0, -1) if opened[d - 1][-1].number + 1 == mark.number), 0)
        if depth:
            del opened[depth:]
        elif mark.number < 2 or (gaps and not opened):
            opened = [*opened[-_DEEP:], []]
            found.append(opened[-1])
        elif not gaps or (mark.number > opened[-1][-1].number and last.get(opened[-1][-1].number + 1, -1) > mark.start):
            continue
        opened[-1].append(mark)
    return [tuple(series) for series in found]


def _best(found: Sequence[tuple[Mark, ...]], text: str) -> tuple[Mark, ...]:
    """The longest of several series that no other one encloses; of equally long ones that do not overlap, the last; but a later
    one of two marks or more that says that it replaces the former; none that checks or sums it up; of parts, all."""
    best: tuple[Mark, ...] = ()
    reach = -1  # the furthest last mark of the series that open earlier
    for series in sorted(found, key=lambda each: each[0].start):
        if series[-1].start < reach:
            continue
        reach = series[-1].start
        later = bool(best) and series[0].start > best[-1].start
        said = text[best[-1].end : series[0].start].partition("\n")[2].strip().rpartition("\n")[2] if later else ""
        if later and len(series) > 1 and _supersedes(series, best, text):
            best = series
        elif _LOOKS_BACK.search(said) and not _REDO.search(said):
            continue  # a check or a summary of the steps
        elif _PART.match(said) and len(best) > 1:
            best = (*best, *series)
        elif later and len(best) > 1 and _style(series, text) != _style(best, text):
            continue  # "2. Add them: (1) ... (2) ...": a list within the last item
        elif len(series) > len(best) or (later and len(series) == len(best)):
            best = series
    return best


def _style(series: Sequence[Mark], text: str) -> str:
    """The signs around a list's numbers; empty for words such as ``Step``."""
    signs = re.sub(r"[\d\s]", "", text[series[0].start : series[0].end])
    return "" if re.search(r"\w", signs) else signs


def _supersedes(later: Sequence[Mark], former: Sequence[Mark], text: str) -> bool:
    """Whether one series carries out the plan that another one is, or is another try at it, by the lines before each."""
    if later[0].start < former[-1].start:
        return False
    own, _, rest = text[former[-1].end : later[0].start].partition("\n")
    between = rest.strip().split("\n")
    said = between[-1]
    before = text[: former[0].start].rstrip().rpartition("\n")[2]
    if _LOOKS_BACK.search(said):
        return False
    apart = "\n\n" in f"\n{rest}"  # a separate paragraph, not a line of the last item
    redone = any(map(_REDO.search, between)) or any(map(_REDO.match, sentences(own)[1:]))
    return redone or (apart and bool(_PLAN.search(before) or _CARRIES_OUT.search(said)))


def _rising(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """All the marks, if they begin with 1 and every one is higher than that before it (a list with numbers left out)."""
    rises = all(one.number < other.number for one, other in pairwise(marks))
    return tuple(marks) if rises and marks and marks[0].number == 1 else ()
