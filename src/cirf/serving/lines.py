"""An answer as lines for people, all at once or as it is written; in the end they are the same.

Of a model of functional tokens each stands on a line with its label and result as soon as the result is complete, then the answer
as it comes; of one that writes prose the text, and the answer on a line of its own::

      <cirf_016>   divides                      48
      <cirf_023>   adds                         72
    72
"""

from __future__ import annotations

from cirf.analysis.functions import steps_of
from cirf.serving.model import Served
from cirf.serving.reading import HALF, Telling, without_beginning


class Lines:
    """What was shown of one answer of a model."""

    def __init__(self, served: Served) -> None:
        self._served, self._telling = served, Telling(served.names, served.opened)
        self._shown = ""

    def more(self, text: str, over: bool, cut: bool = False) -> str:
        """What is to be shown next of ``text``, the whole text so far; all that is left when it is ``over``, by its end or
        ``cut`` off by a cap."""
        lines = self._trace(text, over, cut) if self._served.names else self._prose(text, over)
        new = lines[len(self._shown) :]
        self._shown = lines
        return new

    def _trace(self, text: str, over: bool, cut: bool) -> str:
        self._telling.more(text, over, cut)
        steps = steps_of(self._telling.reasoning, self._served.functions)
        if not self._telling.closed:
            steps = steps[:-1]  # the result of the last one may grow
        lines = "".join(f"  {step['token'] or '(text)':12} {step['label']:28} {step['result']}\n" for step in steps)
        return lines + self._telling.content + ("\n" if over else "")

    def _prose(self, text: str, over: bool) -> str:
        from cirf.methods.cot import ANSWER_MARK

        if over:
            read = self._served.read(text)
            return "".join(f"{part}\n" for part in ([read.reasoning] if read.reasoning else []) + [read.answer])
        # What follows a mark is held back: it is prose, too, if another mark comes.
        text = text.rstrip(HALF)
        prose, mark, _ = text.rpartition(ANSWER_MARK)
        return (prose if mark else without_beginning(text, ANSWER_MARK)).strip()
