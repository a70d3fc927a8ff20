"""The scorers by name. A new one is a file and a line here."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cirf.errors import CirfError
from cirf.methods.token_skip.scorer import Reasoned, Scorer
from cirf.methods.token_skip.words import Word, weighed, word_spans
from cirf.progress import SILENT, Progress
from cirf.recipe import schema


@dataclass(frozen=True, slots=True)
class Setting:
    """What scorers are made of; each takes what it needs.

    ``source``: the model that scores (a folder, a hub id, ``bundled:NAME``); ``None``: the large published one.
    ``revision``: of that source, where it is a hub id. ``section``: number format, device and threads. ``batch_tokens``: most
    tokens computed at once, padding included.
    """

    section: schema.Backbone
    source: str | Path | None = None
    revision: str | None = None
    seed: int = 0
    batch_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class Kind:
    """A way of scoring. ``asks``: whether it needs a model."""

    summary: str
    asks: bool
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
    from cirf.methods.token_skip.llmlingua2 import LARGE, LlmLingua2, load_classifier

    source = setting.source or LARGE
    section = setting.section.model_copy(update={"revision": setting.revision, "trust_remote_code": False})
    return LlmLingua2(load_classifier(source, section), load_tokenizer(source, section), setting.batch_tokens)


def _rules(setting: Setting) -> Scorer:
    from cirf.methods.token_skip.rules import Rules

    return Rules()


def _chance(setting: Setting) -> Scorer:

    return Chance(setting.seed)


SCORERS: dict[str, Kind] = {
    "llmlingua2": Kind("a token classifier's probability that a word is kept (LLMLingua-2)", True, _llmlingua2),
    "rules": Kind("numbers and signs first, function words last, TF-IDF between", False, _rules),
    "random": Kind("by chance, the control", False, _chance),
}


class Chance:
    """Scores words by numbers drawn from [0, 1), by the seed, the question and the rationale alone."""

    def __init__(self, seed: int = 0) -> None:
        """``seed``: another one, another draw."""
        self._seed = seed

    def score(self, texts: Sequence[Reasoned], progress: Progress = SILENT) -> list[list[Word]]:
        """See ``Scorer``."""
        return [self._weigh(text) for text in texts]

    def _weigh(self, text: Reasoned) -> list[Word]:
        draw = random.Random(f"{self._seed}\0{text.question}\0{text.rationale}")
        spans = word_spans(text.rationale)
        return weighed(text.rationale, spans, [draw.random() for _ in spans])
