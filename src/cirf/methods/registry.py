"""The methods, by name. A new one is a file and a line here. Other packages add theirs by entry points of the group
``cirf.methods``; one of a user's own is a file that a recipe names."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from cirf.errors import CirfError
from cirf.methods.base import Method
from cirf.recipe.keys import expected, found
from cirf.recipe.schema import Recipe, Reward, Section, Variant
from cirf.registry import Registry
from cirf.user_code import OWN, read_user_code

S = TypeVar("S", bound=Section)

METHODS: Registry[type[Method]] = Registry(
    "cirf.methods",
    {
        "cirf_full": "cirf.methods.cirf.cirf:CirfFull",
        "cirf_subjects": "cirf.methods.cirf.cirf:CirfSubjects",
        "cirf_after_cot": "cirf.methods.cirf.cirf:CirfAfterCot",
        "cirf_subjects_after_cot": "cirf.methods.cirf.cirf:CirfSubjectsAfterCot",
        "cirf_zero": "cirf.methods.cirf.cirf:CirfZero",
        "cirf_fast": "cirf.methods.cirf.cirf:CirfFast",
        "cirf_faster": "cirf.methods.cirf.cirf:CirfFaster",
        "cirf_lean": "cirf.methods.cirf.cirf:CirfLean",
        "cirf_bare": "cirf.methods.cirf.cirf:CirfBare",
        "cirf_self": "cirf.methods.cirf.self_training:CirfSelf",
        "direct": "cirf.methods.prose.cot:Direct",
        "cot": "cirf.methods.prose.cot:Cot",
        "chain_of_draft": "cirf.methods.prose.chain_of_draft:ChainOfDraft",
        "direct_sft": "cirf.methods.prose.cot:DirectSft",
        "sft_cot": "cirf.methods.prose.cot:SftCot",
        "terse": "cirf.methods.prose.terse:Terse",
        "terse_subjects": "cirf.methods.prose.terse:TerseSubjects",
        "terse_equations": "cirf.methods.prose.terse:TerseEquations",
        "token_skip": "cirf.methods.token_skip.token_skip:TokenSkip",
        "pause": "cirf.methods.pause:Pause",
        "filler": "cirf.methods.pause:Filler",
        "icot_si": "cirf.methods.icot_si:InternalisedCot",
        "coconut": "cirf.methods.latent.coconut:Coconut",
        "codi": "cirf.methods.latent.codi:Codi",
        "sim_cot": "cirf.methods.latent.sim_cot:SimCot",
        "soft_cot": "cirf.methods.soft.soft_cot:SoftCot",
        "sem_cot": "cirf.methods.soft.sem_cot:SemCot",
    },
)

SCORED_BY = "cirf_full"
"""The method whose model decides, in every run, which results are pruned."""


def names() -> tuple[str, ...]:
    return tuple(METHODS)


def kind(name: str, recipe: Recipe) -> tuple[type[Method], str]:
    """The class of a method or variant, and the hash of its file where it is a user's own (else empty).

    ``CirfError`` if there is none.
    """
    variant = recipe.variants.get(name, Variant())
    if variant.reward is not None:
        return kind(_start(name, recipe), recipe)
    base = variant.method or name
    if name in METHODS and base != name:
        raise CirfError(f"variants.{name}.method: {name} is the name of a method other than {base}; use another name")
    where = "methods" if variant.method is None else f"variants.{name}.method"
    return _class(base, where, f"{where} names it as a method of your own", () if variant.method else recipe.variants)


def named(name: str) -> type[Method]:
    """The class of a method, by its name or by the path of a user's own file. ``CirfError`` if there is none."""
    return _class(name, "methods", "name one that ends in METHOD = YourMethod")[0]


def _class(name: str, where: str, advice: str, others: Collection[str] = ()) -> tuple[type[Method], str]:
    """A class and its origin. ``CirfError`` names the nearest method, or one of ``others``; ``advice`` is for a missing file."""
    if name.endswith(OWN):
        return _own(name, advice)
    if name not in METHODS:
        near = difflib.get_close_matches(name, (*METHODS, *others), 1, 0.0)[0]
        raise CirfError(f"{where}: there is no method {name!r}; the nearest is {near!r} (all: {', '.join(METHODS)})")
    return METHODS[name], METHODS.origin(name)


