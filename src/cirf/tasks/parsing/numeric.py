"""Numbers: an answer that is one number, by its value. A number in a notation that is not read (``12,5``) is no answer.

Plain powers in a text that names a number: ``2^3``, ``2**3``, ``2^{3}`` and ``2³`` are 8.
"""

import re
from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache

from cirf.tasks.parsing.anchors import SENTENCE_END, SeveralError, first_sentence, last_sentence, places, settled
from cirf.text.numerals import (
    UNREAD,
    Numeral,
    find_numbers,
    first_number,
    number_text,
    only_word_value,
    plain_numbers,
    word_value,
)

_TOLERANCE = Fraction(1, 10**6)
_ABOUT = re.compile(
    r"(?:[^\w$-]|\b(?:approximately|about|around|only|exactly|just|roughly|either|equal to|a total of|is|x|y|n)\b)*", re.I
)
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_MINUS = re.compile(r"^(\W*)minus\s+(?=[$€£]?[0-9])", re.I)
_NEXT = re.compile(
    r"(?P<unit>(?:\s*[A-Za-z]+)?)\s*(?:(?P<other>,?\s*\bor(?:\s+(?:maybe|perhaps|possibly|even))?\b)|"
    r"(?P<more>[,;&]|,?\s*\band(?:\s+then)?\b)|(?P<range>[-–]|\bto\b|:))\s*",
    re.I,
)
_COMPARES = re.compile(r"\s*(?:more|less|fewer|times|of)\b", re.I)
_DENIED = re.compile(r"\bnot\s{1,3}[$€£]?$")
_BETWEEN = re.compile(r"\W*between\s", re.I)
_NAMED_TWICE = re.compile(r"\b([A-Za-z])\s*=[^=\n]{1,40}?(?:\bor\b|\band\b|,)\s*\1\s*=")
_NUMBERS_ALONE = re.compile(r"(?:[0-9.,$€£%/\s-]|\b(?:or|and|then)\b)+")
_SHORT = re.compile(r"\s*(?P<sign>-?[$€£¥₹]?-?)(?P<number>[0-9][0-9,]*(?:\.[0-9]+)?)(?P<short>[kKM])\s*\.?\s*")
_SHORT_OF = {"k": 1_000, "K": 1_000, "M": 1_000_000}
_OPERATION = re.compile(r"\s*(?:[+×÷*^]|-(?=\s))\s*[$(]?\s*[0-9]")


@lru_cache(maxsize=1024)
def number_value(text: str) -> Fraction | None:
    """The value of a text that is one number and nothing else but a sign, currency, percent or full stop; else ``None``. ``12k``
    is 12,000, and ``1.5M`` 1,500,000."""
    text = in_full(plain_numbers(text)).strip().removesuffix(".")
    numbers = find_numbers(text)
    whole = len(numbers) == 1 and not text[: numbers[0].start].strip() and not text[numbers[0].end :].strip(" $€£¥₹")
    return numbers[0].value if whole else None


def in_full(text: str) -> str:
    """A text that is one number with k, K or M right behind it, written in full; another one as it is. ``5m`` is a length."""
    short = _SHORT.fullmatch(text)
    if short is None:
        return text
    return short["sign"] + number_text(Fraction(short["number"].replace(",", "")) * _SHORT_OF[short["short"]])


def same_number(parsed: str, gold: str) -> bool:
    """Whether two texts are numbers of the same value: whole ones exactly, others to 1e-6 (relative above 1)."""
    ours, theirs = number_value(parsed), number_value(gold)
    if ours is None or theirs is None:
        return False
    if ours.denominator == theirs.denominator == 1:
        return ours == theirs
    return abs(ours - theirs) <= _TOLERANCE * max(Fraction(1), abs(theirs))


