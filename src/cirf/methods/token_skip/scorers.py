"""The scorers: by rules, by chance, and by a classifier (`make_scorer`).

Importance by rules needs no model and no chance, nothing but the rationales themselves. Words have levels, and those of a lower
one are all dropped before the first of a higher::

    5   the result of an equation, the answer           So | Mark | is | 15 | + | 7 | = | 22 | years | old.
    4   what calculates, and the numbers at it           0     2     0   4    4   4   4    5      2      1
    3   other numbers
    2   negations, units, names
    1   other words
    0   function words, and what is nothing but punctuation

Within the lower three a word weighs more, the higher its TF-IDF (Salton and Buckley 1988): its share of the rationale's
words times ``1 + ln((1 + n) / (1 + d))``, where ``d`` of the ``n`` rationales scored together hold it. The upper three have
no such order, for it would part an equation from its signs. What is still equal is kept from the front.

A unit is the word after a number (``24 clips``). A name is a capitalised word, one that opens a sentence only if the
question or the rationale capitalises it elsewhere too, or the mark of an option (``C.``).

Words of quantity and comparison (``more``, ``each``, ``half``, ``per``, ``both``) are neither function words nor negations: in a
solution they change the result.
"""

from __future__ import annotations

import math
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cirf.methods.token_skip.shorten import Scorer, Solution, Span, Word, weighed, word_spans
from cirf.progress import SILENT, Progress
from cirf.recipe import schema
from cirf.text.numerals import only_word_value

_EDGES = re.compile(r"^[\W_]+|[\W_]+$")
_POSSESSIVE = re.compile(r"'s?$")
_SIGNS = re.compile(r"[+*/^%×÷·⋅<>=≤≥≠≈√()\[\]{}|,.;:-]+")
_CALCULATES = re.compile(r"[*/^%()\[\]{}|-]")
_INSIDE = re.compile(r"[0-9)][*/^-][(0-9]")
_WORKING = frozenset(("plus", "minus", "times", "divided", "multiplied", "subtracted"))
_OPTION = re.compile(r"[(\[]?[A-Z][.):\]]+")
_STOPS = (".", "!", "?", ":", ";")


class Rules:
    """Scores words by rules: the whole part is the level, the fraction the word's TF-IDF within it. The rationales scored in one
    call are the corpus: the same rationale may be weighted differently with others."""

    def score(self, texts: Sequence[Solution], progress: Progress = SILENT) -> list[list[Word]]:
        spans = [word_spans(text.rationale) for text in texts]
        terms = [[_bare(text.rationale[start:end]) for start, end in found] for text, found in zip(texts, spans, strict=True)]
        holding = Counter(term for row in terms for term in set(row))
        rarity = {term: 1 + math.log((1 + len(texts)) / (1 + count)) for term, count in holding.items()}
        return [_weigh(text, found, row, rarity) for text, found, row in zip(texts, spans, terms, strict=True)]


def _weigh(text: Solution, spans: Sequence[Span], terms: Sequence[str], rarity: dict[str, float]) -> list[Word]:
    counts = Counter(terms)
    summary = [counts[term] / len(terms) * rarity[term] for term in terms]
    levels = _levels(text, spans, terms)
    values = [level + (value / (1 + value) if level < 3 else 0.0) for level, value in zip(levels, summary, strict=True)]
    return weighed(text.rationale, spans, values)


def _levels(text: Solution, spans: Sequence[Span], terms: Sequence[str]) -> list[int]:
    words = [text.rationale[start:end] for start, end in spans]
    opening = [index == 0 or _opens(text.rationale, spans, index) for index in range(len(spans))]
    numbers = [_is_number(word) for word in words]
    working = [_is_operator(words, index, opening[index]) for index in range(len(words))]
    answers = _answers(text.answer)
    names = _names(text.question) | _names(text.rationale)
    levels = []
    for index, term in enumerate(terms):
        near = (index > 0 and working[index - 1]) or (index + 1 < len(words) and working[index + 1])
        after_number = index > 0 and numbers[index - 1] and not opening[index]
        if (
            term in answers
            or _EDGES.sub("", words[index]) in answers
            or (numbers[index] and index > 0 and words[index - 1].endswith(("=", "≈")))
        ):
            levels.append(5)
        elif working[index] or (numbers[index] and (near or _INSIDE.search(words[index]))):
            levels.append(4)
        elif numbers[index]:
            levels.append(3)
        elif term in NEGATIONS or term.endswith("n't"):
            levels.append(2)
        elif term in FUNCTION_WORDS or term == "":
            levels.append(0)
        else:
            levels.append(2 if after_number or term in names or _OPTION.fullmatch(words[index]) else 1)
    return levels


