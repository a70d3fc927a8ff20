"""A calculator while a model writes: after ``16*7=`` it can write only the value.

A small model chooses numbers and operations right more often than the result. Where its text ends with a calculation and an
equals sign and a number comes next, tokens that lead to another number than the value are masked (Cobbe et al. 2021, arXiv
2110.14168, had a calculator write it). Whether a number comes next is left to the model (to its likeliest token, also when it is
sampled), and so is how it is written: ``1200``, ``1,200``, ``1200.00``. In prose it may write the calculation again, as chains
do: ``4*125-2 = 500-2 = 498``. Ambiguous calculations (`cirf.rationales.calculation`) and values that are negative or have more
than two decimal places are left to the model.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Sequence
from typing import Any

import torch

from cirf.rationales.calculation import closing
from cirf.text.numerals import number_text

_SEEN = 160  # tokens of a line: a longer one is not read
_OPEN = re.compile(r"=(?:\s|\*|\\?[$£€¥₹]|\\boxed\{){0,6}(\d[\d.,]*)?\Z")
_MAY_OPEN = re.compile(r"[=\d.,\s*$£€¥₹{]\Z")
_VALUE = re.compile(r"\d+(?:\.\d{1,2})?")  # of more places people write some
_FIGURES = re.compile(r"([Ġ▁]?)([0-9]+)")


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
