"""The methods, by name. A new one is a file and a line here; one of a user's own is a file that a recipe names."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cirf.errors import CirfError
from cirf.methods.chain_of_draft import ChainOfDraft
from cirf.methods.cirf import CirfBare, CirfFast, CirfFaster, CirfFull, CirfLean, CirfZero
from cirf.methods.cot import Cot, SftCot
from cirf.methods.direct import Direct, DirectSft
from cirf.methods.icot_si import InternalisedCot
from cirf.methods.method import Method
from cirf.methods.pause import Filler, Pause
from cirf.methods.terse import SftTerse
from cirf.methods.token_skip import TokenSkip
from cirf.recipe import Variant
from cirf.user_code import OWN, read_user_code

if TYPE_CHECKING:
    from cirf.recipe import Recipe

METHODS: dict[str, type[Method]] = {
    "cirf_full": CirfFull,
    "cirf_zero": CirfZero,
    "cirf_fast": CirfFast,
    "cirf_faster": CirfFaster,
    "cirf_lean": CirfLean,
    "cirf_bare": CirfBare,
    "direct": Direct,
    "cot": Cot,
    "chain_of_draft": ChainOfDraft,
    "direct_sft": DirectSft,
    "sft_cot": SftCot,
    "sft_terse": SftTerse,
    "token_skip": TokenSkip,
    "pause": Pause,
    "filler": Filler,
    "icot_si": InternalisedCot,
}

__all__ = ["METHODS", "Method", "get", "kind", "learners", "names"]


def names() -> tuple[str, ...]:
    """Every method's name."""
    return tuple(METHODS)


def kind(name: str, recipe: Recipe) -> tuple[type[Method], str]:
    """The class of a method or variant, and the hash of its file where it is a user's own (else empty).

    ``CirfError`` if there is none.
    """
    base = recipe.variants.get(name, Variant()).method or name
    if base.endswith(OWN):
        return _own(base)
    if base not in METHODS:
        near = difflib.get_close_matches(base, (*METHODS, *recipe.variants), 1, 0.0)[0]
        raise CirfError(f"methods: there is no method {base!r}; the nearest is {near!r} (all: {', '.join(METHODS)})")
    return METHODS[base], ""


def get(name: str, recipe: Recipe) -> Method:
    """The method or variant of that name, set up by a recipe.

    ``CirfError`` if there is none, or its settings or its preset are none that it has.
    """
    variant = recipe.variants.get(name, Variant())
    made_by, origin = kind(name, recipe)
    where = f"variants.{name}"
    given: dict[str, Any] = {}
    if variant.preset is not None:
        if variant.preset not in made_by.presets:
            there = ", ".join(made_by.presets) or "none"
            raise CirfError(f"{where}.preset: {made_by.name} has no preset {variant.preset!r} (it has: {there})")
        given = dict(made_by.presets[variant.preset].settings)
    method = made_by(recipe, _settings(made_by, given | variant.settings, where))
    if variant.preset is not None:
        method.training = made_by.presets[variant.preset].training
    method.name, method.origin, method.learner = name, origin, variant.model or name
    method.check(recipe)
    return method


def learners(recipe: Recipe) -> list[Method]:
    """The methods that a recipe trains: those it names that are trained and have no saved model, those whose models others
    answer with, and those whose models others prepare their rows with. ``CirfError`` where one takes a model that is not its
    own kind's."""
    found: dict[str, Method] = {}
    begun: set[str] = set()

    def add(name: str, asked_by: Method | None) -> None:
        method = get(name, recipe)
        if asked_by is not None and name in asked_by.needs() and (not method.trained or name in begun - set(found)):
            why = "is not trained" if not method.trained else f"is prepared with {asked_by.name}'s model itself"
            raise CirfError(f"variants.{asked_by.name}.settings: {name} {why}, so its model cannot help to prepare rows")
        if asked_by is not None and asked_by.learner == name:
            _check_learner(asked_by, method)
        if method.learner in recipe.models or method.learner in found or not method.trained:
            return
        if method.learner != name:
            add(method.learner, method)
            return
        begun.add(name)
        for needed in method.needs():
            add(needed, method)
        found[name] = method

    for name in recipe.methods:
        add(name, None)
    return list(found.values())


def _check_learner(method: Method, learner: Method) -> None:
    where = f"variants.{method.name}.model"
    if not learner.trained or learner.learner != learner.name:
        raise CirfError(f"{where}: {learner.name} has no trained model of its own; name one that has")
    if type(method) is not type(learner) or method.taught_by != learner.taught_by:
        raise CirfError(f"{where}: {learner.name} is trained otherwise than {method.name} would be; remove the key")


def _settings(made_by: type[Method], given: dict[str, Any], where: str) -> Any:
    try:
        return made_by.Settings.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            there = tuple(made_by.Settings.model_fields)
            near = difflib.get_close_matches(key, there, 1, 0.0)
            hint = f"did you mean {near[0]!r}? It has {', '.join(there)}" if near else "it has none"
            raise CirfError(f"{where}.settings.{key}: {made_by.name} has no such setting; {hint}") from None
        said = first["msg"].removeprefix("Value error, ")
        raise CirfError(f"{where}.settings.{key}: {said}, found {first['input']!r}") from None


def _own(path: str) -> tuple[type[Method], str]:
    """The ``METHOD`` of a user's file, and the hash of the file."""
    defined, origin = read_user_code(path, "methods names it as a method of your own")
    found = defined.get("METHOD")
    if found is None:
        raise CirfError(f"{path}: defines no METHOD; end the file with METHOD = YourMethod, a class on cirf.methods.Method")
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise CirfError(f"{path}: METHOD is no class on cirf.methods.Method; write METHOD = YourMethod")
    if not found.name or not found.summary:
        raise CirfError(f"{path}: METHOD has no name or no summary; set both in the class")
    return found, origin
