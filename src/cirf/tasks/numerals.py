r"""Numbers as people and models write them.

``$1,234.50``, ``-3``, ``−3``, ``50%``, ``1/2``, ``1 1/2``, ``\frac{1}{2}``, ``**72**``, ``5 million`` and ``3 × 10^4``
are read into exact fractions, and every value has one canonical text: ``72`` (never ``72.0``), ``0.5`` (never ``1/2``),
``1/3`` where no finite decimal exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

_LONGEST = 200  # characters of a number; what is longer is noise, and Python refuses to convert it at some point
_DIGITS = r"(?>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![0-9A-Za-z])\.[0-9]+)"
_NUMERAL = re.compile(
    rf"(?<![A-Za-z_0-9^])(?<!\^[-{{])(?<![0-9]\.)(?P<sign>(?:(?<![0-9A-Za-z)%\]])-(?=\S)|(?<==\s)-\s|\bnegative\s+)?)\s?[$€£¥₹]?\s?(?P<inner>(?<=[$€£¥₹])-)?"
    rf"(?:(?P<whole>[0-9]++)(?:\s+|\s+and\s+)(?P<top>[0-9]++)/(?P<bottom>[0-9]++)(?![0-9/]|\.[0-9])"
    rf"|(?P<number>{_DIGITS})(?:\s?/\s?(?P<divisor>{_DIGITS})(?![0-9]|\s?/))?)"
    rf"(?:e(?P<exponent>[+-]?[0-9]{{1,2}})(?![0-9A-Za-z])|\s?[×x*]\s?10\s?\^\s?\{{?(?P<power>-?[0-9]{{1,2}})\}}?)?"
    rf"(?!(?:st|nd|rd|th)\b)(?:\s+(?P<scale>hundred|thousand|million|billion|trillion)\b)?(?P<percent>\s?%|\s+percent\b)?"
)
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
"""Words that multiply the number before them."""

_COUNTING = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen twenty"
)
_WORDS = _COUNTING.split()
_VULGAR = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8"}
_REPLACEMENTS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"(?<=[0-9])[\u00a0\u2009\u202f](?=[0-9]{3}(?![0-9]))", ""),
        (r"[−–﹣－‑]", "-"),
        (r"(?<![\w)])-\u00a0(?=[0-9])", "-"),
        (r"[\u00a0\u2009\u202f]", " "),
        (r"\{,\}|(?<=[0-9])\\[,!](?=[0-9]{3})", ","),
        (r"(?<=[0-9])\s*\\[dt]?frac\s*\{\s*([0-9]+)\s*\}\s*\{\s*([0-9]+)\s*\}", r" \1/\2"),
        (r"\\[dt]?frac\s*\{\s*(-?[$]?[0-9.,]+)\s*\}\s*\{\s*([0-9.,]+)\s*\}", r"\1/\2"),
        (r"\\[dt]?frac\s*([0-9])\s*([0-9])", r"\1/\2"),
        (r"\\(?:text|textbf|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}", r"\1"),
        (r"\\[()\[\]]", " "),
        (r"\\(?:times|cdot)(?![A-Za-z])", "×"),
        (r"\\div(?![A-Za-z])", "÷"),
        (r"\\(?:approx|simeq)(?![A-Za-z])", "≈"),
        (r"\\(?:left|right|quad|qquad|displaystyle)(?![A-Za-z])", " "),
        (r"\\[,;:! ]", " "),
        (r"\\([$%&#_{}])", r"\1"),
        (r"\*\*|__|`", ""),
    )
)


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number found in a text: its value, where it stands (``text[start:end]``), and whether a percent sign follows."""

    value: Fraction
    start: int
    end: int
    percent: bool


def plain(text: str) -> str:
    """The text without markdown emphasis and LaTeX wrapping; simple LaTeX fractions become ``a/b``. Lines stay lines."""
    for sign, fraction in _VULGAR.items():
        if sign in text:
            text = re.sub(rf"(?<=[0-9])\s?{sign}", f" {fraction}", text).replace(sign, fraction)
    for pattern, by in _REPLACEMENTS:
        text = pattern.sub(by, text)
    return text


def find_numbers(text: str) -> list[Numeral]:
    """The numbers of a text that went through ``plain``, in order. Ordinals (``5th``) and digits inside words are no numbers."""
    return list(_each_number(text))


def first_number(text: str) -> Numeral | None:
    """The first of `find_numbers`, without a look at the others; ``None`` if there is none."""
    return next(_each_number(text), None)


def _each_number(text: str) -> Iterator[Numeral]:
    for match in _NUMERAL.finditer(text):
        value = _value(match)
        if value is not None:
            lead = len(match[0]) - len(match[0].lstrip())
            yield Numeral(value, match.start() + lead, match.end(), match["percent"] is not None)


def _value(match: re.Match[str]) -> Fraction | None:
    if len(match[0]) > 2 * _LONGEST:
        return None
    if match["whole"] is not None:
        bottom = int(match["bottom"])
        if bottom == 0:
            return None
        value = int(match["whole"]) + Fraction(int(match["top"]), bottom)
    else:
        value = Fraction(match["number"].replace(",", ""))
        divisor = Fraction((match["divisor"] or "1").replace(",", ""))
        if divisor == 0:
            return None
        value /= divisor
    value *= Fraction(10) ** (int(match["exponent"] or 0) + int(match["power"] or 0)) * SCALES.get(match["scale"] or "", 1)
    if match["sign"].strip() or match["inner"]:
        value = -value
    return value if len(number_text(value)) <= _LONGEST else None


def number_text(value: Fraction) -> str:
    """The canonical text of a value: an integer, else a finite decimal, else ``a/b`` in lowest terms."""
    top, bottom = value.numerator, value.denominator
    if bottom == 1:
        return str(top)
    twos = fives = 0
    while bottom % 2 == 0:
        bottom, twos = bottom // 2, twos + 1
    while bottom % 5 == 0:
        bottom, fives = bottom // 5, fives + 1
    places = max(twos, fives)
    if bottom != 1 or places > 30:
        return f"{top}/{value.denominator}"
    digits = str(abs(top) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if top < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def word_value(text: str) -> int | None:
    """The value of a text that is one number word, ``zero`` to ``twenty``; else ``None``."""
    word = text.strip(" .!*\n").casefold()
    return _WORDS.index(word) if word in _WORDS else None


_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SPOKEN = re.compile(
    rf"\b(?:(?P<tens>{'|'.join(_TENS)})(?:[ -](?P<units>{'|'.join(_WORDS[1:10])}))?|(?P<small>{'|'.join(reversed(_WORDS))}))\b",
    re.IGNORECASE,
)
_GOES_ON = re.compile(r"[ -](?:hundred|thousand|million)")


def only_word_value(text: str) -> int | None:
    """The value of the only number that a text names in words, up to ninety-nine; ``None`` if it names none or several, or
    nothing but *one*, which is seldom a number."""
    found = list(_SPOKEN.finditer(text))
    if (
        len(found) != 1
        or found[0][0].casefold() == "one"
        or re.match(r"[ -](?:hundred|thousand|million)", text[found[0].end() :])
    ):
        return None
    match = found[0]
    if match["small"]:
        return _WORDS.index(match["small"].casefold())
    return 10 * (_TENS.index(match["tens"].casefold()) + 2) + (_WORDS.index(match["units"].casefold()) if match["units"] else 0)
