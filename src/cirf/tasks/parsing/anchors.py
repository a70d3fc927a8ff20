r"""Explicit statements of the answer in a text: ``#### x``, ``\boxed{x}``, ``<answer>x</answer>``, ``The answer is x``."""

import re
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from cirf.text.numerals import word_value

_Answer = TypeVar("_Answer", bound=Hashable)

SAID = r"(?=([^\n]{0,2000}))"  # in a pattern: the text after it on the line, as one group, up to 2,000 characters
_MOST = 200  # anchors that are read, the last ones: a model in a loop only repeats itself
_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_BOXED = re.compile(r"\\boxed\s*\{")
BOX = re.compile(r"\\boxed\s*\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}")  # with its content
_BRACE = re.compile(r"[{}]")
_ANSWER_IS = re.compile(
    r"(?<!each )(?<!every )\banswer\b(?:\s+(?:choice|option))?\s*(?:\*\*\s*)?"
    r"(?:\bis\b|\b(?:must|should|would|will|has to|can only) be\b|:|=(?!=))\s*:?\s*" + SAID,
    re.I,
)
_ANSWER_ELSEWHERE = re.compile(  # in other languages
    r"(?:\b(?:opción|opção|opzione|antwort|antwoord|réponse|respuesta|resposta|risposta|ответ|odpowiedź|cevap|svar(?:et)?)\b(?:\s+(?:\w+\s+)?(?:ist|lautet|is|est|es|é|è|to|är|er)\b|\s?[:=]|\s[-–—]|\s(?=\(?[A-Z]\)?[.!]?\s*(?:\n|$)))"
    r"|(?:因此|所以|故|应|應)\s?[选選]择?\s?[:：]?(?=\s?[A-J](?![A-Za-z]))"
    r"|(?:答案|答え|正解|정답|답|الجواب|الإجابة|đáp án)\s?(?:是|为|為|选|は|은|는|là|هو|هي|[:：=])|उत्तर\s?[:=])\s*:?\s*"
    r"(?:(?:la|el|le|die|a|o|il)\s+(?:\w+\s+)?(?=\(?(?-i:[A-Z])\b))?" + SAID,
    re.I,
)
_ANSWER_IS_NOT = re.compile(
    r"\banswer\s+(?:isn[’']t|wasn[’']t|was\s+not|(?:(?:must|should|would|will|could|can|may)\s*(?:not|n[’']t)|can[’']t)\s+be)\s+"
    + SAID,
    re.I,
)
_TAG = r"(?:final[_ ]?)?answer"
_TAGGED = re.compile(rf"<({_TAG})>(?:((?:(?!</?{_TAG}>).)*)</\1>|((?:(?!<{_TAG}>)[^\n])*))", re.I | re.S)
_NAME = rf"(?P<name>{_TAG}|final)"
_MARKED = tuple(  # of marks that prose has too ("quarter, semi, <final>") pairs that begin a line or follow closed thoughts
    re.compile(pattern, re.I | re.M)
    for pattern in (
        rf"<\|{_NAME}\|>[\s:]*(?P<said>(?:(?!<\|)[\s\S])*?)\s*<\|/(?P=name)\|>",
        rf"(?:^|</\w+>|\[/\w+\])[ \t]*\[{_NAME}\][\s:]*(?P<said>(?:(?!\[/?(?P=name)\])[\s\S])*?)\s*\[/(?P=name)\]",
        r"(?:^|</\w+>|\[/\w+\])[ \t]*<final>[\s:]*(?P<said>(?:(?!</?final>)[\s\S])*?)\s*</final>",
    )
)
_BETWEEN_BOXES = re.compile(r"[\s$()\\]*(?:,|\bor\b|\band\b|\\text\s*\{\s*(?:or|and)\s*\})[\s$()\\]*\\boxed\s*\{")
_ANSWER_TO_IS = re.compile(r"\banswer\s+(?:to|for|of|that|which)\s[^.:\n=]{0,160}?\bis\b\s*:?\s*" + SAID, re.I)
ENCLOSED = frozenset({"boxed", "tagged"})  # anchors that mark the end of their content
SENTENCE_END = re.compile(r"(?<=[.!?])(?<![\s(*][A-Z]\.)(?<!\bRs\.)[\"'”’)*]*\s+(?=[^\s])")


def anchors(text: str, *extra: re.Pattern[str]) -> list[tuple[str, str]]:
    """The anchored answers of a text, in order: ``(anchor, what it says)``; the anchor is ``hashes``, ``boxed``, ``tagged`` or
    ``phrase``."""
    return [(kind, said) for _, kind, said in places(text, *extra)]


def places(text: str, *extra: re.Pattern[str]) -> list[tuple[int, str, str]]:
    """As ``anchors``, each with the place in ``text`` where its content begins. Braces inside a box must balance; boxes separated
    only by a comma, *and* or *or* are one. "The answer isn't x" says ``not x``. Of more than 200 the last ones, and of a line
    after a phrase the first 2,000 characters."""
    found = [(match.start(1), "hashes", match[1]) for match in _HASHES.finditer(text)]
    found += _boxes(text)
    for match in _TAGGED.finditer(text):
        group = 2 if match[2] is not None else 3
        found.append((match.start(group), "tagged", match[group]))
    for pattern in _MARKED:
        found += [(match.start("said"), "tagged", match["said"]) for match in pattern.finditer(text)]
    for pattern in (_ANSWER_IS, _ANSWER_TO_IS, _ANSWER_ELSEWHERE, *extra):
        found.extend((match.start(1), "phrase", match[1]) for match in pattern.finditer(text))
    found.extend((match.start(1), "phrase", f"not {match[1]}") for match in _ANSWER_IS_NOT.finditer(text))
    return sorted(found)[-_MOST:]


