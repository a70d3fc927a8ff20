"""The calculation that a number comes from: ``63-57=`` for the ``6`` of ``She has 63 games - 57 games = 6 games more``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from cirf.tasks.answers import number_value
from cirf.tasks.numerals import plain
from cirf.tasks.steps import strip_annotations

_TOKEN = re.compile(
    r"""(?P<number>(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:\s?%)?)
    |(?P<sign>[+*×·÷/-]|\b(?:plus|minus|times|multiplied\ by|divided\ by|x|of)\b)
    |(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<word>[a-z][\w'-]*)|(?P<other>[^\s$£€])""",
    re.VERBOSE | re.IGNORECASE,
)
_SIGNS = {"×": "*", "·": "*", "÷": "/", "plus": "+", "minus": "-", "times": "*", "multiplied by": "*", "divided by": "/"}
_SIGNS |= {"x": "*", "of": "*"} | {sign: sign for sign in "+-*/"}
_LEADING = frozenset("^\\_")  # what stands before a number that is only the end of a term
_UNKNOWN = re.compile(r"\d\s?(?:[a-wyz]|x(?!\s?\d))(?![\w'])", re.IGNORECASE)
_WORDS = 3  # at most, between a number and the sign behind it: "7 bags of rice + 2"


def working(number: str, step: str) -> str:
    """What a step works out to come to ``number``, in digits and ``+-*/()%`` alone, with the equals sign; else empty.

    The last such calculation counts. It need not be followed by an equals sign, but it has to come to the number; to its
    last decimal place where it has any. ``number`` is as results have it: ``6``, ``2.5``.
    """
    value = number_value(number)
    if value is None:
        return ""
    _, dot, decimals = number.partition(".")
    slack = Fraction(1, 2 * 10 ** len(decimals)) if dot else Fraction(0)
    for terms in reversed(list(_calculations(plain(strip_annotations(step))))):
        found = _evaluate(terms)
        if found is not None and abs(found - value) <= slack:
            return "".join(terms) + "="
    return ""


def worth(calculation: str) -> Fraction | None:
    """The value of what stands last in a text, if that is a calculation: ``48/2`` is 24."""
    terms = next(reversed(list(_calculations(plain(calculation)))), None)
    return None if terms is None else _evaluate(terms)


def closing(text: str) -> list[Fraction]:
    """What may stand behind the calculation that a text closes with, its last number's unit included: its value, 12 of
    ``so 3 boxes * 4 pens``, and then what a chain may go on with, 500 of ``4*125-2`` (``= 500-2 = 498``).

    Empty where what closes the text is no calculation, or only the end of one (``x + 2*3``), where brackets are still open, and
    where a number counts a letter, as unknowns are written (``2x + 3``).
    """
    text = plain(text)
    *_, (before, run) = _runs(text)
    led = _UNKNOWN.search(text) is not None or before in _SIGNS.values() or before in _LEADING
    if led or not any(term in "+-*/" for term in run) or not _valued(run) or run.count("(") != run.count(")"):
        return []
    whole, several = _evaluate(run), sum(term in "+-*/" for term in run) > 1
    parts = [_evaluate(run[:end]) for end in range(1, len(run)) if several and _stands_alone(run[:end], run[end])]
    return [] if whole is None else [whole, *(part for part in parts if part is not None and part != whole)]


def _stands_alone(run: Sequence[str], sign: str) -> bool:
    """Whether the beginning of a calculation has a value of its own before ``sign``, which comes next."""
    if not _valued(run) or sign not in "+-*/" or run.count("(") != run.count(")"):
        return False
    depths = [run[: place + 1].count("(") - run[: place + 1].count(")") for place in range(len(run))]
    return sign in "+-" or not any(term in "+-" and not depth for term, depth in zip(run, depths, strict=True))


def _calculations(text: str) -> Iterator[list[str]]:
    """Every run of numbers, signs and brackets in which there is a sign. Words behind a number are left out."""
    for _, run in _runs(text):
        yield from _whole(run)


def _runs(text: str) -> Iterator[tuple[str, list[str]]]:
    """Runs of numbers, signs and brackets, some of them empty, each behind the term that stands before it. The last one reaches
    to the end of the text."""
    run: list[str] = []
    before = ""
    words = 0
    for kind, term in _terms(text):
        if _valued(run) and words < _WORDS and (kind == "word" or (term == "of" and words)):
            words += 1
            continue
        sign = _SIGNS.get(term, term)
        unclosed = run.count("(") > run.count(")")
        if (
            (kind == "sign" and _valued(run))
            or (kind in ("number", "open") and not _valued(run))
            or (kind == "close" and _valued(run) and unclosed)
        ):
            run.append(sign)
        else:
            yield before, run
            begins = kind in ("number", "open")
            before, run = ("", [term]) if begins else (sign, [])
        words = 0
    yield before, run


def _valued(run: Sequence[str]) -> bool:
    """Whether a sign may follow."""
    return bool(run) and (run[-1] == ")" or run[-1][0].isdigit())


def _terms(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        kind, term = str(match.lastgroup), match[0].casefold()
        if kind == "number":
            term = term.replace(",", "").replace(" ", "")
            term = f"0{term}" if term.startswith(".") else term
        yield kind, {"open": "(", "close": ")"}.get(kind, term)


def _whole(run: list[str]) -> Iterator[list[str]]:
    """The calculation of a run, without what dangles: signs at its end, brackets that are never closed."""
    while run and not _valued(run):
        run = run[:-1]
    for _ in range(run.count("(") - run.count(")")):
        run.remove("(")
    if any(term in "+-*/" for term in run):
        yield run


def _evaluate(terms: Sequence[str]) -> Fraction | None:
    """The value of a calculation; ``None`` for a division by zero."""
    left = list(reversed(terms))

    def factor() -> Fraction:
        term = left.pop()
        if term == "(":
            value = sums()
            left.pop()
            return value
        return Fraction(term[:-1]) / 100 if term.endswith("%") else Fraction(term)

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
        return sums()
    except ZeroDivisionError:
        return None
