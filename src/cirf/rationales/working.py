"""The calculation that a number comes from: ``63-57=`` for the ``6`` of ``She has 63 games - 57 games = 6 games more``."""

import re
from collections.abc import Iterator
from fractions import Fraction

from cirf.tasks.parsing.answers import number_value
from cirf.tasks.steps import left_side, strip_annotations
from cirf.text.numerals import evaluate, plain_numbers

_TOKEN = re.compile(
    r"""(?P<number>(?:(?<![\w)\]}%.])(?<![\w)\]}%.]\s)-)?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:\s?%)?)
    |(?P<sign>[+*×·÷/-]|(?<=\d\s):(?=\s\d)|\b(?:plus|minus|times|multiplied\ by|divided\ by|x|of)\b)
    |(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<word>[a-z][\w'-]*(?:/[a-z]\w*[²³]?)?)|(?P<other>[^\s$£€¥₹])""",
    re.X | re.I,
)
_SIGNS = {
    "×": "*",
    "·": "*",
    "÷": "/",
    ":": "/",
    "plus": "+",
    "minus": "-",
    "times": "*",
    "multiplied by": "*",
    "divided by": "/",
}
_SIGNS |= {"x": "*", "of": "*"}
_WORDS = 3  # at most, between a number and the sign after it: "7 bags of rice + 2"


def working(number: str, step: str) -> str:
    """The calculation of ``number`` in a step, in digits and ``+-*/()%`` alone, with the equals sign; else the left side of
    an equation in unknowns that comes to it (``1555+X=``); else empty.

    The last such calculation counts. It need not be followed by an equals sign, but it has to come to the number; to its
    last decimal place where it has any. ``number`` is as results have it: ``6``, ``2.5``.
    """
    value = number_value(number)
    if value is None:
        return left_side(number, step)
    _, dot, decimals = number.rstrip("%").partition(".")
    share = number.endswith("%") and "%" in plain_numbers(step)
    slack = Fraction(1, 2 * 10 ** len(decimals)) if dot else Fraction(0)
    text = plain_numbers(strip_annotations(step))
    fraction = ""  # what it comes to, written as a quotient: "= 1/4" behind "1/2 * 1/2"
    for terms in reversed(list(_calculations(text))):
        found = evaluate(terms) if not number.startswith("".join(terms)) else None  # "2*10" is a part of "2*10^3"
        if found is not None and min(abs(found - value), abs(100 * found - value) if share else slack + 1) <= slack:
            if len(terms) != 3 or not re.search(rf"[=≈]\s?{terms[0]}\s?/\s?{terms[2]}(?!\d|[/.]\d|\s?[=*+-])", text):
                return "".join(terms) + "="
            fraction = fraction or "".join(terms) + "="
    return fraction or left_side(number, step)


def _calculations(text: str) -> Iterator[list[str]]:
    """Every run of numbers, signs and brackets in which there is a sign. Words after a number are left out."""
    run: list[str] = []
    words = 0
    for kind, term in [*_terms(text), ("end", "")]:
        valued = bool(run) and _is_value(run[-1])  # whether a sign may follow
        if valued and words < _WORDS and (kind == "word" or (term == "of" and words)):
            words += 1
            continue
        unclosed = run.count("(") > run.count(")")
        if (
            (kind == "sign" and valued)
            or (kind in ("number", "open") and not valued)
            or (kind == "close" and valued and unclosed)
        ):
            run.append(_SIGNS.get(term, term))
        else:
            yield from _whole(run)
            run = [term] if kind in ("number", "open") else []
        words = 0


def _terms(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        kind, term = str(match.lastgroup), match[0].casefold()
        if kind == "number":
            term = term.replace(",", "").replace(" ", "")
            term = f"0{term}" if term.startswith(".") else term
        yield kind, {"open": "(", "close": ")"}.get(kind, term)


def _is_value(term: str) -> bool:
    return term == ")" or term[-1].isdigit() or term[-1] == "%"


def _whole(run: list[str]) -> Iterator[list[str]]:
    """The calculation of a run, without signs at its end and brackets that are never closed."""
    while run and not _is_value(run[-1]):
        run = run[:-1]
    for _ in range(run.count("(") - run.count(")")):
        run.remove("(")
    if any(term in "+-*/" for term in run):
        yield run
