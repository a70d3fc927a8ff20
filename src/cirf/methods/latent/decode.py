"""Answers of a model that thinks in vectors first: the thoughts go into the cache, and decoding continues from there.

What the decoder is shown of a prompt with two thoughts, and what of it the cache holds already::

    How many clips?<latent> <latent> <latent> </latent>
    [--------------- cache ----------------]

The ids at the thoughts' places are placeholders and never embedded. The end mark is left to compute, with the words after it if
any; the last of them gives the logits of the answer's first token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from cirf.errors import CirfError
from cirf.lm.decoding.prefix_cache import Begun
from cirf.lm.prompt import encode
from cirf.methods.latent.loop import Project, padded_left, think
from cirf.methods.latent.projector import read_projector
from cirf.store.files import parse_json, to_json, write_atomic

_FILE = "latent.json"
"""Next to a saved model: the settings of its latent thoughts."""


@dataclass(frozen=True, slots=True)
class Latent:
    """How a model thinks: ``count`` vectors between the tokens ``begin``, which ends its prompt, and ``end``, which the words
    ``after`` follow. ``projector`` is the inner width of f; 0: states are fed in unchanged."""

    begin: str
    end: str
    count: int
    after: str = ""
    projector: int = 0

    def save(self, folder: Path) -> None:
        """Write it to a model's folder."""
        write_atomic(folder / _FILE, to_json(asdict(self)))


def read_latent(folder: Path) -> Latent | None:
    """How the model in a folder thinks; ``None`` where it does not. ``CirfError`` for a damaged file."""
    path = folder / _FILE
    if not path.is_file():
        return None
    try:
        saved = parse_json(path.read_text(encoding="utf-8"))
        return Latent(
            str(saved["begin"]),
            str(saved["end"]),
            int(saved["count"]),
            str(saved.get("after", "")),
            int(saved.get("projector", 0)),
        )
    except (ValueError, KeyError, TypeError):
        raise CirfError(f"{path}: damaged, so it is not known how the model thinks; train it again") from None


class Thinking:
    """Begins prompts to one model by thinking (see `cirf.lm.decoding.prefix_cache.Beginnings`)."""

    def __init__(self, model: Any, tokenizer: Any, latent: Latent, project: Project | None = None) -> None:
        """``project`` is f. ``CirfError`` where the tokenizer does not have the marks."""
        self._model, self._latent, self._project = model, latent, project
        known = tokenizer.get_vocab()
        if latent.begin not in known or latent.end not in known:
            raise CirfError(f"the model does not know {latent.begin} and {latent.end}, so it was not trained to think; train it")
        self._begin, self._end = known[latent.begin], known[latent.end]
        self._tail = [self._end, *encode(tokenizer, latent.after)]

    def prepare(self, prompts: Sequence[str]) -> None:
        """Nothing is kept for other prompts: what a model thinks is part of its answer, and of its time."""

    @torch.inference_mode()
    def begin(self, prompts: Sequence[list[int]]) -> Begun:
        """The prompts with their thoughts and the tokens after these; the prompts and the thoughts are in the cache.

        ``CirfError`` for a prompt that was not rendered in the model's own chat template.
        """
        if any(ids[-1:] != [self._begin] for ids in prompts):
            raise CirfError(f"a prompt to this model must end in {self._latent.begin}; render it in its own chat template")
        ids, mask = (part.to(self._model.device) for part in padded_left(prompts, self._end))
        counts = torch.full((len(prompts),), self._latent.count, device=ids.device)
        thoughts = think(self._model, ids, mask, counts, self._project)
        held = [self._begin] * self._latent.count
        heads = [len(prompt) + self._latent.count for prompt in prompts]
        return Begun([[*prompt, *held, *self._tail] for prompt in prompts], heads, thoughts.cache)


def thinking(model: Any, tokenizer: Any, latent: Latent, folder: Path) -> Thinking:
    """What begins prompts to the model of a folder; f is read from there. ``CirfError`` where the folder lacks what it needs."""
    if not latent.projector:
        return Thinking(model, tokenizer, latent)
    width = model.get_input_embeddings().weight.shape[1]
    return Thinking(model, tokenizer, latent, read_projector(folder, width, latent.projector).to(model.device))
