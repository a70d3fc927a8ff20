"""A control for the order of a trace, as a method outside the package: each functional token comes after its result.

A token can then only name the step that was done, not announce the next one. Instead of ``<cirf_016>48<cirf_023>72</cirf>72`` the
model learns::

    48<cirf_016>72<cirf_023></cirf>72

In a recipe: ``variants: {result_first: {method: docs/research/result_first.py}}``. Analyses that read a trace step by step assign
a result to the token before it, so they do not apply to this method.
"""

from __future__ import annotations

from cirf.errors import CirfError
from cirf.lm.vocabulary import parse_trace
from cirf.methods.cirf.cirf import CirfFull, formed
from cirf.recipe.schema import Recipe
from cirf.records import Example


class ResultFirst(CirfFull):
    """Results, each followed by its functional token, then the answer."""

    name = "result_first"
    summary = "each step's result, followed by its functional token, then the answer"

    def check(self, recipe: Recipe) -> None:
        """``CirfError`` for settings that need a token before each result."""
        super().check(recipe)
        if formed(self.settings) or self.settings.subjects:
            raise CirfError(f"variants.{self.name}.settings: only codes, start and calculator work where results come first")
        if recipe.evaluate.probes.names:
            raise CirfError("evaluate.probes: they assign a result to the token before it; remove them")

    def target(self, example: Example) -> str:
        """The trace of `cirf_full` with every result moved before its token."""
        names = self._names
        written = super().target(example)
        inner, end, answer = written.removeprefix(names.start).partition(names.end)
        moved = "".join(result + names.codes[code] for code, result in parse_trace(inner) if code is not None)
        return ("" if self._opened else names.start) + moved + end + answer


METHOD = ResultFirst
