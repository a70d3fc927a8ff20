"""A control of the order of a trace, as a method of one's own: each step's functional token stands behind its result.

So no token says what is to be done next; it can only name what was done. Of a trace ``<cirf><cirf_016>48<cirf_023>72</cirf>72``
it learns::

    <cirf>48<cirf_016>72<cirf_023></cirf>72

Named in a recipe: ``variants: {result_first: {method: benchmarks/result_first.py}}``. Analyses that read a trace step by step
take a result for that of the token before it, so they do not hold for this one.
"""

from __future__ import annotations

from dataclasses import replace

from cirf.errors import CirfError
from cirf.lm.vocabulary import token_names, write_trace
from cirf.methods.cirf import CirfFull, formed
from cirf.recipe import Recipe
from cirf.records import Example


class ResultFirst(CirfFull):
    """Results with their functional tokens behind them, then the answer."""

    name = "result_first"
    summary = "each step's result, its functional token behind it, then the answer"

    def check(self, recipe: Recipe) -> None:
        """``CirfError`` for settings that go by a token before each result."""
        super().check(recipe)
        if formed(self.settings) or getattr(self.settings, "subjects", False):
            raise CirfError(f"variants.{self.name}.settings: only codes, start and calculator hold where results come first")
        if recipe.evaluate.probes.names:
            raise CirfError("evaluate.probes: they take a result for that of the token before it; remove them")

    def target(self, example: Example) -> str:
        """The trace as `cirf_full` has it, every result one place ahead."""
        trace, names = example.trace, token_names(self._size, self._delimiters)
        if not trace.results:
            return write_trace(trace, names)
        first, *later = trace.results
        # what is written as an answer is kept free of the tokens' names, as results are
        ahead = write_trace(replace(trace, codes=(), results=(), answer=first), names).removeprefix(names.start + names.end)
        behind = write_trace(replace(trace, results=(*later, "")), names).removeprefix(names.start)
        return names.start + ahead + behind


METHOD = ResultFirst
