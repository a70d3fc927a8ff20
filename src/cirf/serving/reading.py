"""Telling an answer while it is written: what of a text that grows can be said already.

Told piece by piece, trace and answer are in the end what `cirf.lm.vocabulary.read_trace` reads in the whole text::

    <cirf><cirf_016>48<cirf_0           trace: <cirf_016>48
    <cirf><cirf_016>48</cirf>7          trace: <cirf_016>48   answer: 7
    <cirf><cirf_016>48</cirf>72.        trace: <cirf_016>48   answer: 72.

Where the prompt holds the opening delimiter the span is open from the first token. Otherwise nothing is told before it opens, for
what stands before it is no part of either. The beginning of what may become a delimiter, half a character, and blanks that may be
the last are held back. Only of a trace that ends and never closes is the last result told twice: as trace, and at the end as the
answer; of one that a cap cut off it is no answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cirf.lm.vocabulary import TokenNames

HALF = "\N{REPLACEMENT CHARACTER}"
"""What stands where a character is not whole yet."""


class Telling:
    """What was told of one answer, and whether its trace is ``closed``. Without ``names`` the model writes no traces, and all of
    its text is the answer. ``opened``: the prompt ends with the opening delimiter."""

    def __init__(self, names: TokenNames | None, opened: bool = False) -> None:
        self._names, self._opened = names, opened
        self.reasoning, self.content, self.closed = "", "", False

    def more(self, text: str, over: bool, cut: bool = False) -> tuple[str, str]:
        """What is new of the trace and of the answer in ``text``, the whole text so far; all of it when it is ``over``, by its
        end or ``cut`` off by a cap."""
        reasoning, content = self._read(text if over else text.rstrip(HALF), over, cut)
        new = reasoning[len(self.reasoning) :], content[len(self.content) :]
        self.reasoning, self.content = reasoning, content
        return new

    def _read(self, text: str, over: bool, cut: bool) -> tuple[str, str]:
        if self._names is None:
            return "", text.strip()
        start, end = self._names.start, self._names.end
        if self._opened and not over and start.startswith(text):
            return "", ""  # it may be writing the delimiter again
        _, opened, inner = _opened(text, start, self._opened).partition(start)
        self.closed = over or end in inner
        if self.closed:
            return read_output(text, self._names, self._opened, cut)
        return (without_beginning(inner, end), "") if opened else ("", "")


def read_output(text: str, names: TokenNames, opened: bool, cut: bool) -> tuple[str, str]:
    """The trace and the answer of an output that is over: as `Telling` has told them, ``opened`` and ``cut`` as there."""
    from cirf.lm.vocabulary import read_trace

    whole = _opened(text, names.start, opened)
    before, begun, inner = whole.partition(names.start)
    inner = inner if begun else before
    trace, answer = read_trace(whole if names.start in text else text, names)
    if names.end in inner:
        return trace, answer
    return (inner if begun or cut else trace), "" if cut else answer


def _opened(text: str, start: str, opened: bool) -> str:
    """An output with the opening delimiter, where that stands in the prompt."""
    return start + text if opened and not text.startswith(start) else text


def without_beginning(text: str, tag: str) -> str:
    """The text without the longest beginning of a tag that it ends with."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return text[:-length]
    return text
