"""Answers of a model that reasons in vectors first: the thoughts go into the cache, and decoding continues from there.

What the decoder is shown of a prompt with two thoughts, and what of it the cache holds already::

    How many clips?<latent> <latent> <latent> </latent>
    [--------------- cache ----------------]

The ids at the thoughts' places are placeholders and never embedded. The end mark is left to compute, with the words after it if
any; the last of them gives the logits of the answer's first token.

For engines that take embeddings instead of tokens, prompts are given as input vectors. Latents are input vectors like any other,
so what the loop feeds one at a time can be fed in one pass::

    How many clips?   <latent>     z1   z2   </latent>
    E(..) E(..) ..    E(<latent>)  z1   z2   E(</latent>)        [s x d]

A causal model gives the same answer after either: it computes the same keys and values for the same vectors in the same places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError

from cirf.errors import CirfError
from cirf.lm.decoding.prefix_cache import VECTORS, PrefilledPrompts, Prefiller
from cirf.lm.prompt import encode
from cirf.lm.training.loss import only_at
from cirf.methods.latent.loop import Project, padded_left, read_projector, think
from cirf.store.files import to_json, write_atomic

_FILE = "latent.json"
"""Next to a saved model: the settings of its latent thoughts."""


@dataclass(frozen=True, slots=True)
class LatentSettings:
    """How a model thinks: ``count`` vectors between the tokens ``begin``, which ends its prompt, and ``end``, which the words
    ``after`` follow. ``projector`` is the inner width of f; 0: states are fed in unchanged."""

    begin: str
    end: str
    count: int
    after: str = ""
    projector: int = 0

    def save(self, folder: Path) -> None:
        write_atomic(folder / _FILE, to_json(asdict(self)))


S = TypeVar("S")


def read_settings(path: Path, kind: type[S]) -> S | None:
    """The settings in a file next to a saved model; ``None`` without the file. ``CirfError`` for a damaged one."""
    if not path.is_file():
        return None
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except ValidationError:
        raise CirfError(f"{path}: damaged, so it is unknown where its vectors come from; train it again") from None


def read_latent(folder: Path) -> LatentSettings | None:
    """How the model in a folder thinks; ``None`` where it does not. ``CirfError`` for a damaged file."""
    return read_settings(folder / _FILE, LatentSettings)


class LatentPrefiller:
    """Begins prompts to one model by thinking (see `cirf.lm.decoding.prefix_cache.Prefiller`)."""

    besides = VECTORS

    def __init__(self, model: Any, tokenizer: Any, latent: LatentSettings, project: Project | None = None) -> None:
        """``project`` is f. ``CirfError`` where the tokenizer does not have the marks."""
        self._model, self._latent, self._project = model, latent, project
        known = tokenizer.get_vocab()
        if latent.begin not in known or latent.end not in known:
            raise CirfError(f"the model lacks {latent.begin} and {latent.end}: it was not trained to reason in vectors; train it")
        self._begin, self._end = known[latent.begin], known[latent.end]
        self._tail = [self._end, *encode(tokenizer, latent.after)]

    def prepare(self, prompts: Sequence[str]) -> None:
        """Nothing is kept for other prompts: what a model thinks is part of its answer, and of its time."""

    @torch.inference_mode()
    def begin(self, prompts: Sequence[list[int]]) -> PrefilledPrompts:
        """The prompts with their thoughts and the tokens after these; the prompts and the thoughts are in the cache.
        ``CirfError`` for a prompt that was not rendered in the model's own chat template."""
        if any(ids[-1:] != [self._begin] for ids in prompts):
            raise CirfError(f"a prompt to this model must end in {self._latent.begin}; render it in its own chat template")
        ids, mask = (part.to(self._model.device) for part in padded_left(prompts, self._end))
        counts = torch.full((len(prompts),), self._latent.count, device=ids.device)
        thoughts = think(self._model, ids, mask, counts, self._project)
        held = [self._begin] * self._latent.count
        heads = [len(prompt) + self._latent.count for prompt in prompts]
        shown = [[*prompt, *held, *self._tail] for prompt in prompts]
        return PrefilledPrompts(shown, heads, thoughts.cache, list(zip(map(len, prompts), thoughts.latents, strict=True)))


