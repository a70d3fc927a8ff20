"""Equations in unknowns, and what they are about: ``850+705+X=820*3``, ``0.78x-20``, ``X``."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from cirf.tasks.parsing.answers import number_value
from cirf.tasks.steps.calculations import asserted
from cirf.text.numerals import plain_numbers

_TOKEN = re.compile(
    r"""(?P<arrow>[=-]{1,4}>|[→⇒])|(?P<number>(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,2}(?!\w)|%)?)
    |(?P<letter>(?:(?<!\d\s)[A-Za-z]_?\d(?!\w)|[A-Za-z])(?![A-Za-z_'’²³]))
    |(?P<sign>[+*×·÷/^-])|(?P<equals>=)|(?P<open>[(\[])|(?P<close>[)\]])|(?P<word>[A-Za-z][\w'’-]*)|(?P<gap>[\s$£€]+)
    |(?P<other>.)""",
    re.X | re.S,
)
_SIGNS = {"×": "*", "·": "*", "÷": "/"}
_FUNCTIONS = frozenset(("sin", "cos", "tan", "log", "ln", "sqrt", "of"))
_GOES_ON = re.compile(r"\s*(?:[a-z]+\s+){0,2}(?:[+*/×÷·^-]|times\b|plus\b|minus\b|of\b|divided\b)", re.I)
_LET = re.compile(
    r"\b(?:let|call|suppose|assume|say)\b[^.;=\n]{0,120}?(?:(?<!['’])\b(?P<first>[A-Zb-z])(?=\s(?:be|denote|represent|stand|equal)s?\b|\s?=\s[A-Za-z]{2})"
    r"|\b(?:be|by|is)\s(?P<last>[A-Za-z])(?![\w'’])(?!(?<=[ai])\s(?!and\b)[a-z]+))",
    re.I,
)
_MOST_BESIDE = 4
_RANGE = re.compile(r"0?\.\d+-\d*\.\d+|(\d+)-(\d+)")  # "95% CI 0.89-1.08", "scores of 70-75"
_UNKNOWN = re.compile(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
_STANDS_FOR = re.compile(r"\s*(?!I:)(?:where\s)?([0-9.]*[A-Zb-hj-z])\s?(?:=|:|\bis the\b)\s*(?:the\s)?[A-Za-z]{2}")
_NAMED = re.compile(r"(?<=[a-z])\s?[:=]\s?([A-Zb-hj-z])\s?\.?\Z")

_TERM = r"(?:[0-9][0-9.]{0,15}\s?)?(?:√[0-9]{1,9}|[A-Za-z](?![A-Za-z'’]))?(?:\^[0-9]{1,3}|[²³])?"
_SIDE = rf"-?\(?(?=[0-9A-Za-z√]){_TERM}(?:\s?[-+*/]\s?\(?(?=[0-9A-Za-z√]){_TERM}){{0,5}}\)?"
_COMPARED = re.compile(rf"(?<![\w.$√^)])(?:{_SIDE})(?:\s?(?:[<>]=?|[≤≥≠])\s?{_SIDE}){{1,5}}(?![\w(/^]|\s?[-+*/=<>])")
_FALSE = re.compile(r"\s(?:is\s(?:false|not\strue|wrong)|fails|does\snot\shold)\b", re.I)
_NAMED_CHAIN = re.compile(r"(?<![\w-])[A-Z][\w'’-]*(?:\s?[<>]\s?[A-Z][\w'’-]*){1,9}(?!\w)")


def compared(segment: str, of_numbers: bool = False) -> str:
    """The last inequality of a step that holds an unknown, ``3x>9`` in ``3x > 9``, or is all of the step or
    one ``of_numbers`` alone, or comparison of names, ``Raj > Eve``."""
    text = plain_numbers(asserted(segment))
    every = [match[0].replace(" ", "").rstrip(".") for match in _COMPARED.finditer(text) if not _FALSE.match(text, match.end())]
    alone = len(every) == 1 and len(re.findall(r"\w+", _COMPARED.sub("", text))) < 2
    found = [each for each in every if of_numbers or alone or re.search("[A-Za-z√]", each)]
    named = [*_NAMED_CHAIN.findall(text), *(each for each in found if each.count("(") == each.count(")"))]
    return re.sub(r"\A\(([^()]*)\)\Z", r"\1", named[-1]) if named else ""


def unsolved(segment: str) -> str:
    """The last equation of a step that holds an unknown and comes to no value, in digits, letters and signs alone.

    Behind the equals sign of words it is the right side::

        "850 + 705 + X = 820 * 3"             ->  "850+705+X=820*3"
        "What she pays with it = 0.78x - 20"  ->  "0.78x-20"
    """
    text = plain_numbers(asserted(segment))
    return _last((run for run in _runs(text) if _has_letter(run) and any(map(_is_sum, run))), text)


def unworked(segment: str, previous: tuple[str, ...]) -> str:
    """For a step without a result, the calculation that it sets up (``6*3`` in ``Revenue = 6 × 3``) or a sum of an unknown
    that results before it have (``x-2`` in ``He has x - 2 left`` after ``x``)."""
    known = {letter for result in previous for letter in _UNKNOWN.findall(result)}
    text = plain_numbers(asserted(segment))
    runs = [
        run
        for run in _runs(text, within=True)
        if any(len(run[-1]) > 1 and not term[0].isdigit() and term not in "()" for term in run[-1])
        and not _is_range("".join(run[-1]), text)
    ]
    unnamed = ((run, run[int(len(run) > 1 and len(run[0]) == 1) :]) for run in runs)  # the right side of "D2 = 216/27"
    return _last((run for run, own in unnamed if all(term in known for side in own for term in side if term[0].isalpha())), text)


def _is_range(side: str, text: str) -> bool:
    found = _RANGE.fullmatch(side)
    return found is not None and side in text and (found[1] is None or int(found[1]) < int(found[2]))


def _last(runs: Iterable[list[list[str]]], text: str) -> str:
    """The last run, with those next to it: ``12 = 2 * 6 and 18 = 2 * 9``."""
    found = ["=".join(map("".join, run)) for run in runs][-_MOST_BESIDE:]
    bare = re.sub(r"\s", "", text)
    while len(found) > 1 and not all(
        "=" in a and re.search(rf"{re.escape(a)}(?:[,;]|,?(?:and|or)){re.escape(b)}", bare) for a, b in pairwise(found)
    ):
        found.pop(0)  # "x, or y" is the same thing again
    return ", ".join(found)


def left_side(value: str, segment: str) -> str:
    """The left side of the last equation in unknowns whose result is ``value``, with the equals sign: ``1555+X=``; empty if that
    is only the unknown. Numbers are compared by value: ``14.50`` is ``14.5``."""
    worth = number_value(value)
    for run in reversed(list(_runs(plain_numbers(asserted(segment))))):
        if len(run) < 2 or not _has_letter(run) or not any(_is_sum(side) for side in run[:-1]):
            continue
        right = "".join(run[-1])
        if right == value or (worth is not None and number_value(right) == worth):
            return "".join("".join(side) + "=" for side in run[:-1])
    return ""


def introduced(segment: str) -> str:
    """The unknowns that a step gives names to: ``X`` in ``Let X be the weight of the third parcel.``"""
    text = plain_numbers(segment)
    names = [match["first"] or match["last"] for match in _LET.finditer(text)]
    if not names and (match := _STANDS_FOR.match(text) or _NAMED.search(text)):
        names = [match[1]]
    return ", ".join(dict.fromkeys(names))


def _is_sum(side: list[str]) -> bool:
    """Whether a side of an equation holds an unknown that is still to be found: ``2x`` and ``x+1`` do, ``x`` does not."""
    return any(term[0].isalpha() for term in side) and sum(term[0].isalnum() for term in side) > 1


def _runs(text: str, within: bool = False) -> Iterator[list[list[str]]]:
    """Every uninterrupted run of terms, signs and equals signs, as its sides; a run after the equals sign of words
    (``Cost = 2x + 3``), or ``within`` other text, is a single side. Runs that are a part of something longer are left out."""
    run: list[list[str]] = []
    depth, last_end, after_word = 0, 0, False
    before, start_broken, open_before = "", False, False  # the sign before this term; what the run's own beginning was like
    tokens = [(str(m.lastgroup), m[0], m.start(), m.end()) for m in _TOKEN.finditer(text)]
    for kind, term, start, end in [*tokens, ("other", "", len(text), len(text))]:
        if kind == "gap" and "\n" not in term:
            continue
        side = run[-1] if run else []
        valued = bool(side) and (side[-1] == ")" or side[-1][0].isalnum())
        touches = start == last_end
        if kind == "letter" and text[end : end + 1] == "(" and not (valued and touches):  # "P(A)"
            kind = "word"
        a_cross = kind == "letter" and term in "xX" and valued and not touches and side[-1][0].isdigit()
        if a_cross and re.match(r"\s*[$(]*\d", text[end : end + 10]):
            kind, term = "sign", "*"
        term = _SIGNS.get(term, {"open": "(", "close": ")"}.get(kind, term))
        if kind == "number":
            term = term.replace(",", "")
        fits = (
            (kind in ("number", "letter", "open") and (not valued or (touches and (side[-1] == ")" or kind != "number"))))
            or (kind == "sign" and (valued or term == "-"))
            or (kind == "close" and valued and depth > 0)
            or (kind == "equals" and valued and depth == 0)
        )
        if run and fits:
            depth += (kind == "open") - (kind == "close")
            if kind == "equals" and start_broken:  # "f'(x) = 2x"
                run = []
            elif kind == "equals":
                run.append([])
            else:
                run[-1].append(term)
        else:
            dangles = not run or not run[-1] or not (run[-1][-1] == ")" or run[-1][-1][0].isalnum())
            dangles = dangles or (kind == "word" and touches and "/" in run[-1])  # "1/2gt"
            alone = len(run) == 1 and not (open_before or within)
            if not (start_broken or depth or dangles or alone or _GOES_ON.match(text[last_end : last_end + 80])):
                yield run
            run, depth = [], 0
            if kind in ("number", "letter", "open"):
                run, start_broken, open_before = [[term]], (after_word and touches) or before in tuple("+*/^-"), before == "="
                depth = int(kind == "open")
        if kind == "equals" or term == "is":
            before = "="
        elif kind == "sign":
            before = term
        else:
            before = "+" if term == "√" or term.casefold() in _FUNCTIONS else ""
        after_word = kind == "word"
        last_end = end


def _has_letter(run: list[list[str]]) -> bool:
    return any(term[0].isalpha() for side in run for term in side)
