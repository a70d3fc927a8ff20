"""A calculator while a model writes: after ``16*7=`` it can write only the value.

A small model chooses numbers and operations right more often than the result. Where its text ends with a calculation and an
equals sign and a number comes next, tokens that lead to another number than the value are masked (Cobbe et al. 2021, arXiv
2110.14168, had a calculator write it). Whether a number comes next is left to the model (to its likeliest token, also when it is
sampled), and so is how it is written: ``1200``, ``1,200``, ``1200.00``. In prose it may write the calculation again, as chains
do: ``4*125-2 = 500-2 = 498``. Values that are negative or have more than two decimal places are left to the model, and so are
ambiguous calculations: a unit that scales (``2 million + 3``) or differs (``2 hours + 30 minutes``), a percentage that nothing is
taken of, a bracket after a number, a quotient of quotients, roots, powers, unknowns, times, labels (``Step 2 - 5+3``), and
anything that continues after a sign or a number (``30 + another 4*5``).
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import torch

from cirf.text.numerals import evaluate, number_text, plain_numbers

_SEEN = 160  # tokens of a line: a longer one is not read
_OPEN = re.compile(r"=(?:\s|\*|\\?[$£€¥₹]|\\boxed\{){0,6}(\d[\d.,]*)?\Z")
_MAY_OPEN = re.compile(r"[=\d.,\s*$£€¥₹{]\Z")
_VALUE = re.compile(r"\d+(?:\.\d{1,2})?")  # of more places people write some
_FIGURES = re.compile(r"([Ġ▁]?)([0-9]+)")
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


class Calculator:
    """A logits processor in the sense of ``transformers``, for one batch: ids after the first prompt that it sees are the model's
    own."""

    def __init__(self, tokenizer: Any) -> None:
        """Of any tokenizer whose digits are tokens, alone or several to a token. It looks through the vocabulary: for further
        batches take `fresh` ones."""
        self._tokenizer = tokenizer
        self._marks = {token for token, added in tokenizer.added_tokens_decoder.items() if str(added).strip()}
        self._pieces: dict[int, str] = {}
        words = {word: token for word, token in tokenizer.get_vocab().items() if token not in self._marks}
        found = ((_FIGURES.fullmatch(word), token) for word, token in words.items())
        self._figures = {token: (match[1], match[2]) for match, token in found if match}
        self._points = {words[sign]: sign for sign in ".," if sign in words}
        self._width: int | None = None

    def fresh(self) -> Calculator:
        made = copy.copy(self)
        made._width = None
        return made

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``scores`` [rows x vocabulary] with minus infinity for what would be a wrong number; ``input_ids`` [rows x so far]."""
        if self._width is None:
            self._width = input_ids.shape[1]
        return self.ragged([], input_ids[:, self._width :].tolist(), scores)

    def ragged(self, last: Sequence[int], written: Sequence[Sequence[int]], scores: torch.Tensor) -> torch.Tensor:
        """As a call, for rows of different lengths, by the ids ``written`` in each. ``last``, of each prompt, is unused."""
        changed = scores
        for row, own in enumerate(written):
            begun = self._begun(own)
            if begun is None:
                continue
            barred, allowed = self._next(*begun, int(scores[row].argmax()))
            if allowed and not bool((scores[row, allowed] > -math.inf).any()):
                continue  # whatever else steers has left none of them
            changed = scores.clone() if changed is scores else changed
            if allowed:
                changed[row] = -math.inf
                changed[row, allowed] = scores[row, allowed]
            else:
                changed[row, barred] = -math.inf
        return changed

    def _begun(self, own: Sequence[int]) -> tuple[str, list[str]] | None:
        """The text after the last equals sign of ``own``, and the numbers that may follow it, the value itself first; ``None`` if
        there is no calculation, or the text fits none of them."""
        if not own or not _MAY_OPEN.search(self._piece(own[-1])):
            return None
        start, traced = self._line(own)
        if len(own) - start > _SEEN:
            return None
        line = self._tokenizer.decode(own[start:], clean_up_tokenization_spaces=False).rpartition("\n")[2]
        begun = _OPEN.search(line)
        exact = [number_text(value) for value in closing(line[: begun.start()])] if begun else []
        if begun is None or not exact or not _VALUE.fullmatch(exact[0]):
            return None
        written = begun[1] or ""
        exact = [exact[0], *(one for one in exact[1:] if _VALUE.fullmatch(one) and not traced)]
        return (written, exact) if any(fits(written, one) for one in exact) else None

    def _line(self, own: Sequence[int]) -> tuple[int, bool]:
        """Where the last line begins, and whether it follows a functional or special token."""
        for index in range(len(own) - 1, max(-1, len(own) - _SEEN - 1), -1):
            if own[index] in self._marks:
                return index + 1, True
            if "\n" in self._piece(own[index]):
                return index, False
        return max(0, len(own) - _SEEN - 1), False

    def _next(self, written: str, exact: Sequence[str], liked: int) -> tuple[list[int], list[int]]:
        """The tokens that may not come next, or, where there are any, the only ones that may; ``liked`` is the likeliest one. The
        value itself goes before another number, unless it is another one that the model likes to go on with."""
        over = not written or any(fits(written, one) and is_whole(written, one) for one in exact)
        if is_whole(written, exact[0]) or (over and liked not in self._figures):
            return self._wrong(written, exact), []
        allowed = [self._right(written, one, liked) for one in exact if fits(written, one)]
        if fits(written, exact[0]) and not any(liked in tokens for tokens in allowed):
            allowed = allowed[:1]
        able = sorted(set().union(*allowed))
        return ([], able) if able else (self._wrong(written, exact), [])

    def _right(self, written: str, exact: str, liked: int) -> set[int]:
        """Tokens that begin a number, with a leading blank if ``liked`` has one, or continue a part of one."""
        blank = "" if written else self._figures[liked][0]
        able = {token: begun for token, (begun, digits) in self._figures.items() if fits(written + digits, exact)}
        right = {token for token, begun in able.items() if begun == blank}
        right = right or {token for token, begun in able.items() if not begun}
        return right | {token for token, sign in self._points.items() if written and fits(written + sign, exact)}

    def _wrong(self, written: str, exact: Sequence[str]) -> list[int]:
        """Digit tokens that would make a number that is not allowed there."""
        return [
            token
            for token, (blank, digits) in self._figures.items()
            if not (blank and written) and not any(fits(written + digits, one) for one in exact)
        ]

    def _piece(self, token: int) -> str:
        if token not in self._pieces:
            self._pieces[token] = self._tokenizer.decode([token], clean_up_tokenization_spaces=False)
        return self._pieces[token]


def fits(written: str, exact: str) -> bool:
    """Whether the text is a spelling of a number, or the start of one: with commas between thousands, zeros after the last
    decimal place, and a comma or point at the end. ``exact`` is as `number_text` has it, and neither negative nor a fraction."""
    before, point, after = written.partition(".")
    whole, _, decimals = exact.partition(".")
    if not point and before.endswith(",") and before.replace(",", "") == whole:
        return not decimals
    way = f"{int(whole):,}" if "," in before else whole
    if point:
        return before == way and (decimals + "0" * (len(after) + 1)).startswith(after)
    return way.startswith(before)


def is_whole(written: str, exact: str) -> bool:
    """Whether ``written``, which fits, may end here: all of the value is there."""
    before, _, after = written.partition(".")
    whole, _, decimals = exact.partition(".")
    return before.replace(",", "") == whole and after.startswith(decimals)