def thinking(model: Any, tokenizer: Any, latent: LatentSettings, folder: Path) -> LatentPrefiller:
    """What begins prompts to the model of a folder; f is read from there. ``CirfError`` where the folder lacks what it needs."""
    if not latent.projector:
        return LatentPrefiller(model, tokenizer, latent)
    width = model.get_input_embeddings().weight.shape[1]
    return LatentPrefiller(model, tokenizer, latent, read_projector(folder, width, latent.projector).to(model.device))


@dataclass(frozen=True, slots=True)
class PromptVectors:
    """A prompt of s positions as a model is given it: ``vectors`` [s x d]; ``ids``: a token for each, which is only a place
    holder where ``own`` [s] is true, that is where the vector is no token's row."""

    ids: list[int]
    vectors: torch.Tensor
    own: torch.Tensor


@torch.inference_mode()
def given(model: Any, beginnings: Prefiller | None, prompts: Sequence[list[int]]) -> list[PromptVectors]:
    """What a model is given of a batch of prompts before it answers, row by row. ``None``: their tokens alone. ``CirfError``
    where ``beginnings`` does not give its vectors."""
    begun = None if beginnings is None else beginnings.begin(prompts)
    if begun is None:
        return with_vectors(model, prompts, [(0, torch.empty(0))] * len(prompts))
    if begun.vectors is None:
        raise CirfError("what this model is given before it answers was computed elsewhere, so it cannot be given as vectors")
    return with_vectors(model, begun.prompts, begun.vectors)


def with_vectors(model: Any, prompts: Sequence[list[int]], given: Sequence[tuple[int, torch.Tensor]]) -> list[PromptVectors]:
    """Prompts with other vectors in place of some tokens; ``given``: of each row a place, and the vectors from there [n x d]."""
    rows = []
    for ids, (start, own) in zip(prompts, given, strict=True):
        vectors = model.get_input_embeddings()(torch.tensor(ids, device=model.device)).clone()
        places = torch.zeros(len(ids), dtype=torch.bool, device=vectors.device)
        if len(own):
            vectors[start : start + len(own)] = own.to(vectors)
            places[start : start + len(own)] = True
        rows.append(PromptVectors(ids, vectors, places))
    return rows


@torch.inference_mode()
def prefill(model: Any, rows: Sequence[PromptVectors]) -> PrefilledPrompts:
    """A generation's beginning from vectors: all but each row's last position in one pass, padded on the left. A row's last
    position must be a token."""
    heads = [len(row.ids) - 1 for row in rows]
    longest = max(heads)
    prompts = [row.ids for row in rows]
    if longest == 0:
        return PrefilledPrompts(prompts, heads, None)
    vectors = rows[0].vectors.new_zeros(len(rows), longest, rows[0].vectors.shape[1])
    mask = torch.zeros(len(rows), longest, dtype=torch.long, device=vectors.device)
    for index, (row, head) in enumerate(zip(rows, heads, strict=True)):
        vectors[index, longest - head :] = row.vectors[:head]
        mask[index, longest - head :] = 1
    places = (mask.cumsum(dim=1) - 1).clamp(min=0)
    with only_at(model, torch.empty(0, dtype=torch.long, device=mask.device)):
        made = model(inputs_embeds=vectors, attention_mask=mask, position_ids=places, use_cache=True)
    return PrefilledPrompts(prompts, heads, made.past_key_values)


def prompt_embeddings(
    model: Any, tokenizer: Any, prompts: Sequence[str], beginnings: Prefiller | None, batch_size: int = 16
) -> list[torch.Tensor]:
    """Rendered prompts as vectors [s x d] each, in their order, thoughts and end mark included: an engine's ``prompt_embeds``.

    They are in the model's number format and on its device. ``beginnings`` is the method's (`Method.beginnings`), or a
    saved model's (`cirf.methods.saved.saved_beginnings`); ``None``: the tokens' rows alone. Prompts of like length are computed
    together, ``batch_size`` at once.
    """
    encoded = [encode(tokenizer, prompt) for prompt in prompts]
    order = sorted(range(len(prompts)), key=lambda i: (-len(encoded[i]), i))
    found: dict[int, torch.Tensor] = {}
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        made = given(model, beginnings, [encoded[i] for i in batch])
        found |= {i: row.vectors for i, row in zip(batch, made, strict=True)}
    return [found[i] for i in range(len(prompts))]
