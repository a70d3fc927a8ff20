"""A calculator while a model writes: what stands behind ``16*7=`` is worked out, and the model cannot write another number.

A small model knows which numbers to take and what to do with them more often than what comes of it. Where its text ends with a
calculation and an equals sign and it goes on with a number, tokens that make another number than the value lose their logits
(Cobbe et al. 2021, arXiv 2110.14168, had a calculator write it). Whether there is to be a number is left to the model, and so is
how it is written: ``1200``, ``1,200``, ``1200.00``; so is a value that is negative or has more than four decimal places.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from cirf.rationales.working import closing
from cirf.tasks.numerals import number_text

_SEEN = 64  # tokens that are looked back on
_OPEN = re.compile(r"=\s{0,2}(?:[$£€]\s?)?(\d[\d.,]*)?\Z")
_MAY_OPEN = re.compile(r"[=\d.,\s$£€]\Z")
_VALUE = re.compile(r"\d+(?:\.\d{1,4})?")
_FIGURES = re.compile(r"([Ġ▁]?)([0-9]+)")


class Calculator:
    """A logits processor in the sense of ``transformers``, for one batch: what is behind the first prompt that it sees is the
    model's own."""

    def __init__(self, tokenizer: Any) -> None:
        """Of any tokenizer whose digits are tokens, alone or several to a token."""
        self._tokenizer = tokenizer
        self._marks = set(tokenizer.added_tokens_decoder)
        words = tokenizer.get_vocab()
        found = ((_FIGURES.fullmatch(word), token) for word, token in words.items())
        self._figures = {token: (match[1], match[2]) for match, token in found if match and token not in self._marks}
        self._signs = {words[sign]: sign for sign in ".," if sign in words}
        self._pieces: dict[int, str] = {}
        self._width: int | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``scores`` [rows x vocabulary] with minus infinity for what would be a wrong number; ``input_ids`` [rows x so far]."""
        if self._width is None:
            self._width = input_ids.shape[1]
        changed = scores
        for row, own in enumerate(input_ids[:, self._width :][:, -_SEEN:].tolist()):
            begun = self._begun(own)
            if begun is None:
                continue
            changed = scores.clone() if changed is scores else changed
            liked = None if begun[0] else self._figures.get(int(scores[row].argmax()))  # the number that it would begin
            if _ended(*begun) or (not begun[0] and liked is None):
                changed[row, sorted(self._wrong(*begun))] = -math.inf
                continue
            right = sorted(self._right(*begun, liked[0] if liked else "")) or sorted(self._right(*begun, ""))
            if bool((scores[row, right] > -math.inf).any()):  # whatever else steers may have left none of them
                changed[row] = -math.inf
                changed[row, right] = scores[row, right]
        return changed

    def _begun(self, own: Sequence[int]) -> tuple[str, str] | None:
        """What is written behind ``own``'s last equals sign, and the value that is to stand there; ``None`` where there is no
        calculation, or it cannot be gone on with."""
        if not own or not _MAY_OPEN.search(self._piece(own[-1])):
            return None
        text = "".join(map(self._piece, own))
        begun = _OPEN.search(text)
        value = begun and closing(text[: begun.start()].rpartition("\n")[2])
        if begun is None or value is None:
            return None
        written, exact = begun[1] or "", number_text(value)
        return (written, exact) if _VALUE.fullmatch(exact) and fits(written, exact) else None

    def _right(self, written: str, exact: str, blank: str) -> Iterator[int]:
        """Tokens that begin a value, behind a blank or none, or go on with one of which only a part is written."""
        figures = {token: digits for token, (before, digits) in self._figures.items() if before == blank}
        return (token for token, sign in (figures | self._signs).items() if fits(written + sign, exact))

    def _wrong(self, written: str, exact: str) -> Iterator[int]:
        """Tokens of digits that make another number of a value that is all there, or begin another."""
        for token, (blank, digits) in self._figures.items():
            if not (blank and written) and not fits(written + digits, exact):
                yield token

    def _piece(self, token: int) -> str:
        """Its text, a special or functional token as the end of a line."""
        if token not in self._pieces:
            own = token in self._marks
            self._pieces[token] = "\n" if own else self._tokenizer.decode([token], clean_up_tokenization_spaces=False)
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
