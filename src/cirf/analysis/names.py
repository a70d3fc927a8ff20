"""One display name for each method, and its family: the same in reports, pictures, tables and cards.

A variant of a recipe whose settings are all known here is named by them, ``CIRF with subjects``. Settings given to a method under
its own name do not change its display name. Any other variant keeps the name that the recipe gives it; `describe` says what it
changes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cirf.methods import METHODS

NAMES = {
    "cirf_full": "CIRF",
    "cirf_zero": "CIRF, γ = 0",
    "cirf_fast": "CIRF Fast",
    "cirf_faster": "CIRF Faster",
    "cirf_lean": "CIRF Lean",
    "cirf_bare": "CIRF, no results",
    "cirf_self": "CIRF, self-trained",
    "cirf_subjects": "CIRF with subjects",
    "cirf_after_cot": "CIRF, after CoT",
    "cirf_subjects_after_cot": "CIRF with subjects, after CoT",
    "cot": "CoT, untrained",
    "chain_of_draft": "Chain-of-Draft",
    "sft_cot": "CoT, fine-tuned",
    "terse": "Terse",
    "terse_subjects": "Terse with subjects",
    "terse_equations": "Terse, equations",
    "token_skip": "TokenSkip",
    "direct": "Direct, untrained",
    "direct_sft": "Direct, fine-tuned",
    "pause": "Pause tokens",
    "filler": "Filler tokens",
    "icot_si": "iCoT-SI",
    "coconut": "Coconut",
    "codi": "CODI",
    "sim_cot": "SIM-CoT",
    "soft_cot": "SoftCoT",
    "sem_cot": "SemCoT",
}
"""The display name of every method."""

BASELINE = "sft_cot"  # prose trained on the same rows: the reference for the others
_SETTINGS: tuple[tuple[str, Any, str], ...] = (
    ("form", "equations", ", equations"),
    ("codes", "single", ", one token"),
    ("codes", "ordinal", ", tokens by position"),
    ("codes", "shuffled", ", shuffled tokens"),
    ("subjects", True, " with subjects"),
    ("start", "sft_cot", ", after CoT"),
    ("calculator", True, " + calculator"),
)
"""The part of the name for each setting, in this order."""

_NO_TRACE = frozenset(("direct", "direct_sft", "pause", "filler", "icot_si", "coconut", "codi", "sim_cot", "soft_cot", "sem_cot"))
"""Methods that write no reasoning before the answer: they answer directly or reason in vectors."""

Variants = Mapping[str, Mapping[str, Any]]  # a recipe's `variants`


def base(name: str, variants: Variants) -> str:
    """The method of a name: a variant's, that of the variant it starts from, or the name itself."""
    method = str(variants.get(name, {}).get("method") or name)
    return base(method, variants) if method != name and method in variants else method


def display_names(names: Sequence[str], variants: Variants) -> dict[str, str]:
    """The display name of each; all are different: a variant that would repeat another's name keeps its own."""
    found: dict[str, str] = {}
    for name in sorted(names, key=lambda one: one in variants):
        display = _composed(name, variants)
        found[name] = name if display in found.values() else display
    return {name: found[name] for name in names}


def _composed(name: str, variants: Variants) -> str:
    variant, method = variants.get(name, {}), base(name, variants)
    if method not in NAMES or variant.get("preset") or variant.get("reward") is not None:
        return name
    left, display = dict(variant.get("settings") or {}), NAMES[method]
    for key, value, words in _SETTINGS:
        if key in left and left[key] == value:
            display += words
            del left[key]
    return display if not left or name == method else name


def describe(name: str, variants: Variants) -> str:
    """A description of a method, or for a variant its method and its changes; empty for an unknown method."""
    method = base(name, variants)
    if name not in variants:
        return METHODS[name].summary if name in METHODS else ""
    variant = variants[name]
    changes = [f"preset {variant['preset']}"] if variant.get("preset") else []
    changes += [f"{key} = {value}" for key, value in (variant.get("settings") or {}).items()]
    changes += [f"answers with the model of {variant['model']}"] if variant.get("model") else []
    if variant.get("reward") is not None:
        given = (f"{key} = {value}" for key, value in variant["reward"].items())
        changes += [" ".join([f"trained by reward from {variant['method']}", *(f"({one})" for one in given)])]
    return f"{NAMES.get(method, method)} ({method}){': ' if changes else ''}{', '.join(changes)}"


def family(name: str, variants: Variants, functional: bool = False) -> str:
    """``functional``, ``latent`` (latent or no reasoning) or ``prose``. ``functional``: whether a method that is unknown here
    writes functional tokens."""
    method = base(name, variants)
    if METHODS[method].functional if method in METHODS else functional:
        return "functional"
    return "latent" if method in _NO_TRACE else "prose"


def titles_of(report: Mapping[str, Any]) -> dict[str, str]:
    """The display names of a report's methods; ``report`` is `report.collect.collect`'s dict."""
    return display_names(list(report["methods"]), variants_of(report))


def variants_of(report: Mapping[str, Any]) -> Variants:
    return dict((report.get("recipe") or {}).get("variants", {}))
