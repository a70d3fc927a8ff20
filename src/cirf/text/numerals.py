r"""Numbers as people and models write them.

``$1,234.50``, ``-3``, ``−3``, ``50%``, ``1/2``, ``1 1/2``, ``\frac{1}{2}``, ``**72**``, ``5 million`` and ``3 × 10^4``
are read into exact fractions, and every value has one canonical text: ``72`` (never ``72.0``), ``0.5`` (never ``1/2``),
``1/3`` where no finite decimal exists.

`plain_numbers` brings other groupings into this notation: ``12'000``, ``12 000``, ``1,25,000``, ``1.250.000``. A number with a
decimal comma (``12,5``, ``0,333``, ``1.996,25``) is not read, and neither is a part of it; `with_points` rewrites such numbers
where a set of texts is written so (`has_decimal_commas`).
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

_LONGEST = 200  # characters of a number; longer ones are noise, and Python refuses to convert very long ones
_DIGITS = r"(?>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![0-9A-Za-z])\.[0-9]+)"
_NUMERAL = re.compile(
    rf"(?<![A-Za-z_0-9^√])(?<!\^[-{{])(?<![0-9][.,])(?P<sign>(?:(?<![0-9A-Za-z)%\]])-(?=\S)|(?<==\s)-\s|\bnegative\s+)?)\s?[$€£¥₹]?\s?(?P<inner>(?<=[$€£¥₹])-)?"
    rf"(?:(?P<whole>[0-9]++)(?:\s+|\s+and\s+)(?P<top>[0-9]++)/(?P<bottom>[0-9]++)(?![0-9/]|\.[0-9])"
    rf"|(?P<number>{_DIGITS})(?:\s?/\s?(?P<divisor>{_DIGITS})(?![0-9]|\s?/))?)"
    rf"(?:[eE](?P<exponent>[+-]?[0-9]{{1,2}})(?![0-9A-Za-z])|\s?[×x*·]\s?10\s?\^\s?\{{?(?P<power>-?[0-9]{{1,2}})\}}?)?"
    rf"(?!(?:st|nd|rd|th)\b|\s?(?:/[0-9]+)?[π√])(?:\s+(?P<scale>hundred|thousand|million|billion|trillion)\b)?(?P<percent>\s?%|\s+percent\b)?"
)
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
"""Words that multiply the number before them."""

_COUNTING = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen twenty"
)
_WORDS = _COUNTING.split()
_VULGAR = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8"}
_SIGNS = dict(zip("＝＋－／％＊（）．٫٬", "=+-/%*()..,", strict=True))
_POWER_OF_TEN = re.compile(r"([×x*·]\s?10)(⁻?[⁰¹²³⁴-⁹]+)")
_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_SCRIPT = re.compile(rf"[{''.join(_SIGNS)}]|(?![0-9])\d")
_SPACES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<=[0-9])[\u00a0\u2009\u202f](?=[0-9]{3}(?![0-9]))"), ""),
    (re.compile(r"[−–﹣－‑]"), "-"),
    (re.compile(r"(?<![\w)])-\u00a0(?=[0-9])"), "-"),
    (re.compile(r"[\u00a0\u2009\u202f]"), " "),
    (re.compile(r"(?<=[0-9)%])(\s?)[·⋅∙•](?=\s?[$€£]?[0-9(])"), r"\1×"),
)
_LATEX: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\{,\}|(?<=[0-9])\\[,!](?=[0-9]{3})", ","),
        (r"(?<=[0-9])\s*\\[dt]?frac\s*\{\s*([0-9]+)\s*\}\s*\{\s*([0-9]+)\s*\}", r" \1/\2"),
        (r"\\[dt]?frac\s*\{\s*(-?[$]?[0-9.,]+)\s*\}\s*\{\s*([0-9.,]+)\s*\}", r"\1/\2"),
        (r"(?<=[0-9])\s*\\[dt]?frac\s*([0-9])\s*([0-9])", r" \1/\2"),
        (r"\\[dt]?frac\s*([0-9])\s*([0-9])", r"\1/\2"),
        (r"\\(?:text|textbf|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}", r"\1"),
        (r"\\[()\[\]]", " "),
        (r"\\(?:times|cdot)(?![A-Za-z])", "×"),
        (r"\\div(?![A-Za-z])", "÷"),
        (r"\\(?:approx|simeq)(?![A-Za-z])", "≈"),
        (r"\\equiv(?![A-Za-z])", "≡"),
        (r"\\(?:left|right|quad|qquad|displaystyle)(?![A-Za-z])", " "),
        (r"\\[,;:! ]", " "),
        (r"\\([$%&#_{}])", r"\1"),
    )
)
_EMPHASIS = re.compile(r"\*\*|__|`")
_RUPEES = re.compile(r"\b[Rr]s\s?\.?\s?(?=\d)")

UNREAD = "\ufffd"  # the replacement by `plain_numbers` of a number that is not read
_ENCLOSED = re.compile(  # a point, set or list without blanks: "(2,4)", but not "(1,200)" or "\\frac{2,5}{3}"
    r"(?<=[(\[{])(?<![A-Za-z]\{)(?!(?:[1-9][0-9]{0,2})(?:,[0-9]{3})+\\?[)\]}])-?[0-9]+(?:\.[0-9]+)?(?:,-?[0-9]+(?:\.[0-9]+)?)+(?=\\?[)\]}])"
)
_RUN = re.compile(r"(?<![0-9])[0-9]++(?:[.,'’_٬٫，][0-9]++)+")
_READ = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+\.[0-9]+")
_GROUPED = re.compile(
    r"([1-9][0-9]{0,2}(?:(['’_٬])[0-9]{3}(?:\2[0-9]{3})*|(?:\.[0-9]{3}){2,})|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3})(\.[0-9]+)?"
)
_SPACED = re.compile(
    r"(?<![\w.,/^])(?<![0-9] )[0-9]{1,3}(?: [0-9]{3}(?![0-9]))++(?![/:])(?P<decimals>(?:[.,][0-9]+)*)"
    r"(?![\s-](?:[a-z]{1,2}|[a-z]*[^s\W])\s+[a-z]+s\b)"  # "3 400 g boxes" are two numbers
    r"(?=(?P<ends>\s?[$€£¥%]?(?:\s?[A-Za-z]+)?(?:[.,;!?)*$}]*\s*$|[.,;!?)]+\s|\s*\n))?)"
)


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number found in a text: its value, its place (``text[start:end]``), and whether a percent sign follows."""

    value: Fraction
    start: int
    end: int
    percent: bool