def get(name: str, recipe: Recipe) -> Method:
    """The method or variant of that name, set up by a recipe. ``CirfError`` if there is none, or its settings or its preset are
    none that it has."""
    variant = recipe.variants.get(name, Variant())
    made_by, origin = kind(name, recipe)
    where = f"variants.{name}"
    if variant.reward is not None:
        return _by_reward(name, variant, recipe)
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


def _start(name: str, recipe: Recipe) -> str:
    """The method or variant from whose model a variant is trained by reward. ``CirfError`` where there is none."""
    seen = [name]
    while (variant := recipe.variants.get(seen[-1], Variant())).reward is not None:
        start = variant.method
        if start is None or start in seen or start.endswith(OWN):
            chain = " -> ".join((*seen, start or "nothing"))
            raise CirfError(f"variants.{seen[-1]}.method: {chain}; name a start trained without reward, such as cirf_full")
        seen.append(start)
    return seen[1]


def _by_reward(name: str, variant: Variant, recipe: Recipe) -> Method:
    """A variant that is trained on by reward: the method of its start, under another name."""
    where, start = f"variants.{name}", get(_start(name, recipe), recipe)
    if name in METHODS or variant.preset or variant.model:
        advice = "give the variant another name" if name in METHODS else "with preset and model of its start; remove both keys"
        raise CirfError(f"{where}: trained by reward, {advice}")
    section = read_section(Reward, recipe.reward.model_dump() | (variant.reward or {}), f"{where}.reward", "`reward`")
    if not start.trained or start.latents or start.guide or start.frozen:
        why = "is not trained" if not start.trained else "does not reason in tokens only"
        raise CirfError(f"{where}.method: {start.name} {why}; start from one such as cirf_full, terse or sft_cot")
    if section.beta and section.adaptation != "lora":
        raise CirfError(f"{where}.reward.beta: the start model is kept only with adapters; set adaptation: lora, or beta: 0")
    given = start.settings.model_dump(mode="json", exclude_unset=True) | variant.settings
    made = type(start)(recipe, _settings(type(start), given, where))
    made.name, made.origin, made.learner, made.reward = name, start.origin, name, section
    made.check(recipe)
    made.start = start.name
    return made


def learners(recipe: Recipe) -> list[Method]:
    """The methods that a recipe trains: those it names that are trained and have no saved model, and those whose models others
    answer with, prepare their rows with, are pruned by or go on from. ``CirfError`` where one takes a model of another kind."""
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
        if method.reward is not None:
            assert method.start is not None
            add(method.start)
            made[name] = method
            return
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
        raise CirfError(f"variants.{method.start}: {method.name} starts from that method; give the variant another name")


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
        raise CirfError(f"{where}: {learner.name} is trained with other settings than {method.name} would be; remove the key")


def _taught(method: Method) -> dict[str, Any]:
    """What its training depends on, apart from a variant's name and training by reward."""
    return {key: value for key, value in method.taught_by.items() if key not in ("method", "reward")}


def _settings(made_by: type[Method], given: dict[str, Any], where: str) -> Any:
    """The settings, as strictly read as a recipe's own keys are."""
    return read_section(made_by.Settings, given, f"{where}.settings", made_by.name)


def read_section(section: type[S], given: Mapping[str, Any], where: str, whose: str) -> S:
    """A section read from a recipe's data; ``whose`` it is, for the ``CirfError`` of a key that it has not."""
    try:
        return section.model_validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        place = f"{where}.{key}".rstrip(".")
        fields = section.model_fields
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(key, fields, 1, 0.0)
            hint = f"did you mean {near[0]!r}? It has {', '.join(fields)}" if near else "it has none"
            raise CirfError(f"{place}: {whose} has no such setting; {hint}") from None
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
        raise CirfError(f"{path}: defines no METHOD; end the file with METHOD = YourMethod, a subclass of cirf.methods.Method")
    if not (isinstance(made, type) and issubclass(made, Method)):
        raise CirfError(f"{path}: METHOD is not a subclass of cirf.methods.Method; write METHOD = YourMethod")
    if not made.name or not made.summary:
        raise CirfError(f"{path}: METHOD has no name or no summary; set both in the class")
    if not (isinstance(made.Settings, type) and issubclass(made.Settings, Section)):
        raise CirfError(f"{path}: Settings is not a subclass of cirf.recipe.Section; write class Settings(Section)")
    return made, origin
