"""A rationale cut down to its most important words, to a given share of its tokens (TokenSkip, arXiv 2502.12067).

::

    "So Mark is 15 + 7 = 22.\\nIn all it is 22 years."   at 0.6   ->   "Mark 15 + 7 = 22.\\n22 years."

TokenSkip keeps the words above a percentile of importance, as LLMLingua-2 does, which misses the wanted length on short
texts and on those where many words weigh the same. Here words are kept from the most important one down until the text has
the wanted number of tokens, and tokens are counted in the text as it comes out.

Words are kept or dropped whole::

    "Half of 48/2=24 clips,\\nso 12."   ->   Half | of | 48/2=24 | clips, | so | 12.

A word is the text between blanks, its punctuation included: an equation written without blanks is one word and is never
cut through, one written with blanks is as many as it has parts. Blanks and line breaks belong to no word. Chinese and
Japanese put no blanks between words: there every character is one, with adjacent punctuation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

from cirf.errors import CirfError
from cirf.progress import SILENT, Progress

Span = tuple[int, int]
"""A range of a text: ``text[start:end]``."""

_SIGN = "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
_OPENS = "「『【〔〈《（［｛“‘(\\["
_CLOSES = "」』】〕〉》）］｝”’)\\]、。，．：；！？…・,.;:!?\ufe00-\ufe0f"
_WORD = re.compile(rf"[{_OPENS}]*[{_SIGN}][{_CLOSES}]*|(?:(?![{_SIGN}])\S)+")


class Word(NamedTuple):
    """A word of a text, ``text[start:end]``, and how much it matters; what is larger is kept longer."""

    start: int
    end: int
    importance: float


def word_spans(text: str) -> list[Span]:
    """The words of a text in order. Together they hold all of it but blanks."""
    return [match.span() for match in _WORD.finditer(text)]


def per_word(values: Sequence[float], offsets: Sequence[Span], spans: Sequence[Span]) -> list[float]:
    """The mean value of each word's tokens, one number for each of ``spans``.

    A token counts for every word of which it holds a character; one of blanks alone for none. A word that no token holds
    (the tokenizer drops its characters) gets 0.

    Args:
        values: one a token.
        offsets: each token's place in the text, as fast tokenizers give it; in order.
        spans: the words, in order.
    """
    gathered: list[list[float]] = [[] for _ in spans]
    first = 0  # words before it end before this token
    for value, (start, end) in zip(values, offsets, strict=True):
        while first < len(spans) and spans[first][1] <= start:
            first += 1
        place = first
        while place < len(spans) and spans[place][0] < end:
            gathered[place].append(value)
            place += 1
    return [math.fsum(found) / len(found) if found else 0.0 for found in gathered]


def weighed(text: str, spans: Sequence[Span], importances: Sequence[float]) -> list[Word]:
    """The words with their importances. ``CirfError`` where one is not finite: no order could be made of them."""
    for (start, end), importance in zip(spans, importances, strict=True):
        if not math.isfinite(importance):
            word = text[start:end][:40]
            raise CirfError(f"the importance of {word!r} in {text[:60]!r} is not finite; score in float32 or by another model")
    return [Word(start, end, importance) for (start, end), importance in zip(spans, importances, strict=True)]


@dataclass(frozen=True, slots=True)
class Solution:
    """A worked solution with what it solves."""

    question: str
    rationale: str
    answer: str


class Scorer(Protocol):
    """Weighs the words of rationales.

    The importances of one rationale compare with each other, not with those of another rationale or scorer. Which other
    rationales are scored in the same call decides how a model's sums are rounded, and what is rare for the rules: whoever
    scores in parts keeps the parts the same, and gives the rules all rationales at once.
    """

    def score(self, texts: Sequence[Solution], progress: Progress = SILENT) -> list[list[Word]]:
        """The words of every rationale (``word_spans``), in order, none left out; ``CirfError`` where that cannot be done."""


@dataclass(frozen=True, slots=True)
class ForcedWords:
    """Words that are kept whatever they weigh.

    ``digits``: those with a digit or another sign for a number. ``strings``: those that hold one of these; a string of
    letters or digits must not go on in letters or digits (``Step`` is in ``Step:``, not in ``Steps``).
    """

    digits: bool = False
    strings: tuple[str, ...] = ()

    def holds(self, word: str) -> bool:
        return (self.digits and any(sign.isnumeric() for sign in word)) or any(_within(text, word) for text in self.strings)


@dataclass(frozen=True, slots=True)
class Shortened:
    """What is left of a rationale. ``kept``: which of its words, by number; ``tokens`` of the ``whole``: how long it is and was,
    as counted."""

    text: str
    kept: tuple[int, ...]
    tokens: int
    whole: int

    @property
    def ratio(self) -> float:
        """The share of the tokens that is left; 1 of a text without any."""
        return self.tokens / self.whole if self.whole else 1.0


_NOTHING = ForcedWords()


def shorten(
    rationale: str, words: Sequence[Word], ratio: float, count: Callable[[str], int], force: ForcedWords = _NOTHING
) -> Shortened:
    """The rationale's most important words, in their order, with as near to ``ratio`` of its tokens as words allow.

    Of words that weigh the same the earlier one is kept longer. A smaller ratio keeps a part of the words that a larger one
    keeps; at least one word is kept, and all that ``force`` names. Where words go, the widest gap of those that meet stays:
    a line break for as long as there are words on both its sides. If all are kept, the text is the same to the character.

    Args:
        words: as a ``Scorer`` gives them for this text.
        ratio: above 0, at most 1.
        count: the number of tokens of a text, of the model that is to write it. It is called for about log2(words) + 3 texts.
        force: words that stay in any case, though the text then be longer.

    ``ValueError``: another ratio.
    """
    if not 0 < ratio <= 1:
        raise ValueError(f"ratio: {ratio} is not above 0 and at most 1")
    whole = count(rationale)
    everything = Shortened(rationale, tuple(range(len(words))), whole, whole)
    if ratio == 1 or not words:
        return everything
    forced = {place for place, word in enumerate(words) if force.holds(rationale[word.start : word.end])}
    order = sorted(range(len(words)), key=lambda place: (place not in forced, -words[place].importance, place))
    wanted = ratio * whole

    def first(number: int) -> Shortened:
        if number == len(words):
            return everything
        kept = tuple(sorted(order[:number]))
        text = _joined(rationale, words, kept)
        return Shortened(text, kept, count(text), whole)

    # The same numbers of words are halved for every ratio, and each asks only whether that many are too long: so a smaller
    # ratio can never end at more words, however oddly a tokenizer counts.
    few, many = first(max(1, len(forced))), everything
    while len(many.kept) - len(few.kept) > 1 and few.tokens <= wanted:
        middle = first((len(few.kept) + len(many.kept)) // 2)
        if middle.tokens <= wanted:
            few = middle
        else:
            many = middle
    return few if few.tokens > wanted or wanted - few.tokens <= many.tokens - wanted else many


def _within(text: str, word: str) -> bool:
    before = r"(?<!\w)" if re.match(r"\w", text) else ""
    after = r"(?!\w)" if re.search(r"\w\Z", text) else ""
    return text != "" and re.search(before + re.escape(text) + after, word) is not None


def _joined(rationale: str, words: Sequence[Word], kept: Sequence[int]) -> str:
    texts = [rationale[words[place].start : words[place].end] for place in kept]
    parts = texts[:1]
    for (before, left), (after, right) in pairwise(zip(kept, texts, strict=True)):
        gaps = [rationale[words[place].end : words[place + 1].start] for place in range(before, after)]
        gap = max(gaps, key=lambda blanks: (blanks.count("\n"), blanks != ""))  # the first of the widest
        if gap == "" and len(gaps) > 1 and word_spans(left + right)[0][1] != len(left):  # "3" and "4" of "3个4" would be 34
            gap = " "
        parts += gap, right
    return "".join(parts)
