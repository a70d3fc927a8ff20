"""A control of self-training, as a method of one's own: the rows of `cirf_self` without their functional tokens.

Of a right trace ``<cirf_016>48<cirf_023>72</cirf>72`` that a `cirf_full` wrote itself it learns, as `terse_equations` with
``form: results`` does of a trace that was made from a rationale::

    48
    72
    #### 72

The same questions, results and answers as the recipe's `cirf_self`: right results that were written, and chosen, with functional
tokens and are learned without. Named in a recipe: ``variants: {self_results: {method: docs/research/self_results.py}}``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cirf.methods import get
from cirf.methods.cirf.cirf import TraceSettings
from cirf.methods.cirf.self_training import CirfSelf
from cirf.methods.prose.cot import Prose, prose_target

if TYPE_CHECKING:
    from cirf.methods.base import PreparationData
    from cirf.recipe.schema import Recipe
    from cirf.records import Example


class SelfResults(Prose):
    """Results of right traces that a model of functional tokens wrote, a line each, then the answer."""

    name = "self_results"
    summary = "the results of the traces that cirf_self learns, without functional tokens, then the answer"
    trained = True
    results = True

    def __init__(self, recipe: Recipe, settings: Any = None) -> None:
        """Its samples are those of `cirf_self`, by the settings that the recipe has for it. ``CirfError`` where `cirf_self` would
        not take them."""
        super().__init__(recipe, settings)
        self._writer = get(CirfSelf.name, recipe)

    def needs(self) -> tuple[str, ...]:
        """The method that is sampled."""
        return self._writer.needs()

    def prepares(self) -> bool:
        """Samples are drawn and judged in a stage of their own."""
        return self._writer.prepares()

    def prepared_by(self, recipe: Recipe) -> dict[str, Any]:
        """What of the recipe decides the samples, settings of `cirf_self` among it."""
        chosen = self._writer.settings.model_dump(exclude=set(TraceSettings.model_fields), exclude_defaults=True)
        return dict(self._writer.prepared_by(recipe)) | ({CirfSelf.name: chosen} if chosen else {})

    def prepare(self, material: PreparationData) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The rows of `cirf_self`."""
        return self._writer.prepare(material)

    def target(self, example: Example) -> str:
        """A line a result of the trace that was kept, or of the rationale's where no sample was right; then the answer line."""
        own = (example.prepared or {}).get("results")
        lines = example.trace.results if own is None else own
        return prose_target([line for line in lines if line], example.problem.answer)


METHOD = SelfResults
