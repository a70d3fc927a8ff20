"""A model's answers after perturbed thoughts or functional tokens."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cirf.errors import CirfError
from cirf.methods import get
from cirf.stages import scores
from cirf.stages.context import Context
from cirf.stages.models import load_for, source_of

if TYPE_CHECKING:
    from cirf.methods.base import Method
    from cirf.recipe.schema import Recipe

Units = Literal["thoughts", "steps"]


def units_of(method: Method) -> Units | None:
    """What of a method can be perturbed: the vectors it reasons in, or the steps of its trace; ``None`` where there is neither
    between question and answer."""
    return "thoughts" if method.latents else "steps" if method.functional else None


def names_for(method: Method, recipe: Recipe) -> tuple[str, ...]:
    """The probes that a recipe asks for and that say something of a method; none where it has nothing to perturb, or a server
    answers."""
    apart = method.name in recipe.evaluate.endpoints or units_of(method) is None
    return () if apart else recipe.evaluate.probes.names


def check(recipe: Recipe) -> None:
    """``CirfError`` if probes are requested but none applies to any method of the recipe."""
    requested = recipe.evaluate.probes.names
    if requested and not any(names_for(get(name, recipe), recipe) for name in recipe.methods):
        raise CirfError(
            f"evaluate.probes: {', '.join(requested)} apply to none of {', '.join(recipe.methods)}: there are only words "
            "or pauses between question and answer, or a server answers; "
            "name a method that reasons in vectors or functional tokens"
        )


def probing(context: Context, name: str, work: Path) -> dict[str, Any]:
    """Answer every test question under every probe, greedily, in padded batches, and judge the answers. Nothing steers them: the
    form of a trace would be imposed on perturbed ones again, and a calculator would correct their numbers."""
    from cirf.evaluation.harness import Questions
    from cirf.evaluation.probes import KEEP, OfThoughts, OfTrace, Perturbable, ProbedModel, Prober, probe
    from cirf.lm import backbone
    from cirf.lm.vocabulary import token_names

    recipe = context.recipe
    model, tokenizer = load_for(context, name)
    method = get(name, recipe)
    begins = scores.beginnings(method, context.tasks, model, tokenizer, source_of(context, name))
    units = units_of(method)
    between: Perturbable
    if units == "thoughts" and begins is not None:
        between = OfThoughts(model, begins)
    else:
        names = token_names(recipe.codebook.codes, recipe.vocabulary.delimiters)
        between = OfTrace(tokenizer, names, recipe.evaluate.probes.results)
    probes = names_for(method, recipe)
    summary = probe(
        ProbedModel(
            method,
            Prober(model, tokenizer, begins, between, probes, recipe.seed),
            partial(backbone.prompt_text, tokenizer),
        ),
        Questions(context.tasks, context.test()),
        probes,
        recipe.evaluate,
        work,
        context.progress,
        {"units": units, "results": recipe.evaluate.probes.results if units == "steps" else None},
    )
    kept = summary["probes"][KEEP]
    notes = ["probed without the settings that steer its answers (such as budget)"] if method.steered else []
    notes += [f"{kept['moved']:.1%} of the answers changed where a probe changed nothing"] if kept["moved"] else []
    return {"rows": kept["n"], "notes": notes}