def parse_number(text: str) -> str | None:
    """The canonical number of a text; ``None`` if it names none, or if the last anchor or all of the text names several."""
    text = in_full(worked_powers(_MINUS.sub(r"\1-", text)))
    anchored = places(text)
    value, last_word = settled([place[1:] for place in anchored], lambda anchor, said: _anchored_number(said, anchor == "hashes"))
    if value is not None or last_word:
        return None if value is None else number_text(value)
    openings = [(start, first_sentence(said)) for start, _, said in anchored]
    unworked = [start + len(sentence) for start, sentence in openings if _is_unworked(plain_numbers(sentence))]
    text = text[max(unworked, default=0) :]
    numbers = find_numbers(plain_numbers(text))
    if (
        len(numbers) > 1
        and _NUMBERS_ALONE.fullmatch(text.strip())
        and _names_several(plain_numbers(text), numbers[:2], ranges=False)
    ):
        return None
    parts = [part for line in text.splitlines() for part in SENTENCE_END.split(line)]
    for place, written in reversed(list(enumerate(parts))):
        sentence = plain_numbers(written)
        if UNREAD in sentence.rpartition("=")[2]:  # it, and not another number, may be the result
            return None
        numbers = [number for number in find_numbers(sentence) if not UNSETTLED.match(sentence, number.end)]
        numbers = [one for one in numbers if not _DENIED.search(sentence[max(0, one.start - 8) : one.start])] or numbers
        if numbers:
            right, bold = _right_side(sentence), _bold_numbers(written)
            if right is None and len(bold) == 1:
                right = bold[0].value
            if right is None and len(numbers) > 1:
                before = (_right_side(plain_numbers(part)) for part in reversed(parts[:place]))
                reached = next((value for value in before if value is not None), None)  # the last equation's result, said again
                right = reached if any(number.value == reached for number in numbers) else None
            return number_text(numbers[-1].value if right is None else right)
    word = word_value(text)
    if word is None:
        word = only_word_value(last_sentence(plain_numbers(text)))
    return None if word is None else str(word)


def _names_several(sentence: str, pair: list[Numeral], ranges: bool = True, lists: bool = True) -> bool:
    """Whether two neighbouring numbers are both offered: ``18 or 19``, ``$5 and then $6``, ``5, 6``, ``5-6``. A repetition of the
    same number does not count, nor the same value in another unit or as a share (``90 minutes or 1.5 hours``); things counted one
    after the other (``5 apples and 3 pears``) are read by the first."""
    one, two = pair
    between = _NEXT.fullmatch(sentence[one.end : two.start])
    if between is None or one.value == two.value:
        return False
    unit = between["unit"].strip().casefold().rstrip("s")
    if between["other"]:
        after = re.match(r"\s*([A-Za-z]*)", sentence[two.end :])
        theirs = after[1].casefold().rstrip("s") if after else ""
        return one.percent == two.percent and not (unit and theirs and unit != theirs)
    if unit:
        return False
    if between["more"]:
        return lists and not _COMPARES.match(sentence, two.end)
    if between[0].strip() == ":":  # 3:30, but not 5:00, nor a remark after a colon
        return ranges and two.start == one.end + 1 and sentence[two.start : two.end] != "00"
    return ranges


def _right_side(sentence: str) -> Fraction | None:
    """The result of a sentence's last equation: the first number after its sign, or the one before it if that is the only one and
    an operation follows (``22 = 43 - 21``). ``None`` without an equation."""
    left, sign, right = sentence.rpartition("=")
    numbers = find_numbers(right) if sign else []
    if not numbers:
        return None
    alone = re.search(r"(?:^|[:,=.]|\b(?:is|have|has|are))\s*([^:,=]*)$", left)
    before = number_value(alone[1]) if alone and _OPERATION.match(right, numbers[0].end) else None
    return numbers[0].value if before is None else before


def _anchored_number(said: str, strict: bool) -> Fraction | None:
    """The number an anchor names: an equation's right side, or the one at the front; unless ``strict``, also a total, one in
    bold, or the last of the sentence. ``None`` for an unevaluated expression; ``SeveralError`` for several."""
    sentence = in_full(_MINUS.sub(r"\1-", plain_numbers(first_sentence(said), answer=True)))
    if _NAMED_TWICE.search(sentence):
        raise SeveralError
    tail = sentence.rpartition("=")[2]
    place, readable = tail.find(UNREAD), first_number(tail)
    if place >= 0 and (readable is None or place < readable.start):
        raise SeveralError  # a part of it, or another number, is not what the text says
    right = _right_side(sentence)
    equation = right is not None
    if equation:
        sentence = tail
    numbers = find_numbers(sentence)
    if not numbers:
        word = word_value(sentence)
        return None if word is None else Fraction(word)
    first = numbers[0]
    if right is not None and right != first.value:
        return right
    if _is_unworked(sentence):
        return None
    lead = _ABOUT.match(sentence)
    if equation or (lead is not None and lead.end() >= first.start):
        if len(numbers) > 1 and _names_several(sentence, numbers[:2], ranges=not equation, lists=not equation):
            raise SeveralError
        return first.value
    if UNREAD in sentence:
        raise SeveralError
    if strict:  # a heading such as "#### Step 3"
        return None
    total = re.search(r"\b(?:total of|total is|in total)\s+(?=[$-]?[0-9])", sentence, re.I)
    if total is not None:
        return find_numbers(sentence[total.end() :])[0].value
    bold = _bold_numbers(said)
    if len(numbers) == 2 and not bold and (_BETWEEN.match(sentence) or _names_several(sentence, numbers, lists=False)):
        raise SeveralError
    return bold[-1].value if bold else numbers[-1].value


