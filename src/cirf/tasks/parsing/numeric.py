"""Numbers: an answer that is one number, by its value."""

from __future__ import annotations

import re
from fractions import Fraction

from cirf.tasks.numerals import Numeral, find_numbers, number_text, only_word_value, plain, word_value
from cirf.tasks.parsing.anchors import SENTENCE_END, anchors, first_sentence, last_sentence

_TOLERANCE = Fraction(1, 10**6)
_ABOUT = re.compile(
    r"(?:[^\w$-]|\b(?:approximately|about|around|only|exactly|just|roughly|equal to|a total of|is|x|y|n)\b)*", re.IGNORECASE
)
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_OPERATION = re.compile(r"\s*(?:[+×÷*^]|-(?=\s))\s*[$(]?\s*[0-9]")


def number_value(text: str) -> Fraction | None:
    """The value of a text that is one number and nothing else but a sign, currency, percent or full stop; else ``None``."""
    text = plain(text).strip().removesuffix(".")
    numbers = find_numbers(text)
    whole = len(numbers) == 1 and not text[: numbers[0].start].strip() and not text[numbers[0].end :].strip(" $€£¥₹")
    return numbers[0].value if whole else None


def same_number(parsed: str, gold: str) -> bool:
    """Whether two texts are numbers of the same value: whole ones exactly, others to 1e-6 (relative above 1)."""
    ours, theirs = number_value(parsed), number_value(gold)
    if ours is None or theirs is None:
        return False
    if ours.denominator == theirs.denominator == 1:
        return ours == theirs
    return abs(ours - theirs) <= _TOLERANCE * max(Fraction(1), abs(theirs))


def parse_number(text: str) -> str | None:
    """The canonical number of a text; ``None`` if it names none."""
    for anchor, said in reversed(anchors(text)):
        value = _anchored_number(said, strict=anchor == "hashes")
        if value is not None:
            return number_text(value)
    parts = [part for line in text.splitlines() for part in SENTENCE_END.split(line)]
    for place, written in reversed(list(enumerate(parts))):
        sentence = plain(written)
        numbers = find_numbers(sentence)
        if numbers:
            right, bold = _right_side(sentence), _bold_numbers(written)
            if right is None and len(bold) == 1:
                right = bold[0].value
            if right is None and len(numbers) > 1:
                right = _said_again(numbers, parts[:place])
            return number_text(numbers[-1].value if right is None else right)
    word = word_value(text)
    if word is None:
        word = only_word_value(last_sentence(plain(text)))
    return None if word is None else str(word)


def _right_side(sentence: str) -> Fraction | None:
    """What the last equation of a sentence comes to: the first number behind its sign, or the one before it where that is all
    there is and an operation follows (``22 = 43 - 21``). ``None`` without an equation."""
    left, sign, right = sentence.rpartition("=")
    numbers = find_numbers(right) if sign else []
    if not numbers:
        return None
    alone = re.search(r"(?:^|[:,=.]|\b(?:is|have|has|are))\s*([^:,=]*)$", left)
    before = number_value(alone[1]) if alone and _OPERATION.match(right, numbers[0].end) else None
    return numbers[0].value if before is None else before


def _said_again(numbers: list[Numeral], before: list[str]) -> Fraction | None:
    """Of the numbers of a conclusion the one that the last equation before it came to."""
    reached = next((value for part in reversed(before) if (value := _right_side(plain(part))) is not None), None)
    return reached if any(number.value == reached for number in numbers) else None


def _anchored_number(said: str, strict: bool) -> Fraction | None:
    """The number an anchor names: an equation's right side, or the one at the front; unless ``strict``, also a total, one in
    bold, or the last of the sentence. ``None`` for an expression that was never worked out."""
    sentence = plain(first_sentence(said))
    right = _right_side(sentence)
    equation = right is not None
    if equation:
        sentence = sentence.rpartition("=")[2]
    numbers = find_numbers(sentence)
    if not numbers:
        word = word_value(sentence)
        return None if word is None else Fraction(word)
    first = numbers[0]
    if right is not None and right != first.value:
        return right
    if _OPERATION.match(sentence, first.end):
        return None
    lead = _ABOUT.match(sentence)
    if equation or (lead is not None and lead.end() >= first.start):
        return first.value
    if strict:  # a heading such as "#### Step 3"
        return None
    total = re.search(r"\b(?:total of|total is|in total)\s+(?=[$-]?[0-9])", sentence, re.IGNORECASE)
    if total is not None:
        return find_numbers(sentence[total.end() :])[0].value
    bold = _bold_numbers(said)
    return bold[-1].value if bold else numbers[-1].value


def _bold_numbers(text: str) -> list[Numeral]:
    return [number for piece in _BOLD.findall(text) for number in find_numbers(plain(piece))]
