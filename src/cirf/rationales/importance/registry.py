"""The scorers by name. A new one is a file and a line here."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cirf import recipe
from cirf.errors import CirfError
from cirf.rationales.importance.scorer import Scorer


@dataclass(frozen=True, slots=True)
class Setting:
    """What scorers are made of; each takes what it needs.

    ``source``: the model that scores (a folder, a hub id, ``bundled:NAME``); ``None``: `llmlingua2` takes the large
    published one, the others that ask a model the backbone. ``revision``: of that source, where it is a hub id.
    ``section``: number format, device and threads. ``lead``: what stands between rationale and answer. ``batch_tokens``:
    most tokens computed at once, padding included.
    """

    section: recipe.Backbone
    source: str | Path | None = None
    revision: str | None = None
    seed: int = 0
    lead: str = "\n#### "
    batch_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class Kind:
    """A way of scoring. ``asks``: the kind of model that it needs."""

    summary: str
    asks: Literal["nothing", "classifier", "language model"]
    make: Callable[[Setting], Scorer]


def names() -> tuple[str, ...]:
    """Every scorer's name."""
    return tuple(SCORERS)


def get(name: str) -> Kind:
    """The way of scoring of that name; ``CirfError`` if there is none."""
    if name not in SCORERS:
        near = difflib.get_close_matches(name, SCORERS, 1, 0.0)[0]
        raise CirfError(f"there is no scorer {name!r}; the nearest is {near!r} (all: {', '.join(SCORERS)})")
    return SCORERS[name]


def _llmlingua2(setting: Setting) -> Scorer:
    from cirf.lm.backbone import load_tokenizer
    from cirf.lm.classifier import load_classifier
    from cirf.rationales.importance.llmlingua2 import LARGE, LlmLingua2

    source = setting.source or LARGE
    section = setting.section.model_copy(update={"revision": setting.revision, "trust_remote_code": False})
    return LlmLingua2(load_classifier(source, section), load_tokenizer(source, section), setting.batch_tokens)


def _surprisal(setting: Setting) -> Scorer:
    from cirf.rationales.importance.surprisal import Surprisal

    return Surprisal(*_language_model(setting), setting.batch_tokens)


def _answer_grad(setting: Setting) -> Scorer:
    from cirf.rationales.importance.answer_grad import AnswerGrad

    return AnswerGrad(*_language_model(setting), setting.lead, setting.batch_tokens)


def _language_model(setting: Setting) -> tuple[Any, Any]:
    """A causal language model and its tokenizer; one that is not the backbone need not look like it."""
    from cirf.lm.backbone import load_model, load_tokenizer

    section = setting.section
    if setting.source is not None:
        section = section.model_copy(update={"revision": setting.revision, "architecture": recipe.Architecture()})
    source = setting.source or section.model
    return load_model(source, section), load_tokenizer(source, section)


def _rules(setting: Setting) -> Scorer:
    from cirf.rationales.importance.rules import Rules

    return Rules()


def _chance(setting: Setting) -> Scorer:
    from cirf.rationales.importance.chance import Chance

    return Chance(setting.seed)


SCORERS: dict[str, Kind] = {
    "llmlingua2": Kind("a token classifier's probability that a word is kept (LLMLingua-2)", "classifier", _llmlingua2),
    "surprisal": Kind("how little a language model expects a word", "language model", _surprisal),
    "answer_grad": Kind("how much the answer's loss hangs on a word", "language model", _answer_grad),
    "rules": Kind("numbers and signs first, function words last, TF-IDF between", "nothing", _rules),
    "random": Kind("by chance, the control", "nothing", _chance),
}
