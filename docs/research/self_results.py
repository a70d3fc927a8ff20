"""A control for self-training, as a method outside the package: the rows of `cirf_self` without functional tokens.

From a right trace ``<cirf_016>48<cirf_023>72</cirf>72`` that `cirf_full` sampled, the model learns what `terse_equations` with
``form: results`` learns from a rationale::

    48
    72
    #### 72

Questions, results and answers are those of the recipe's `cirf_self`, so only the functional tokens differ. In a recipe:
``variants: {self_results: {method: docs/research/self_results.py}}``.
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
    """The results of sampled right traces, a line each, then the answer."""

    name = "self_results"
    summary = "the results of the traces that cirf_self learns, without functional tokens, then the answer"
    trained = True
    results = True

    def __init__(self, recipe: Recipe, settings: Any = None) -> None:
        """Use the samples of `cirf_self` with the recipe's settings for it. ``CirfError`` if `cirf_self` rejects them."""
        super().__init__(recipe, settings)
        self._writer = get(CirfSelf.name, recipe)

    def needs(self) -> tuple[str, ...]:
        """The method that is sampled."""
        return self._writer.needs()

    def prepares(self) -> bool:
        """Samples are drawn and judged in a stage of their own."""
        return self._writer.prepares()

    def prepared_by(self, recipe: Recipe) -> dict[str, Any]:
        """The parts of the recipe that the samples depend on, including settings of `cirf_self`."""
        chosen = self._writer.settings.model_dump(exclude=set(TraceSettings.model_fields), exclude_defaults=True)
        return dict(self._writer.prepared_by(recipe)) | ({CirfSelf.name: chosen} if chosen else {})

    def prepare(self, material: PreparationData) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The rows of `cirf_self`."""
        return self._writer.prepare(material)

    def target(self, example: Example) -> str:
        """The results of the chosen sample, or of the rationale if no sample was right, a line each; then the answer."""
        own = (example.prepared or {}).get("results")
        lines = example.trace.results if own is None else own
        return prose_target([line for line in lines if line], example.problem.answer)


METHOD = SelfResults
