"""The calculation at the end of a text, if it is unambiguous: ``She pays 3 pens * $4 each`` is 12.

`working` looks for a calculation with a known result, so it can read loosely. Here the result is unknown, so ambiguous text is
not read: a unit that scales (``2 million + 3``) or differs (``2 hours + 30 minutes``), a percentage that nothing is taken of, a
bracket after a number, a quotient of quotients, roots, powers, unknowns, times, labels (``Step 2 - 5+3``), and anything that
continues after a sign or a number (``30 + another 4*5``).
"""

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from cirf.rationales.working import evaluate
from cirf.text.numerals import plain_numbers

_LONGEST = 300  # characters of a line that is read
_TERM = re.compile(
    r"""(?P<number>[$£€]?(?:\d{1,3}(?:,\d{3})+(?![\d,])|0(?!\d)|[1-9]\d{0,11}(?!\d))(?:\.\d{1,6}(?!\d))?%?(?![\w:,.]\w|[A-Za-z_:%]))
    |(?P<sign>[-+*×·÷/−]|\b(?:plus|minus|times|multiplied\ by|divided\ by|of|x)\b)
    |(?P<open>\()|(?P<close>\))|(?P<word>[A-Za-z]+)|(?P<other>\S)""",
    re.X,
)
_SIGNS = {"×": "*", "·": "*", "÷": "/", "−": "-", "plus": "+", "minus": "-", "times": "*", "x": "*", "of": "*"}
_SIGNS |= {"multiplied by": "*", "divided by": "/"}
_POWER = re.compile(r"\w\s?\*\*\s?\d")
_UNCLEAR = re.compile(r"^(?![n%])|(?<![n%])$|[n%][n%]|[-+*/o][-+*/o]|%(?!o)|(?<!%)(?<!/n)o|/n/|[?()]")
_WORDS = 3  # at most, after a number: "12 pens per box"
_DEEP = 8  # brackets in brackets
_MANY = 40  # parts of a calculation, units among them