def _boxes(text: str) -> list[tuple[int, str, str]]:
    opened = list(_BOXED.finditer(text))
    closed = _closed_braces(text) if opened else {}
    found: list[tuple[int, str, str]] = []
    joined = -1  # where a box begins that goes on with the one before it
    for match in opened:
        end = closed.get(match.end() - 1)
        if end is None:
            continue
        said = text[match.end() : end]
        if match.end() == joined:
            start, _, before = found.pop()
            said = before if said.strip() == before.strip() else f"{before}, {said}"
            found.append((start, "boxed", said))
        else:
            found.append((match.end(), "boxed", said))
        goes_on = _BETWEEN_BOXES.match(text, end + 1)
        joined = goes_on.end() if goes_on else -1
    return found


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


class SeveralError(Exception):
    """Raised by a reader of an anchor's content that names more than one answer."""


_DENIAL = re.compile(r"[\s\"'“‘$*(]*(?:not|never)\b(?!\s*only\b)\s*", re.I)
_INSTEAD = re.compile(r"(?<![\s,;–—-])[\s,;–—-]+(?:but(?:\s+rather)?|rather|instead|it(?:\s+is|[’']s))\b[\s,:]*", re.I)


def denial(said: str) -> tuple[str, str]:
    """The denied and the stated part of an anchor: ``18`` and ``20`` of *not 18 but 20*; nothing and all of it without a
    denial."""
    opens = _DENIAL.match(said)
    if not opens:
        return "", said
    denied, *instead = _INSTEAD.split(first_sentence(said[opens.end() :]), maxsplit=1)
    return denied, instead[0] if instead else ""


def settled(anchored: Sequence[tuple[str, str]], read: Callable[[str, str], _Answer | None]) -> tuple[_Answer | None, bool]:
    """The answer of the last anchor that ``read(anchor, said)`` can read, and whether that is final. An anchor that names several
    answers, or is denied by a later one, is final and no answer; so is a denial without an earlier anchor."""
    denied: set[_Answer] = set()
    last_word = False
    for anchor, said in reversed(anchored):
        wrong, said = ("", said) if anchor in ENCLOSED else denial(said)
        try:
            if wrong and (answer := read(anchor, wrong)) is not None:
                denied.add(answer)
        except SeveralError:
            last_word = True
        try:
            answer = read(anchor, said) if said else None
        except SeveralError:
            return None, True
        if answer is not None:
            return (None if answer in denied else answer), True
    return None, last_word or bool(denied)


_ANSWERS = re.compile(
    r"^\W*(?:(?:so|thus|therefore|hence|and|in conclusion|conclusion)\b\W*)?(?:(?:the|my|our)\s+)?"
    r"(?:(?:final|correct|right|best)\s+)?answer\b|^\W*(?:####|<final>)",
    re.I,
)
_WORD = re.compile(r"[^\W\d_]{2,}")


def states_answer_only(sentence: str) -> bool:
    """Whether a sentence only states the answer: it opens with *the answer*, or holds no word and no equation."""
    return _ANSWERS.match(sentence) is not None or (not _WORD.search(BOX.sub("", sentence)) and "=" not in sentence)


_LEAD = re.compile(  # of an answer, in small letters: "therefore Paris", "simply 100"; not "Simply Red", nor "just war"
    r"(?:(?:therefore|thus|hence)[\s,]+(?:(?:clearly|obviously|indeed)[\s,]+)?)+(?=[^\s,.])"
)
_ADVERBS = re.compile(
    r"(?:(?:then|simply|clearly|obviously|indeed|exactly|precisely|approximately|roughly|just)[\s,]+)*(?P<equal>equal to\s+)?"
)
_LETTER = re.compile(r"\W{0,3}[A-HJ]\W*(?:\Z|(?:because|since)\b)")  # of an option
_FORMULA = re.compile(r"[\"*(]{0,3}(?:[-+−]?\s?[$€£¥]?\s?\.?\d|\$|[-+−]?\\|[-+−]?\(?[A-Za-z]\d?(?:\s[-−]\s|\s?[=+*/^<>≤≥]))")


def outright(anchor: str, said: str) -> str:
    """What an anchor says without the words that lead to it (``therefore 100``); after a phrase up to the end of its sentence."""
    if anchor in ENCLOSED:
        return said
    sentence = first_sentence(said).lstrip(", ")
    sentence = sentence[lead.end() :] if (lead := _LEAD.match(sentence)) else sentence
    adverbs = _ADVERBS.match(sentence)
    rest = sentence[adverbs.end() :] if adverbs else sentence
    lettered = adverbs is not None and not adverbs["equal"] and _LETTER.match(rest)
    counts = _FORMULA.match(rest) or word_value(rest.rstrip(".! ")) is not None
    return rest if lettered or counts else sentence


def first_sentence(text: str) -> str:
    return SENTENCE_END.split(text.strip(), 1)[0]


def last_sentence(text: str) -> str:
    """The last sentence of the last line that is not blank."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return SENTENCE_END.split(lines[-1].strip())[-1] if lines else ""