def plain(text: str) -> str:
    """The text without markdown emphasis and LaTeX wrapping, with digits in ASCII; simple LaTeX fractions become ``a/b``. Lines
    stay lines."""
    if not text.isascii():
        text = _SCRIPT.sub(lambda sign: _SIGNS.get(sign[0]) or str(unicodedata.decimal(sign[0])), text)
        text = _POWER_OF_TEN.sub(lambda power: f"{power[1]}^{power[2].translate(_RAISED)}", text)
        for sign, fraction in _VULGAR.items():
            if sign in text:
                text = re.sub(rf"(?<=[0-9])\s?{sign}", f" {fraction}", text).replace(sign, fraction)
        for pattern, by in _SPACES:
            text = pattern.sub(by, text)
    if "\\" in text or "{,}" in text:
        for pattern, by in _LATEX:
            text = pattern.sub(by, text)
    return _RUPEES.sub("₹", _EMPHASIS.sub("", text))


def plain_numbers(text: str, answer: bool = False) -> str:
    """As ``plain``, with numbers in one notation: ``12'000`` and ``1,25,000`` become ``12000`` and ``125000``, and `UNREAD`
    replaces a number with another separator, such as ``12,5``.

    Groups with a space between them are one number where one begins with a zero, or where they open a text, follow an equals sign
    or are part of an ``answer``, and nothing but a unit follows (``= 1 350 EUR.``); else they are not read. The power of a unit
    (``9.81 m/s^2``) is not that of an unknown, and becomes ``m/s²``.
    """

    def spaced(match: re.Match[str]) -> str:
        before = match.string[max(0, match.start() - _LONGEST) : match.start()]
        placed = answer or re.search(r"[=≈]\s?[$€£¥₹]?\s?$", before) or not re.search(r"\w", before)
        one = " 0" in match[0] or (placed and match["ends"] is not None) or _in_a_sum(match, before)
        return match[0].replace(" ", "") if one and "," not in match["decimals"] and match["decimals"].count(".") < 2 else UNREAD

    found = _SHORT.sub(_in_full, _RUN.sub(_in_one_notation, _SPACED.sub(spaced, plain(text))))
    return _UNIT_POWER.sub(lambda unit: unit[1] + "²³"[int(unit[2]) - 2], found)