def _is_unworked(sentence: str) -> bool:
    """Whether a sentence without an equation begins with an unevaluated expression."""
    numbers = find_numbers(sentence)
    if not numbers or _right_side(sentence) is not None:
        return False
    return bool(_OPERATION.match(sentence, numbers[0].end) or UNSETTLED.match(sentence, numbers[0].end))


def _bold_numbers(text: str) -> list[Numeral]:
    return [number for piece in _BOLD.findall(text) for number in find_numbers(plain_numbers(piece))]


_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_SUPERSCRIPT = re.compile(r"(?<=[0-9)])[⁰¹²³⁴-⁹]+")
_STARS = re.compile(r"(?<=[0-9)])(?:[ ]\*\*[ ]|\*\*)(?=[0-9(])")
_OPENS = re.compile(r"(?<![\w)*])\*\*(?=[^\s*])")
_CLOSES = re.compile(r"(?<=[^\s*])\*\*(?![\w(*])")
_POWER = re.compile(
    r"(?<![\w.,^)}])(?<!\^[-{(])(?P<base>[0-9]{1,12}(?:\.[0-9]{1,6})?)\s?\^\s?"
    r"(?:\{\s?(?P<braced>[0-9]{1,2})\s?\}|(?P<bare>[0-9]{1,2}))(?![0-9]|\.[0-9]|/[0-9]|\s?\^)"
)
_SCIENTIFIC = re.compile(r"[0-9]\s?[×x*·]\s?$|\\(?:times|cdot)\s?$")
_LONGEST = 40  # characters of a power that is written out

UNSETTLED = re.compile(r"\s?\^\s?[({\[]*\s?[-+]?(?:[0-9]|[a-z](?![a-z]))")  # the text after an unevaluated power


def worked_powers(text: str) -> str:
    """The text with its powers evaluated if base and exponent are plain numbers and the value is not too long. ``3 × 10^4`` is
    unchanged."""
    text = written_powers(text)
    return _POWER.sub(_worked, text) if "^" in text else text


def without_superscripts(text: str) -> str:
    """The text with ``^`` for superscripts behind a digit or a bracket: ``2^3`` for ``2³``."""
    return _SUPERSCRIPT.sub(lambda match: "^" + match[0].translate(_RAISED), text)


def written_powers(text: str) -> str:
    """The text with ``^`` for superscripts and for two stars between digits, unless these close bold text."""
    text = without_superscripts(text)
    return "\n".join(map(_with_signs, text.split("\n"))) if "**" in text else text


def _with_signs(line: str) -> str:
    """A line with ``^`` for the stars of powers."""
    pieces, end = [], 0
    opened = [match.end() for match in _OPENS.finditer(line)]
    closed = [match.end() for match in _CLOSES.finditer(line)]
    last = closed[-1] - 2 if closed else -1
    for match in _STARS.finditer(line):
        bold = bisect_right(opened, match.start()) > bisect_right(closed, match.start())
        if match[0] == "**" and bold and last < match.end():
            continue
        pieces += [line[end : match.start()], "^"]
        end = match.end()
    return "".join([*pieces, line[end:]])


def _worked(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 8) : match.start()]
    if match["base"] == "10" and _SCIENTIFIC.search(before):
        return match[0]
    value = number_text(Fraction(match["base"]) ** int(match["braced"] or match["bare"]))
    return value if len(value) <= _LONGEST else match[0]
