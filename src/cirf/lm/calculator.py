"""A calculator while a model writes: what stands behind ``16*7=`` is worked out, and the model cannot write another number.

A small model knows which numbers to take and what to do with them more often than what comes of it. Where its text ends with a
calculation and an equals sign and it goes on with a number, tokens that make another number than the value lose their logits
(Cobbe et al. 2021, arXiv 2110.14168, had a calculator write it). Whether there is to be a number is left to the model, and so is
how it is written: ``1200``, ``1,200``, ``1200.00``; so is a value that is negative or has more than four decimal places.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Sequence
from typing import Any

import torch

from cirf.rationales.working import closing
from cirf.tasks.numerals import number_text

_SEEN = 64  # tokens that are looked back on
_OPEN = re.compile(r"=\s{0,2}(?:[$£€]\s?)?(\d[\d.,]*)?\Z")
_MAY_OPEN = re.compile(r"[=\d.,\s$£€]\Z")
_VALUE = re.compile(r"\d+(?:\.\d{1,4})?")
_FIGURES = re.compile(r"([Ġ▁]?)([0-9]+)")
_SIGNS = frozenset(("", *"-+*/×÷−"))  # or a blank, of a sign behind it
_SHORT = 4  # characters of a sign in a vocabulary, in which one beyond ASCII is spelt by its bytes
_MARK = "\0\n"  # stands for a special or functional token


class Calculator:
    """A logits processor in the sense of ``transformers``, for one batch: what is behind the first prompt that it sees is the
    model's own."""

    def __init__(self, tokenizer: Any) -> None:
        """Of any tokenizer whose digits are tokens, alone or several to a token. It looks through the vocabulary: for further
        batches take `fresh` ones."""
        self._tokenizer = tokenizer
        self._marks = set(tokenizer.added_tokens_decoder)
        self._pieces: dict[int, str] = {}
        words = {word: token for word, token in tokenizer.get_vocab().items() if token not in self._marks}
        found = ((_FIGURES.fullmatch(word), token) for word, token in words.items())
        self._figures = {token: (match[1], match[2]) for match, token in found if match}
        self._points = {words[sign]: sign for sign in ".," if sign in words}
        short = [token for word, token in words.items() if (len(word) <= _SHORT and not word.isascii()) or word in _SIGNS]
        self._signs = {token for token in short if self._piece(token).lstrip(" ") in _SIGNS}
        self._width: int | None = None

    def fresh(self) -> Calculator:
        """One for another batch."""
        made = copy.copy(self)
        made._width = None
        return made

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``scores`` [rows x vocabulary] with minus infinity for what would be a wrong number; ``input_ids`` [rows x so far]."""
        if self._width is None:
            self._width = input_ids.shape[1]
        changed = scores
        for row, own in enumerate(input_ids[:, self._width :][:, -_SEEN:].tolist()):
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
        """What is written behind ``own``'s last equals sign, and the numbers that may stand there, the value itself first;
        ``None`` where there is no calculation, or none of them is gone on with."""
        if not own or not _MAY_OPEN.search(self._piece(own[-1])):
            return None
        text = "".join(map(self._piece, own))
        begun = _OPEN.search(text)
        before, newline, line = text[: begun.start() if begun else 0].rpartition("\n")
        exact = [number_text(value) for value in closing(line)]
        if begun is None or not exact or not _VALUE.fullmatch(exact[0]):
            return None
        chains = [] if (before + newline).endswith(_MARK) else exact[1:]  # no result of a functional token is one
        written, exact = begun[1] or "", [exact[0], *filter(_VALUE.fullmatch, chains)]
        return (written, exact) if any(fits(written, one) for one in exact) else None

    def _next(self, written: str, exact: Sequence[str], liked: int) -> tuple[list[int], list[int]]:
        """The tokens that may not come next, or, where there are any, the only ones that may; ``liked`` is the likeliest one.

        The value itself goes before what a chain begins with, unless it is a chain that the model likes to go on with. Behind
        the number that a chain begins with there is a sign.
        """
        if _ended(written, exact[0]) or (not written and liked not in self._figures):
            return self._wrong(written, exact), []
        allowed = {one: self._right(written, one, liked) for one in exact if fits(written, one)}
        for one in exact[1:]:
            if one in allowed and _ended(written, one):
                allowed[one] |= self._signs
        if exact[0] in allowed and not any(liked in tokens for tokens in allowed.values()):
            allowed = {exact[0]: allowed[exact[0]]}
        return [], sorted(set().union(*allowed.values()))

    def _right(self, written: str, exact: str, liked: int) -> set[int]:
        """Tokens that begin a number, behind a blank as the ``liked`` one or without, or go on with a part of one."""
        blank = "" if written else self._figures[liked][0]
        able = {token: begun for token, (begun, digits) in self._figures.items() if fits(written + digits, exact)}
        right = {token for token, begun in able.items() if begun == blank}
        right = right or {token for token, begun in able.items() if not begun}
        return right | {token for token, sign in self._points.items() if written and fits(written + sign, exact)}

    def _wrong(self, written: str, exact: Sequence[str]) -> list[int]:
        """Tokens of digits that make a number which may not stand there."""
        return [
            token
            for token, (blank, digits) in self._figures.items()
            if not (blank and written) and not any(fits(written + digits, one) for one in exact)
        ]

    def _piece(self, token: int) -> str:
        """Its text, a special or functional token as `_MARK`."""
        if token not in self._pieces:
            own = token in self._marks
            self._pieces[token] = _MARK if own else self._tokenizer.decode([token], clean_up_tokenization_spaces=False)
        return self._pieces[token]


def fits(written: str, exact: str) -> bool:
    """Whether a way of writing a number may begin so: with commas between thousands, with zeros behind its last decimal place.

    ``exact`` is as `number_text` has it, and neither negative nor a fraction.
    """
    before, point, behind = written.partition(".")
    whole, _, decimals = exact.partition(".")
    way = f"{int(whole):,}" if "," in before else whole
    if point:
        return before == way and (decimals + "0" * (len(behind) + 1)).startswith(behind) and "," not in behind
    return way.startswith(before)


def _ended(written: str, exact: str) -> bool:
    """Whether ``written``, which fits, may end here: all of the value is there."""
    before, _, behind = written.partition(".")
    whole, _, decimals = exact.partition(".")
    return before.replace(",", "") == whole and behind.startswith(decimals)
