"""A control of the order of a trace, as a method of one's own: each step's functional token stands behind its result.

So no token says what is to be done next; it can only name what was done. Of a trace ``<cirf_016>48<cirf_023>72</cirf>72``
it learns::

    48<cirf_016>72<cirf_023></cirf>72

Named in a recipe: ``variants: {result_first: {method: docs/research/result_first.py}}``. Analyses that read a trace step by step
take a result for that of the token before it, so they do not hold for this one.
"""

from __future__ import annotations

from cirf.errors import CirfError
from cirf.lm.vocabulary import parse_trace, token_names
from cirf.methods.cirf.cirf import CirfFull, formed
from cirf.recipe.schema import Recipe
from cirf.records import Example


class ResultFirst(CirfFull):
    """Results with their functional tokens behind them, then the answer."""

    name = "result_first"
    summary = "each step's result, its functional token behind it, then the answer"

    def check(self, recipe: Recipe) -> None:
        """``CirfError`` for settings that go by a token before each result."""
        super().check(recipe)
        if formed(self.settings) or self.settings.subjects:
            raise CirfError(f"variants.{self.name}.settings: only codes, start and calculator hold where results come first")
        if recipe.evaluate.probes.names:
            raise CirfError("evaluate.probes: they take a result for that of the token before it; remove them")

    def target(self, example: Example) -> str:
        """The trace as `cirf_full` has it, every result one place ahead."""
        names = token_names(self._size, self._delimiters)
        written = super().target(example)
        inner, end, answer = written.removeprefix(names.start).partition(names.end)
        moved = "".join(result + names.codes[code] for code, result in parse_trace(inner) if code is not None)
        return ("" if self._opened else names.start) + moved + end + answer


METHOD = ResultFirst