def spread(text: str) -> str:
    """A text with a blank behind the commas of points and sets: ``(2, 4)`` for ``(2,4)``."""
    return _ENCLOSED.sub(lambda match: match[0].replace(",", ", "), text)


_UNIT_POWER = re.compile(
    r"(?<=\d)((?:\s?[A-Za-zµ]{1,9}){1,2}\s?/\s?(?:[kcdm]?m|ft|in|s|sec|h)|\s?(?:[kcdm]m|ft|feet|yd|miles?|inches|units?)|\s(?:m|s|in))"
    r"\^([23])(?![\w^])"
)
_SIGN_BEFORE = re.compile(r"[0-9a-z)%]\s?[+×*÷/=≈]\s?[$€£¥₹(]?\s?$|[0-9a-z)%]\s-\s[$€£¥₹(]?\s?$")
_SIGN_AFTER = re.compile(r"\s?[€£¥%]?(?:\s[a-z]{1,12})?\s?(?:[+×*÷/=≈]|-(?=\s))\s?[$€£¥₹(]?\s?[0-9]")
_LABEL = re.compile(
    r"(?:^|\W)(?:step|day|week|month|year|no|round|case|part|row|line|item|figure|chapter|in|on|at|of|by)\.?\s?$", re.I
)


def _in_a_sum(match: re.Match[str], before: str) -> bool:
    """Whether groups with a space between them are a term of a calculation, where no sign parts them: ``11 500 + 4 500 =``."""
    if _SIGN_BEFORE.search(before):
        return True
    return _SIGN_AFTER.match(match.string, match.end()) is not None and _LABEL.search(before) is None


_SHORT = re.compile(  # 12k, 3bn, but not "5k = 45"; m, b and t only behind money, as 12m may be a length
    r"(?<![\w.,/])(?:(?P<money>[$€£¥₹]\s?)(?=[0-9.,]+[kKmMbBtT]))?(?P<number>[0-9][0-9,]{0,15}(?:\.[0-9]{1,9})?)"
    r"(?P<short>k(?!\s?=\s?[0-9]{1,3}(?![0-9k]|[.,][0-9])|\s?[+-]\s?[0-9]{1,2}(?![0-9k]|[.,][0-9]))|mn|mln|mio|bn|bln|tn|trn|(?(money)[KmMbBtT]|(?!)))(?![\w'’²³/-])"
)
_SHORT_OF = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


def _in_full(match: re.Match[str]) -> str:
    """``12000`` for ``12k``."""
    value = Fraction(match["number"].replace(",", "")) * _SHORT_OF[match["short"][0].casefold()]
    return (match["money"] or "") + number_text(value)


def unread_numbers(text: str) -> list[str]:
    """The numbers of a text that `plain_numbers` does not read because of their points and commas, unchanged: ``12,5``; not the
    members of a point, a set or a list, such as ``(1,2)`` and ``1,2,3``."""
    runs = (match for match in _RUN.finditer(plain(spread(text))) if _in_one_notation(match) == UNREAD)
    return [run[0] for run in runs if not _SEVERAL.fullmatch(run[0])]


_SEVERAL = re.compile(r"\d{1,2}(?:,\d{1,2}){2,}|\d+_\d{1,2}")  # also a number with its base


_DECIMAL_COMMA = re.compile(r"(?<![\d.,(\[{])\d+(?:\.\d{3})*,\d{1,2}(?![\d,)\]}]|\.\d)")
_DECIMAL_POINT = re.compile(r"(?<![\d.,])\d+(?:,\d{3})*\.\d{1,2}(?![\d,.])")

