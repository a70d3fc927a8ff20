"""The methods, by name. A new one is a file and a line here; one of a user's own is a file that a recipe names."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cirf.errors import CirfError
from cirf.methods.chain_of_draft import ChainOfDraft
from cirf.methods.cirf import CirfBare, CirfFast, CirfFaster, CirfFull, CirfLean, CirfZero
from cirf.methods.cirf_self import CirfSelf
from cirf.methods.coconut import Coconut
from cirf.methods.codi import Codi
from cirf.methods.cot import Cot, SftCot
from cirf.methods.direct import Direct, DirectSft
from cirf.methods.icot_si import InternalisedCot
from cirf.methods.method import Method
from cirf.methods.pause import Filler, Pause
from cirf.methods.sem_cot import SemCot
from cirf.methods.sim_cot import SimCot
from cirf.methods.soft_cot import SoftCot
from cirf.methods.terse import SftTerse
from cirf.methods.token_skip import TokenSkip
from cirf.recipe import Section, Variant
from cirf.recipe_keys import expected, found
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
    "cirf_self": CirfSelf,
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
    "coconut": Coconut,
    "codi": Codi,
    "sim_cot": SimCot,
    "soft_cot": SoftCot,
    "sem_cot": SemCot,
}

SCORED_BY = "cirf_full"
"""The method whose model says, in every run, which results pruned traces do without."""

__all__ = ["METHODS", "SCORED_BY", "Method", "get", "kind", "learners", "named", "names"]


def names() -> tuple[str, ...]:
    """Every method's name."""
    return tuple(METHODS)


def kind(name: str, recipe: Recipe) -> tuple[type[Method], str]:
    """The class of a method or variant, and the hash of its file where it is a user's own (else empty).

    ``CirfError`` if there is none.
    """
    given = recipe.variants.get(name, Variant()).method
    base = given or name
    if name in METHODS and base != name:
        raise CirfError(f"variants.{name}.method: {name} is a method itself, and tables would name {base} so; call it otherwise")
    if base.endswith(OWN):
        return _own(base, f"{'methods' if given is None else f'variants.{name}.method'} names it as a method of your own")
    if base not in METHODS:
        where = "methods" if given is None else f"variants.{name}.method"
        near = difflib.get_close_matches(base, METHODS if given else (*METHODS, *recipe.variants), 1, 0.0)[0]
        raise CirfError(f"{where}: there is no method {base!r}; the nearest is {near!r} (all: {', '.join(METHODS)})")
    return METHODS[base], ""


def named(name: str) -> type[Method]:
    """The class of a method, by its name or by the path of a user's own file. ``CirfError`` if there is none."""
    if name.endswith(OWN):
        return _own(name, "name one that ends in METHOD = YourMethod")[0]
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, 1, 0.0)[0]
        raise CirfError(f"methods: there is no method {name!r}; the nearest is {near!r} (all: {', '.join(METHODS)})")
    return METHODS[name]


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
    """The methods that a recipe trains: those it names that are trained and have no saved model, and those whose models others
    answer with, prepare their rows with, are pruned by or go on from. ``CirfError`` where one takes a model that is not its own
    kind's."""
    made: dict[str, Method] = {}
    begun: set[str] = set()

    def add(name: str) -> None:
        method = get(name, recipe)
        if not method.trained or method.learner in recipe.models or method.learner in made:
            return
        if method.learner != name:
            add(method.learner)
            return
        begun.add(name)
        for needed in method.needs():
            judge = get(needed, recipe)
            trained = judge.trained
            if not trained or judge.learner in begun - set(made):
                why = "is not trained" if not trained else f"is prepared with {name}'s model itself"
                raise CirfError(f"variants.{name}.settings: {needed} {why}, so its model cannot help to prepare rows")
            add(needed)
        if method.start is not None:
            _check_start(method, recipe)
            add(method.start)
        if method.pruning is not None and SCORED_BY not in made:  # not by `add`: a run prunes with no other's model
            made[SCORED_BY] = get(SCORED_BY, recipe)
        made[name] = method

    for name in (*recipe.methods, *recipe.variants):
        _check_learner(get(name, recipe), recipe)
    for name in recipe.methods:
        add(name)
    return list(made.values())


def _check_start(method: Method, recipe: Recipe) -> None:
    """``CirfError`` where a method is to go on from a model that is not the run's own kind of that name."""
    assert method.start is not None
    start = get(method.start, recipe)
    if not start.trained or start.base != method.start:
        raise CirfError(
            f"variants.{method.start}: {method.name} goes on from {method.start} itself; give the variant another name"
        )


def _check_learner(method: Method, recipe: Recipe) -> None:
    """``CirfError`` where a method is to answer with a model that it could not have been trained to."""
    if method.learner == method.name:
        return
    where = f"variants.{method.name}.model"
    if not method.trained:
        raise CirfError(f"{where}: {method.base} is not trained: the backbone answers for it; remove the key")
    try:
        learner = get(method.learner, recipe)
    except CirfError as error:
        raise CirfError(f"{where}: {str(error).removeprefix('methods: ')}") from None
    if not learner.trained or learner.learner != learner.name:
        raise CirfError(f"{where}: {learner.name} has no trained model of its own; name one that has")
    if type(method) is not type(learner) or _taught(method) != _taught(learner):
        raise CirfError(f"{where}: {learner.name} is trained otherwise than {method.name} would be; remove the key")


def _taught(method: Method) -> dict[str, Any]:
    """What its training depends on, whatever a variant is called."""
    return {key: value for key, value in method.taught_by.items() if key != "method"}


def _settings(made_by: type[Method], given: dict[str, Any], where: str) -> Any:
    """The settings, as strictly read as a recipe's own keys are."""
    try:
        return made_by.Settings.model_validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        place = f"{where}.settings.{key}".rstrip(".")
        fields = made_by.Settings.model_fields
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(key, fields, 1, 0.0)
            hint = f"did you mean {near[0]!r}? It has {', '.join(fields)}" if near else "it has none"
            raise CirfError(f"{place}: {made_by.name} has no such setting; {hint}") from None
        if not key or first["type"] in ("value_error", "assertion_error"):
            raise CirfError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None
        wanted = expected(fields[key])
        if first["type"] == "missing":
            raise CirfError(f"{place}: missing; expected {wanted}: {fields[key].description}") from None
        raise CirfError(f"{place}: expected {wanted}, found {found(first['input'])}") from None


def _own(path: str, advice: str) -> tuple[type[Method], str]:
    """The ``METHOD`` of a user's file, and the hash of the file; ``advice`` is said where there is no such file."""
    defined, origin = read_user_code(path, advice)
    made = defined.get("METHOD")
    if made is None:
        raise CirfError(f"{path}: defines no METHOD; end the file with METHOD = YourMethod, a class on cirf.methods.Method")
    if not (isinstance(made, type) and issubclass(made, Method)):
        raise CirfError(f"{path}: METHOD is no class on cirf.methods.Method; write METHOD = YourMethod")
    if not made.name or not made.summary:
        raise CirfError(f"{path}: METHOD has no name or no summary; set both in the class")
    if not (isinstance(made.Settings, type) and issubclass(made.Settings, Section)):
        raise CirfError(f"{path}: Settings is no class on cirf.recipe.Section; write class Settings(Section)")
    return made, origin
