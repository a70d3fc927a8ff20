"""Guesses at the next tokens of short reasoning, from answers seen before, the question's numbers and arithmetic.

What comes behind ``<cirf_016>48/`` is hard to know for a table of tokens and easy for one in which every number counts as the
same: behind ``<cirf_016> N /`` there is a number. Which one is guessed from where numbers came from before (the last that was
written, the first of the question's that was not used, ...), and what stands behind an equals sign is worked out::

    question: ... 48 clips, half of them ...     written: <cirf> <cirf_016> 48 /
    learnt: behind "N /" comes a number, mostly the question's next        guess: 2, then "=", then 48/2: 2 4
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from cirf.lm.prompt import encode
from cirf.rationales.working import worth
from cirf.tasks.numerals import number_text

ORDER = 6
"""Most tokens, a number counting as one, that a guess looks back on."""

MOST = 50_000
"""Tokens of answers to learn from; what comes after them is not."""

_PLACES = 3  # tokens that the guess where a number comes from looks back on
_RARE = 3  # a context seen less often is no better than a shorter one
_FIGURE, _START = -1, -2  # stand for any number, and for the beginning of an answer
_LINE = 80  # characters of a line that may hold a calculation
_SEEN = 512  # tokens of an answer, or of a prompt, that are read at all

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_DIGITS = re.compile(r"\d[\d.]*")
_OPEN = re.compile(r"\d[\d.]*\Z")
_EQUALS = re.compile(r"=\s?(\d[\d.]*)?\Z")


class Drafts:
    """Learns from answers and guesses at others. Any tokens may be given; what it cannot read it does not guess at."""

    def __init__(self, tokenizer: Any) -> None:
        """Nothing is learnt yet: sums and the question's numbers are all it has."""
        self._tokenizer = tokenizer
        self._marks = set(tokenizer.added_tokens_decoder)
        self._pieces: dict[int, str] = {}
        self._after: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        self._sources: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        self._ends: set[int] = set()
        self._learnt = 0

    def learn(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Learn from one answer to a prompt, its end token included."""
        whole, answer = answer, answer[: min(_SEEN, MOST - self._learnt)]
        self._learnt += len(answer)
        if len(answer) == len(whole):
            self._ends.update(whole[-1:])
        asked = self._asked(prompt)
        terms = [_START]
        for place, token in enumerate(answer):
            figure = self._is_figure(token)
            if figure and terms[-1] == _FIGURE:
                continue
            for length in range(min(ORDER, len(terms)) + 1):
                self._after[tuple(terms[len(terms) - length :])][_FIGURE if figure else token] += 1
            if figure:
                self._learn_source(asked, answer, place, terms)
            terms.append(_FIGURE if figure else token)

    def guess(self, prompt: Sequence[int], written: Sequence[int], count: int) -> list[int]:
        """Up to ``count`` tokens that may come behind ``written``, the answer so far to ``prompt``; none where none is likely."""
        asked, made = self._asked(prompt), list(written[-_SEEN:])
        before = len(made)
        while len(made) < before + count and (token := self._next(asked, made)) is not None:
            made.append(token)
        return made[before:]

    def _next(self, asked: Sequence[str], written: Sequence[int]) -> int | None:
        if written and written[-1] in self._ends:
            return None
        text = self._text(written)
        open_number = _OPEN.search(text)
        sum_of = _EQUALS.search(text)
        value = _worked_out(text[: sum_of.start()]) if sum_of else None
        if value is not None and sum_of:
            return self._within(value, sum_of[1] or "", written)
        if open_number:
            begun = open_number[0]
            before = self._before(written)
            known = [
                self._likely(asked, text[: open_number.start()], before),
                *reversed([*asked, *_numbers(text[: -len(begun)])]),
            ]
            whole = next((one for one in known if one is not None and one.startswith(begun)), begun)
            return self._within(whole, begun, written)
        token = self._token(self._terms(written))
        if token != _FIGURE:
            return token
        likely = self._likely(asked, text, self._terms(written))
        return None if likely is None else self._within(likely, "", written)

    def _within(self, number: str, begun: str, written: Sequence[int]) -> int | None:
        """The next token of a number of which ``begun`` is written; behind it, what is no number."""
        if number.startswith(begun) and number != begun:
            return encode(self._tokenizer, number[len(begun) :])[0]
        token = self._token(self._terms(written))
        return None if token == _FIGURE else token

    def _token(self, terms: Sequence[int]) -> int | None:
        """What came most often behind the longest part of ``terms`` that was seen more than now and then."""
        for length in range(min(ORDER, len(terms)), -1, -1):
            seen = self._after.get(tuple(terms[len(terms) - length :]))
            if seen and (length <= 2 or seen.total() >= _RARE):
                return seen.most_common(1)[0][0]
        return None

    def _likely(self, asked: Sequence[str], text: str, terms: Sequence[int]) -> str | None:
        """The number that may begin behind ``text``."""
        from_where = _sources(asked, _numbers(text))
        for length in range(min(_PLACES, len(terms)), -1, -1):
            seen = self._sources.get(tuple(terms[len(terms) - length :]))
            if seen and (length == 0 or seen.total() >= _RARE):
                ranked = (from_where[source] for source, _ in seen.most_common())
                return next((number for number in ranked if number is not None), None)
        return next((number for number in from_where if number is not None), None)

    def _learn_source(self, asked: Sequence[str], answer: Sequence[int], place: int, terms: Sequence[int]) -> None:
        text = self._text(answer[:place])
        found = _DIGITS.match(self._text(answer[place : place + 24]))
        sum_of = _EQUALS.search(text)
        if found is None or (sum_of and _worked_out(text[: sum_of.start()]) is not None):
            return
        for source, number in enumerate(_sources(asked, _numbers(text))):
            if number == found[0].rstrip("."):
                for length in range(min(_PLACES, len(terms)) + 1):
                    self._sources[tuple(terms[len(terms) - length :])][source] += 1

    def _terms(self, tokens: Sequence[int]) -> list[int]:
        """The last tokens, a run of digits as one."""
        terms: list[int] = []
        for token in reversed(tokens):
            figure = self._is_figure(token)
            if not (figure and terms and terms[-1] == _FIGURE):
                if len(terms) == ORDER:
                    return terms[::-1]
                terms.append(_FIGURE if figure else token)
        return [_START, *reversed(terms)]

    def _before(self, written: Sequence[int]) -> list[int]:
        """The terms before the number that is being written."""
        end = len(written)
        while end and self._is_figure(written[end - 1]):
            end -= 1
        return self._terms(written[:end])

    def _is_figure(self, token: int) -> bool:
        return token not in self._marks and _DIGITS.fullmatch(self._piece(token).replace(".", "0")) is not None

    def _asked(self, prompt: Sequence[int]) -> list[str]:
        """The numbers of the last part of a prompt, between special tokens, that has any."""
        return next((found for part in self._parts(prompt[-_SEEN:]) if (found := _numbers(part))), [])

    def _parts(self, prompt: Sequence[int]) -> Iterator[str]:
        end = len(prompt)
        for place in range(end - 1, -2, -1):
            if place < 0 or prompt[place] in self._marks:
                yield self._text(prompt[place + 1 : end])
                end = place

    def _text(self, tokens: Sequence[int]) -> str:
        """Their text, every special or functional token as the end of a line."""
        return "".join(self._piece(token) for token in tokens)

    def _piece(self, token: int) -> str:
        if token not in self._pieces:
            own = token in self._marks
            self._pieces[token] = "\n" if own else self._tokenizer.decode([token], clean_up_tokenization_spaces=False)
        return self._pieces[token]


def _numbers(text: str) -> list[str]:
    return [found.replace(",", "") for found in _NUMBER.findall(text)]


def _sources(asked: Sequence[str], used: Sequence[str]) -> list[str | None]:
    """Where the next number may come from, given the question's and those ``used`` so far: the last used, the first not used,
    the one asked behind the furthest used, the last asked, the first asked, the last not used, the one used before the last,
    the one before that, the second not used."""
    left = [number for number in asked if number not in used]
    furthest = max((place for place, number in enumerate(asked) if number in used), default=-1)
    behind = asked[furthest + 1 :]
    places = ((used, -1), (left, 0), (behind, 0), (asked, -1), (asked, 0), (left, -1), (used, -2), (used, -3), (left, 1))
    return [among[place] if -len(among) <= place < len(among) else None for among, place in places]


def _worked_out(text: str) -> str | None:
    """What the calculation at the end of a text comes to, as it is written; ``None`` where there is none."""
    value = worth(text.rpartition("\n")[2][-_LINE:])
    if value is None:
        return None
    written = number_text(value)
    return written if _NUMBER.fullmatch(written) else None