def _named(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SCALES = _named("""
    one ten hundred thousand million billion trillion k dozen score pair half third quarter fourth fifth eighth tenth
    squared cubed factorial doubled tripled halved percent am pm cent penny pennie pence nickel dime
""")  # what changes the number before it, singular or plural
_LEADS = _named("""
    sqrt root log ln exp sin cos tan mod modulo twice thrice half double triple quarter third square cube of by to than point
    negative minus plus over less choose average mean floor ceil ceiling binary off on hundred thousand million dozen
""")  # what may change the number after it
_CHANGES = _named("half twice thrice double triple negative average mean")  # also from a word or two before
_LABELS = _named("step question problem part day week month year number no exercise case line item figure chapter")
_MEASURES = _named("""
    second sec minute min hour hr h day week wk month mo year yr decade century dollar buck euro
    mm cm m km meter metre kilometer kilometre centimeter centimetre inch in foot ft yard yd mile mi
    g kg mg kilo gram kilogram pound lb ounce oz ton tonne ml l liter litre cup pint quart gallon tablespoon teaspoon
""")


class Term(NamedTuple):
    """A part of a calculation: its ``kind`` (number, sign, open, close, word, other), its text, and its place."""

    kind: str
    text: str
    start: int
    end: int


def closing(line: str) -> list[Fraction]:
    """Numbers that may follow the calculation at the end of a line: its value, then the numbers that begin a rewritten form if it
    has several steps or a percentage, 4 and 500 of ``4*125-2`` (``= 500-2 = 498``). Empty if nothing is read. A division without
    a whole result is not read either: ``30/8`` may be 3.75, 15/4, or 3 and a remainder."""
    if _POWER.search(line) or len(line) > _LONGEST:
        return []
    if re.search(r"\d \d", line):  # one number or two
        return []
    text = plain_numbers(line)
    if re.search(r"[\\^√{}\[\]²³°]", text.rpartition("=")[2]):
        return []
    terms = [_term(match) for match in _TERM.finditer(text)]
    start = _beginning(terms)
    if start is None or len(terms) - start > _MANY or not _may_stand(text, terms, start) or not _units_agree(terms[start:]):
        return []
    whole = [term for term in terms[start:] if term.kind != "word"]
    value = evaluate([term.text for term in whole]) if _is_clear(whole) else None
    if value is None:
        return []
    parts = [evaluate([term.text for term in part]) for part in _parts(whole) if not part[-1].text.endswith("%")]
    if value.denominator != 1 and any(term.text == "/" for term in whole):
        return []
    percent = whole[0].text.removesuffix("%") if whole[0].text.endswith("%") else ""
    several = percent or sum(term.kind in ("sign", "of") for term in whole) > 1
    shares = [Fraction(percent), Fraction(percent) / 100] if percent else []
    rewritten = dict.fromkeys([*shares, *(parts if several else [])])
    return [value, *(part for part in rewritten if part is not None and part != value)]


def _term(match: re.Match[str]) -> Term:
    kind, text = str(match.lastgroup), match[0]
    text = text.lstrip("$£€").replace(",", "") if kind == "number" else _SIGNS.get(text, text) if kind == "sign" else text
    taken = kind == "sign" and match[0] == "of"
    return Term("of" if taken else kind, text, match.start(), match.end())


def _beginning(terms: Sequence[Term]) -> int | None:
    """Where the calculation at the end begins; ``None`` if there is none."""
    place, signs = len(terms), 0
    while True:
        words = 0
        while place and terms[place - 1].kind == "word" and words < _WORDS:
            unit = _singular(terms[place - 1].text)
            if unit in _SCALES or (len(unit) == 1 and unit not in _MEASURES):
                return None
            place, words = place - 1, words + 1
        if not place or (terms[place - 1].kind not in ("number", "close")):
            return None
        place = place - 1 if terms[place - 1].kind == "number" else _opening(terms, place - 1)
        if place < 0:
            return None
        if not place or terms[place - 1].kind not in ("sign", "of"):
            return place if signs else None
        if terms[place - 1].kind == "of" and (place < 2 or terms[place - 2].kind != "number"):
            return None
        place, signs = place - 1, signs + 1


def _opening(terms: Sequence[Term], place: int) -> int:
    """Where the bracket that closes at ``place`` was opened; -1 where it was not."""
    depth = 0
    for at in range(place, -1, -1):
        depth += {"close": 1, "open": -1}.get(terms[at].kind, 0)
        if not depth:
            return at
        if depth > _DEEP:
            break
    return -1


def _may_stand(text: str, terms: Sequence[Term], start: int) -> bool:
    """Whether a calculation may begin there, by the text before it."""
    if not start:
        return True
    before, gap = terms[start - 1], text[terms[start - 1].end : terms[start].start]
    earlier = terms[start - 2] if start > 1 else None
    if before.kind == "word":
        return bool(gap) and _may_lead(terms, start)
    if before.kind != "other":
        return False
    if earlier is not None and earlier.kind == "number" and before.text in ",.:;":  # part of a number, unless it counts something
        named = start > 2 and terms[start - 3].kind == "word"
        listed = (before.text == "." and start == 2) or (before.text == ":" and named)
        return bool(gap) and earlier.end == before.start and listed
    return before.text in "=≈" or (bool(gap) and before.text in ",.:;!?\"'”“’→#")


def _may_lead(terms: Sequence[Term], start: int) -> bool:
    """Whether the words right before a calculation leave it intact: none changes its first number or continues another
    calculation."""
    place = start
    while place and terms[place - 1].kind == "word":
        place -= 1
    words = [term.text.casefold() for term in terms[place:start]]
    label = words[-1] in _LABELS and terms[start].kind == "number" and terms[start + 1].text == "-"
    if label or words[-1] in _LEADS or (len(words[-1]) == 1 and words[-1] != "a") or _CHANGES & set(words[-3:]):
        return False
    linked = place > 0 and terms[place - 1].kind in ("sign", "of")
    counted = place > 0 and terms[place - 1].kind in ("number", "close")
    percent = counted and terms[place - 1].text.endswith("%")
    return not linked and not percent and not (counted and len(words) < _WORDS)


def _singular(word: str) -> str:
    return word.casefold().removesuffix("s")


def _units_agree(terms: Sequence[Term]) -> bool:
    if not any(term.text in "+-" for term in terms if term.kind == "sign"):
        return True
    names = {"inche": "inch", "feet": "foot", "centurie": "century"}
    units = [_singular(term.text) for term in terms if term.kind == "word"]
    return len({names.get(unit, unit) for unit in units} & _MEASURES) < 2


def _parts(whole: Sequence[Term]) -> Iterator[Sequence[Term]]:
    """Prefixes of a calculation that have a value of their own."""
    depth, sums = 0, False
    for end in range(1, len(whole)):
        last, sign = whole[end - 1], whole[end]
        depth += {"open": 1, "close": -1}.get(last.kind, 0)
        sums |= not depth and last.kind == "sign" and last.text in "+-"
        if not depth and last.kind in ("number", "close") and (sign.text in "+-" or not sums):
            yield whole[:end]


def _is_clear(terms: Sequence[Term]) -> bool:
    """Whether numbers, signs and brackets make a calculation, and one alone: a percentage is ``of`` something, and so may a
    fraction be; what is divided by is not divided again (``6 ÷ 1/2``)."""
    left = "".join(map(_kind, terms))
    while inner := re.search(r"\(([^()]*)\)", left):
        if _UNCLEAR.search(inner[1]):
            return False
        left = f"{left[: inner.start()]}n{left[inner.end() :]}"
    return _UNCLEAR.search(left) is None


def _kind(term: Term) -> str:
    if term.kind == "number":
        return "%" if term.text.endswith("%") else "n"
    return {"of": "o", "sign": term.text, "open": "(", "close": ")"}.get(term.kind, "?")
