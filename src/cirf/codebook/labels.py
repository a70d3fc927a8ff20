"""A readable name for every code, derived by rule from its segments, offline.

A code whose segments read ``4 bananas * $1 = $4`` and ``3 statues * 2 = 6 statues`` becomes ``multiplies``; one whose
segments read ``Sager does not flip the coin`` becomes ``not flip``. A name is a reading aid: the segments are the truth.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

UNUSED = "unused"
"""The label of a code without segments."""

MIXED = "mixed"
"""The label of a code whose segments have no distinctive word."""

_OPERATIONS = {"+": "adds", "-": "subtracts", "*": "multiplies", "/": "divides"}
_SAME = str.maketrans("\N{MULTIPLICATION SIGN}\N{MIDDLE DOT}\N{DIVISION SIGN}\N{MINUS SIGN}\N{EN DASH}", "**/--")
_NUMBER = r"[$€£]?\d[\d,]*(?:\.\d+)?%?"
_OPERATOR = re.compile(rf"(?<![\w.]){_NUMBER}(?:\s*\(?[A-Za-z%$]+\)?){{0,3}}\s*(\*|/|\+|(?<!\w)-)\s*(?={_NUMBER})")
_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_FUNCTION_WORDS = """
a an the this that these those it its they them their he she his her him we us our you your i me my of in on at to for from by
with as is are was were be been being am do does did has have had will would can could should may might must and or but so if
then than there here which who whom whose what when where while whether also just very each any some such into out over up
down about because since per step steps
"""
_STOP = frozenset(_FUNCTION_WORDS.split())
_MAJORITY = 0.5
_LEAST = 0.25

Features = tuple[Mapping[str, int], frozenset[str]]


def label_codes(segments_by_code: Mapping[int, Sequence[str]]) -> dict[int, str]:
    """A name of one to three words for every code.

    An operation (``adds``, ``subtracts``, ``multiplies``, ``divides``) comes first where more than half of the
    segments compute with it, two if each occurs in more than half; then the words that best distinguish the code's segments from
    those of all other codes. Names that would be equal are lengthened while three words allow; they may still be equal, as two
    codes may do the same thing. Same segments, same names.
    """
    bags = {code: [_features(segment) for segment in segments] for code, segments in segments_by_code.items()}
    total = Counter[str]()
    for segments in bags.values():
        for held, _ in segments:
            total.update(held.keys())
    count = sum(len(segments) for segments in bags.values())
    ranked = {code: _ranked(bags[code], total, count) for code in sorted(bags)}
    short = {code: _name(signs, words, 2) for code, (words, signs) in ranked.items()}
    taken = Counter(short.values())
    labels = {}
    for code, (words, signs) in ranked.items():
        label = _name(signs, words, 3) if taken[short[code]] > 1 else short[code]
        labels[code] = label if bags[code] else UNUSED
    return labels


def _name(signs: Sequence[str], words: Mapping[str, float], size: int) -> str:
    """Operations, then as many of the best words as fit ``size`` words, in the order in which segments hold them."""
    room, chosen = size - len(signs), []
    for word in words:
        if len(word.split()) <= room:
            chosen.append(word)
            room -= len(word.split())
    return " ".join([*signs, *sorted(chosen, key=lambda word: (words[word], word))]) or MIXED


def operations(segment: str) -> set[str]:
    """The arithmetic operations between two numbers of a segment, by name.

    A minus sign between digits that touch is a range or a date, not a subtraction, unless an equals sign follows.
    """
    text = segment.translate(_SAME).replace("\\times", "*").replace("\\div", "/")
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=[$\d])", " * ", text)
    found = set(_OPERATOR.findall(text))
    if re.search(r"\d-\d", text) and "=" in text:
        found.add("-")
    return {_OPERATIONS[sign] for sign in found}


def _features(segment: str) -> Features:
    """The words of a segment, each with its place, and its operations; ``not`` is one with the word after it."""
    words: dict[str, int] = {}
    negated = False
    for place, match in enumerate(_WORD.finditer(segment)):
        word = match.group()
        named = word[0].isupper() and not _starts_sentence(segment, match.start())
        if word.lower() == "not":
            negated = True
        elif len(word) > 1 and not named and word.lower() not in _STOP:
            words.setdefault(f"not {word.lower()}" if negated else word.lower(), place)
            negated = False
    return words, frozenset(operations(segment))


def _starts_sentence(segment: str, position: int) -> bool:
    before = segment[:position].rstrip(" \t*_\"'(")
    return not before or before[-1] in ".:!?\n"


def _ranked(bag: Sequence[Features], total: Counter[str], count: int) -> tuple[dict[str, float], list[str]]:
    """A code's distinctive words, best first, with their mean place; and the operations that most of its segments hold."""
    inside, places, signs = Counter[str](), Counter[str](), Counter[str]()
    for words, found in bag:
        inside.update(words.keys())
        places.update(words)
        signs.update(found)
    size, rest = len(bag), count - len(bag)
    scores = {}
    for word, hits in inside.items():
        share, elsewhere = hits / size, (total[word] - hits) / max(rest, 1)
        gain = share * math.log((share + 0.5 / size) / (elsewhere + 0.5 / max(rest, 1)))
        if share >= _LEAST and hits > (size > 2) and gain > 0:
            scores[word] = gain
    best = sorted(scores, key=lambda word: (-scores[word], word))
    most = sorted((sign for sign in signs if signs[sign] / size > _MAJORITY), key=lambda sign: (-signs[sign], sign))
    return {word: places[word] / inside[word] for word in best}, most[:2]