_LOCAL = re.compile(r"(?<![\w.,'’])(?:[1-9][0-9]{0,2}(?:\.[0-9]{3})+(?:,[0-9]+)?|[0-9]+,[0-9]+)(?![0-9]|[.,][0-9])")
_EQUATION = re.compile(
    r"(?<![0-9.,])([0-9][0-9.,]*+)\s?([-+×x*])\s?([0-9][0-9.,]*+)\s?=\s?[$€£]?([0-9][0-9.,]*[0-9]|[0-9])(?![0-9]|[.,][0-9])"
)


def with_points(text: str) -> str:
    """A text written with decimal commas in our notation: ``1.234,5`` becomes ``1234.5``, and ``1.350`` becomes ``1350``. A
    number in neither notation stays."""
    return _LOCAL.sub(lambda match: match[0].replace(".", "").replace(",", "."), text.replace("{,}", ","))


_LOOKED_AT = 8_000_000  # characters of a set of texts that are looked at; of more, evenly spread texts


def has_decimal_commas(texts: Sequence[str]) -> bool:
    """Whether a set of texts is written with decimal commas: at least 5 % of the texts have one, more than have a decimal point,
    and equations do not speak against it; or none has a decimal comma or point, and equations are right only by points between
    thousands (``980 + 147 = 1.127``). Then ``1.350`` is 1350."""
    texts = texts[:: 1 + sum(map(len, texts)) // _LOOKED_AT]
    commas = sum(_DECIMAL_COMMA.search(text) is not None for text in texts)
    points = sum(_DECIMAL_POINT.search(text) is not None for text in texts)
    if (commas or points) and not (commas >= max(1, 0.05 * len(texts)) and commas > points):
        return False
    local = [verdict for text in texts for equation in _EQUATION.finditer(text) if (verdict := _by_commas(equation)) is not None]
    return 2 * sum(local) >= len(local) if commas else bool(local) and all(local)


def _by_commas(equation: re.Match[str]) -> bool | None:
    """Whether an equation is right by decimal commas and points between thousands (``True``) or by our notation (``False``);
    ``None`` if by both or neither, which is inconclusive."""
    terms = (equation[1], equation[3], equation[4])
    if "," not in equation[0] and "." not in equation[0]:
        return None  # most equations: it is the same in both
    right = []
    for local in (True, False):
        try:
            one, two, result = (Fraction(with_points(term) if local else term.replace(",", "")) for term in terms)
        except ValueError:
            right.append(False)
            continue
        found = one + two if equation[2] == "+" else one - two if equation[2] == "-" else one * two
        right.append(found == result)
    return right[0] if right[0] != right[1] else None


def _in_one_notation(match: re.Match[str]) -> str:
    if _READ.fullmatch(match[0]):
        return match[0]
    grouped = _GROUPED.fullmatch(match[0])
    return re.sub(r"\D", "", grouped[1]) + (grouped[3] or "") if grouped else UNREAD


def find_numbers(text: str) -> list[Numeral]:
    """The numbers of a text that went through ``plain_numbers``, in order; not ordinals (``5th``), digits inside words, and those
    of a root or a multiple of pi or of a root."""
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
        number = match["number"].replace(",", "")
        value = Fraction(int(number) if number.isdigit() else number)
        if len(number) < 30 and not any(match.group("divisor", "exponent", "power", "scale")):  # most of them
            return -value if match["sign"].strip() or match["inner"] else value
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


_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_AT_MOST = 80  # characters of a number in words


def word_value(text: str) -> int | None:
    """The value of a text that is one number in words: ``seven``, ``minus two``, ``Two hundred and five.``; else ``None``."""
    text = text.strip(" .!*\n").casefold()
    words = text.replace("-", " ").split() if len(text) <= _AT_MOST else []
    sign = -1 if words and words[0] in ("minus", "negative") else 1
    words = words[sign < 0 :]
    total = part = 0
    room = 100  # below which a word may add to the one before
    for place, word in enumerate(words):
        if word in SCALES and word != "hundred":
            total, part, room = total + (part or 1) * SCALES[word], 0, 100
        elif word == "hundred" and part < 10:
            part, room = (part or 1) * 100, 100
        elif word == "a" and place == 0 < len(words) - 1 and words[1] in SCALES:
            part, room = 1, 0
        elif word in _TENS and room == 100:
            part, room = part + 10 * (_TENS.index(word) + 2), 10
        elif word in _WORDS and _WORDS.index(word) < (room or 1) and (room == 100 or word != "zero"):
            part, room = part + _WORDS.index(word), 0
        elif not (word == "and" and room == 100 and 0 < place < len(words) - 1):
            return None
    return sign * (total + part) if words else None


_SPOKEN = re.compile(
    rf"(?:\b(?:minus|negative)\s)?\b"
    rf"(?:(?:{'|'.join(_TENS)})(?:[ -](?:{'|'.join(_WORDS[1:10])}))?|{'|'.join(reversed(_WORDS))})\b",
    re.I,
)
_GOES_ON = re.compile(r"[ -](?:hundred|thousand|million)")


_MINUS = re.compile(
    r"(\A\W*|[=:(,]\s?|\b(?:is|was|be|at|to|of|by|now|only|exactly|about|around|equals|gives|leaves|makes|reads|shows)\s)"
    r"minus\s(?=[$€£]?\d)",
    re.I,
)
_BELOW_ZERO = re.compile(
    r"(?<![\w.,-])(?=[$€£]?\d[\d.,]*(?:\s?°\s?[CF]?|\sdegrees?(?:\s(?:celsius|fahrenheit))?)?\sbelow\s(?:zero|0)(?!\.?\d))"
    r"([^b]*)\sbelow\s(?:zero|0)",
    re.I,
)


def with_signs(text: str) -> str:
    """A text with signs for words of negative numbers: ``-7`` for ``minus 7``, ``-2 degrees`` for ``2 degrees below zero``."""
    return _BELOW_ZERO.sub(r"-\1", _MINUS.sub(r"\1-", text))


_ORDINALS = {"first": 1, "second": 2, "third": 3, "fifth": 5, "eighth": 8, "ninth": 9, "twelfth": 12, "twentieth": 20}
_ORDINALS |= {f"{word}th": value for value, word in enumerate(_WORDS) if value and f"{word[:-1]}th" not in _ORDINALS}
_RANKED = re.compile(rf"\b(?:{'|'.join(_ORDINALS)})\b(?<!\d second)", re.I)


def with_digits(text: str) -> str:
    """A text with digits for its numbers and ranks in words, up to ninety-nine and twentieth: ``the 2 floor``."""
    text = _SPOKEN.sub(lambda match: str(word_value(match[0])), text)
    return _RANKED.sub(lambda match: str(_ORDINALS[match[0].casefold()]), text)


def only_word_value(text: str) -> int | None:
    """The value of the only number that a text names in words, up to ninety-nine; ``None`` if it names none or several, or
    nothing but *one*, which is seldom a number."""
    found = list(_SPOKEN.finditer(text))
    if len(found) != 1 or found[0][0].casefold() == "one" or _GOES_ON.match(text, found[0].end()):
        return None
    return word_value(found[0][0])


def evaluate(terms: Sequence[str]) -> Fraction | None:
    """The value of a calculation in numbers, percentages, ``+-*/^``, roots and brackets; ``None`` for a division by zero, and for
    terms that are no calculation, powers of more than some hundred digits, or brackets within hundreds of others."""
    left = list(reversed(terms))

    def factor() -> Fraction:
        term, value = left.pop(), Fraction(0)
        if term == "√":
            root = factor()
            value = Fraction(math.isqrt(root.numerator), math.isqrt(root.denominator))  # ValueError below zero
            value = value if value**2 == root else Fraction(math.sqrt(root))
        elif term == "(":
            value = sums()
            if left.pop() != ")":
                raise ValueError
        else:
            value = Fraction(term[:-1]) / 100 if term.endswith("%") else Fraction(term)
        if not left or left[-1] != "^":
            return value
        left.pop()
        power = factor()
        if power.denominator > 1 or abs(power) * len(str(value)) > 4 * _LONGEST:
            raise ValueError
        return -((-value) ** int(power)) if term.startswith("-") else value ** int(power)

    def product() -> Fraction:
        value = factor()
        while left and left[-1] in "*/":
            value = value * factor() if left.pop() == "*" else value / factor()
        return value

    def sums() -> Fraction:
        value = product()
        while left and left[-1] in "+-":
            value = value + product() if left.pop() == "+" else value - product()
        return value

    try:
        value = sums()
        return None if left else value
    except (ArithmeticError, ValueError, IndexError, RecursionError):
        return None