def _answers(text: str) -> set[str]:
    """The words of an answer: as terms, but a lone letter unchanged (option ``A`` is no article)."""
    found = {word if len(word) == 1 else _bare(word) for word in (_EDGES.sub("", part) for part in text.split())} - {""}
    return found - FUNCTION_WORDS if len(found) > 1 else found


def _bare(word: str) -> str:
    """A word in the form for comparison: lower case, without the punctuation around it and a possessive's ending."""
    word = _EDGES.sub("", word).replace("’", "'").casefold()
    return word if word in FUNCTION_WORDS else _POSSESSIVE.sub("", word)


def _is_number(word: str) -> bool:
    return any(sign.isnumeric() for sign in word) or only_word_value(word) is not None


def _is_operator(words: Sequence[str], place: int, opening: bool) -> bool:
    """Whether a word calculates: ``=``, ``a+b``, ``times``, LaTeX. A dash or star that opens a line is a bullet."""
    word = words[place]
    if any(unicodedata.category(sign) == "Sm" for sign in word) or "\\" in word or word.casefold() in _WORKING:
        return True
    if word == "x":
        return 0 < place < len(words) - 1 and _is_number(words[place - 1]) and _is_number(words[place + 1])
    return _SIGNS.fullmatch(word) is not None and _CALCULATES.search(word) is not None and not (opening and word in "-*")


def _opens(text: str, spans: Sequence[Span], place: int) -> bool:
    """Whether a word that is not the first opens a sentence or a line."""
    before, gap = text[slice(*spans[place - 1])], text[spans[place - 1][1] : spans[place][0]]
    return "\n" in gap or before.rstrip("\"'”’)]*").endswith(_STOPS)


def _names(text: str) -> set[str]:
    """The words that a text capitalises where no sentence begins."""
    spans = word_spans(text)
    found = set()
    for index, (start, end) in enumerate(spans):
        word = _EDGES.sub("", text[start:end])
        if word[:1].isupper() and (word[1:2].isupper() or (index > 0 and not _opens(text, spans, index))):
            found.add(_bare(word))
    return found - FUNCTION_WORDS


def _listed(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTION_WORDS = _listed(
    """
    a an the this that these those there here such same other another some any
    i me my mine we us our ours you your yours he him his she her hers it its they them their theirs
    myself ourselves yourself himself herself itself themselves who whom whose which what where when while why how
    am is are was were be been being do does did doing done have has had having
    will would shall should can could may might must let lets let's
    and or but so then thus hence therefore because since as if though although however also too again
    of to in on at by for from with into onto upon about over under between among through during before after
    just very quite rather really simply already still yet even now next first finally
    i'm we're you're they're he's she's it's that's there's i've we've you've they've
    i'd we'd you'd he'd she'd they'd i'll we'll you'll he'll she'll they'll it'll
    """
)

NEGATIONS = _listed("no not never none nothing nobody nowhere neither nor cannot without unless except hardly false")
"""Besides words ending in ``n't``."""


class RandomScorer:
    """Scores words by numbers drawn from [0, 1), by the seed, the question and the rationale alone."""

    def __init__(self, seed: int = 0) -> None:
        """``seed``: another one, another draw."""
        self._seed = seed

    def score(self, texts: Sequence[Solution], progress: Progress = SILENT) -> list[list[Word]]:
        return [self._weigh(text) for text in texts]

    def _weigh(self, text: Solution) -> list[Word]:
        draw = random.Random(f"{self._seed}\0{text.question}\0{text.rationale}")
        spans = word_spans(text.rationale)
        return weighed(text.rationale, spans, [draw.random() for _ in spans])


def make_scorer(name: str, section: schema.Backbone, source: str | Path | None = None, seed: int = 0) -> Scorer:
    """The scorer ``rules``, ``random`` (by the ``seed``) or ``llmlingua2``.

    The last is a classifier: of ``source`` (a folder or a hub id; ``None``: the large published one), with the device, threads
    and number format of ``section``. ``CirfError``: no such model.
    """
    if name == "rules":
        return Rules()
    if name == "random":
        return RandomScorer(seed)
    from cirf.lm.backbone import load_tokenizer
    from cirf.methods.token_skip.llmlingua2 import LARGE, LlmLingua2, load_classifier

    source, section = source or LARGE, section.model_copy(update={"revision": None, "trust_remote_code": False})
    return LlmLingua2(load_classifier(source, section), load_tokenizer(source, section))
