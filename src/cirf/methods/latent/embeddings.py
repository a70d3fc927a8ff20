"""Prompts with latent thoughts as input vectors, for engines that take embeddings instead of tokens.

Latents are input vectors like any other, so what the loop feeds one at a time can be fed in one pass::

    How many clips?   <latent>     z1   z2   </latent>
    E(..) E(..) ..    E(<latent>)  z1   z2   E(</latent>)        [s x d]

A causal model gives the same answer after either: it computes the same keys and values for the same vectors in the same places.
The cost is a second prefill.

The only interface to a method is how it begins prompts (`cirf.lm.decoding.prefix_cache.Beginnings`). The model's inputs are
recorded meanwhile; a position is the model's own if its vector is not the row of its placeholder token.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from cirf.errors import CirfError
from cirf.lm.decoding.prefix_cache import Beginnings, Begun
from cirf.lm.prompt import encode
from cirf.lm.training.loss import unwrap


@dataclass(frozen=True, slots=True)
class Given:
    """A prompt of s positions as a model is given it: ``vectors`` [s x d]; ``ids``: a token for each, which is only a place
    holder where ``own`` [s] is true, that is where the vector is no token's row."""

    ids: list[int]
    vectors: torch.Tensor
    own: torch.Tensor


class _Pass(NamedTuple):
    """One forward pass: vectors [b x t x d], the mask [b x k] of all keys so far, and the cache after it."""

    vectors: torch.Tensor
    mask: torch.Tensor | None
    cache: Any


@torch.inference_mode()
def given(model: Any, beginnings: Beginnings | None, prompts: Sequence[list[int]]) -> list[Given]:
    """What a model is given of a batch of prompts before it answers, row by row. ``None``: their tokens alone.

    ``CirfError`` where a cache was not filled by passes of this model over this batch.
    """
    embed = model.get_input_embeddings()
    passes: list[_Pass] = []
    with _watching(model, passes):
        begun = None if beginnings is None else beginnings.begin(prompts)
    begun = begun or Begun(list(prompts), [0] * len(prompts), None)
    passes = [made for made in passes if made.cache is begun.cache]
    seen = torch.cat([made.vectors for made in passes], dim=1) if passes else None
    mask = passes[-1].mask if passes else None
    if seen is not None and mask is None:
        mask = torch.ones(seen.shape[:2], dtype=torch.long)
    rows = []
    for row, (ids, head) in enumerate(zip(begun.prompts, begun.heads, strict=True)):
        plain = embed(torch.tensor(ids, device=model.device))
        vectors = plain.clone()
        if head:
            fits = seen is not None and mask is not None and mask.shape == seen.shape[:2] and int(mask[row].sum()) == head
            if not fits:
                raise CirfError(
                    "what this model is given before it answers was computed elsewhere, so it cannot be given as vectors"
                )
            assert seen is not None and mask is not None
            vectors[:head] = seen[row][mask[row].bool().to(seen.device)]
        rows.append(Given(ids, vectors, (vectors != plain).any(dim=1)))
    return rows


@contextlib.contextmanager
def _watching(model: Any, passes: list[_Pass]) -> Iterator[None]:
    """Note every pass through a model."""
    inner = unwrap(model)

    def note(module: Any, args: tuple[Any, ...], summary: dict[str, Any], made: Any) -> None:
        vectors = summary.get("inputs_embeds")
        if vectors is None:
            vectors = inner.get_input_embeddings()(summary["input_ids"] if "input_ids" in summary else args[0])
        passes.append(_Pass(vectors, summary.get("attention_mask"), made.past_key_values))

    handle = inner.base_model.register_forward_hook(note, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@torch.inference_mode()
def prefill(model: Any, rows: Sequence[Given]) -> Begun:
    """A generation's beginning from vectors: all but each row's last position in one pass, padded on the left.

    A row's last position must be a token.
    """
    heads = [len(row.ids) - 1 for row in rows]
    longest = max(heads)
    prompts = [row.ids for row in rows]
    if longest == 0:
        return Begun(prompts, heads, None)
    vectors = rows[0].vectors.new_zeros(len(rows), longest, rows[0].vectors.shape[1])
    mask = torch.zeros(len(rows), longest, dtype=torch.long, device=vectors.device)
    for place, (row, head) in enumerate(zip(rows, heads, strict=True)):
        vectors[place, longest - head :] = row.vectors[:head]
        mask[place, longest - head :] = 1
    places = (mask.cumsum(dim=1) - 1).clamp(min=0)
    made = model(inputs_embeds=vectors, attention_mask=mask, position_ids=places, use_cache=True, logits_to_keep=1)
    return Begun(prompts, heads, made.past_key_values)


def prompt_embeddings(
    model: Any, tokenizer: Any, prompts: Sequence[str], beginnings: Beginnings | None, batch_size: int = 16
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
