"""Prompts with vectors in some of their places (soft prompts; SoftCoT, SemCoT): training and reading them.

A row with two vectors, its ids, and which vector goes in at which place::

    How many clips? # # <end of turn> <assistant> 72<end>
    -1 ..           0 1 -1            -1          -1 ..

The ids ``#`` only hold places. They are a token that the tokenizer knows and that nothing else in a prompt can be, so the places
are found by looking for it and not by counting from either end; a user's text cannot hold it (`cirf.lm.prompt.sanitise`). The
vocabulary is unchanged.

The prompts of rows, up to their vectors, in a model that is not trained are computed once for all passes, and cached. On a CPU
each beginning is read by itself, so its values depend on nothing else: a training resumed after a kill computes the same, whether
anything was cached or not. On an accelerator one row takes as long as a batch, so the rows of a batch that are not cached are
read together. If there is too little room, those that came first stay cached and the others are read every time: rows come once
per epoch, so evicting the least recently used would never hit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cirf.cpu.memory import spare
from cirf.errors import CirfError
from cirf.lm.decoding.prefix_cache import Layers, is_plain, joined
from cirf.lm.prompt import encode, prompt_text
from cirf.lm.training.loss import IGNORED, only_at, read_targets, unwrap
from cirf.methods.latent.loop import padded_left


class PromptCache:
    """Keys and values of beginnings, by their ids."""

    def __init__(self, most_bytes: int | None = None, together: bool | None = None) -> None:
        """``most_bytes``: keys and values that are kept; ``None``: what is to `spare` at first. ``together``: read the rows of a
        batch in one pass; ``None``: but on a CPU."""
        self._most_bytes, self._together = most_bytes, together
        self.kept: dict[tuple[int, ...], Layers] = {}
        self._bytes = 0
        self._plain: bool | None = None
        self._tried = False

    @torch.no_grad()
    def cache(self, model: Any, rows: list[list[int]]) -> Any:
        """A cache of beginnings of at least one id each, padded on the left; to be written to as one likes.

        A model that draws at random in training, or keeps its past otherwise than key by key (sliding windows), reads all rows
        in one pass every time.
        """
        device = unwrap(model).device
        if unwrap(model).training and not self._tried:
            self._tried = True
            if _draws(model, rows[0]):
                self._plain = False
                self.kept.clear()
        if self._plain is not False:
            known = self._layers(model, list(map(tuple, rows)))
            if known is not None:
                return joined(known, max(map(len, rows)))
        return _read(model, *(part.to(device) for part in padded_left(rows, rows[0][0])))

    def _layers(self, model: Any, rows: list[tuple[int, ...]]) -> list[Layers] | None:
        """Keys and values of rows; ``None`` where they cannot be had apart."""
        device = unwrap(model).device
        together = device.type != "cpu" if self._together is None else self._together
        new = [row for row in dict.fromkeys(rows) if row not in self.kept]
        made: dict[tuple[int, ...], Layers] = {}
        for batch in [new] * bool(new) if together else [[row] for row in new]:
            ids, mask = (part.to(device) for part in padded_left(batch, batch[0][0]))
            cache = _read(model, ids, mask)
            if self._plain is None:
                self._plain = is_plain(cache)
            if not self._plain:
                return None
            for index, row in enumerate(batch):
                made[row] = [_row(layer.keys, layer.values, index, len(row)) for layer in cache.layers]
                self._keep(row, made[row], str(device))
        return [self.kept.get(row) or made[row] for row in rows]

    def _keep(self, row: tuple[int, ...], layers: Layers, device: str) -> None:
        if self._most_bytes is None:
            self._most_bytes = spare(device)
        size = sum(part.nbytes for pair in layers for part in pair)
        if self._bytes + size <= self._most_bytes:
            self.kept[row] = layers
            self._bytes += size


def _row(keys: torch.Tensor, values: torch.Tensor, place: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One row [1 x heads x length x width] out of a batch padded on the left, without the rest of the batch's memory."""
    first, last = (part[place : place + 1, :, part.shape[2] - length :] for part in (keys, values))
    return (first, last) if first.shape == keys.shape else (first.clone(), last.clone())


def _read(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> Any:
    places = (mask.cumsum(dim=1) - 1).clamp(min=0)
    with only_at(model, torch.empty(0, dtype=torch.long, device=ids.device)):
        return unwrap(model)(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=True).past_key_values


def _draws(model: Any, row: list[int]) -> bool:
    """Whether a model draws at random while it reads, as one with dropout does in training. What is drawn later is as if
    nothing had been drawn here."""
    device = unwrap(model).device
    source: Any = torch if device.type == "cpu" else torch.get_device_module(device)
    before = source.get_rng_state()
    _read(model, torch.tensor([row], device=device), torch.ones(1, len(row), dtype=torch.long, device=device))
    moved = not torch.equal(before, source.get_rng_state())
    source.set_rng_state(before)
    return moved


_MARK = "cirf7question"
_UNQUOTABLE = "'\\\n"


def placeholder(tokenizer: Any) -> str:
    """The token that holds places: the unknown one, the end, the padding, or the first other special one that does not occur in a
    prompt anyway. ``CirfError`` where there is none."""
    bare = set(encode(tokenizer, prompt_text(tokenizer, _MARK)))
    named = [tokenizer.unk_token, tokenizer.eos_token, tokenizer.pad_token]
    others = [token.content for _, token in sorted(tokenizer.added_tokens_decoder.items()) if token.special]
    for token in dict.fromkeys(text for text in [*named, *others] if text):
        ids = encode(tokenizer, token * 2)
        if len(ids) == 2 and ids[0] == ids[1] and ids[0] not in bare and not set(_UNQUOTABLE) & set(token):
            return str(token)
    raise CirfError(f"{tokenizer.name_or_path}: no special token is left to hold the places of vectors; use another model")


def find_run(ids: Sequence[int], token: int) -> tuple[int, int]:
    """Where the placeholders of a row begin, and how many there are. ``CirfError`` where there is none, or where they are not
    adjacent: then it is not a prompt of a method with vectors."""
    places = [index for index, given in enumerate(ids) if given == token]
    if not places or places[-1] - places[0] != len(places) - 1:
        found = "no place" if not places else "several places"
        raise CirfError(f"a prompt has {found} for vectors; render it in the model's own chat template")
    return places[0], len(places)


class TemplateFrame:
    """The text around a user's text in the prompts of a chat template, to recover the user's text from their ids."""

    def __init__(self, tokenizer: Any) -> None:
        """Of the tokenizer's template as it is now."""
        self._tokenizer = tokenizer
        self._head, _, self._tail = prompt_text(tokenizer, _MARK).partition(_MARK)

    def text(self, ids: Sequence[int]) -> str:
        """The user's text of a prompt, without blanks around it. ``CirfError`` for a prompt in another template."""
        decoded = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        # Some tokenizers put a blank in front of what they decode.
        head, tail = self._head.strip(), self._tail.strip()
        inner: str = decoded.strip()
        if not inner.startswith(head) or not inner.endswith(tail) or len(inner) < len(head) + len(tail):
            raise CirfError(f"{decoded[:60]!r} is not a prompt in the model's chat template; render it with that")
        return inner[len(head) : len(inner) - len(tail)].strip()


def slots_of(starts: Sequence[int], counts: Sequence[int], width: int) -> torch.Tensor:
    """Which of its vectors goes in at each place of a row [b x width], -1 where a token does: of each row ``counts`` from the
    column ``starts`` on."""
    slots = torch.full((len(starts), width), -1)
    for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
        slots[row, start : start + count] = torch.arange(count)
    return slots


def embed(model: Any, ids: torch.Tensor, slots: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Inputs [b x s x d]: the embeddings of ``ids`` [b x s], and where ``slots`` [b x s] is not -1 that one of a row's
    ``vectors`` [b x n x d], in the embeddings' number format."""
    tokens = unwrap(model).get_input_embeddings()(ids)
    chosen = vectors.to(tokens.dtype).gather(1, slots.clamp(min=0).unsqueeze(-1).expand(-1, -1, vectors.shape[-1]))
    return torch.where((slots >= 0).unsqueeze(-1), chosen, tokens)


def soft_logits(
    model: Any,
    ids: torch.Tensor,
    labels: torch.Tensor,
    slots: torch.Tensor,
    vectors: torch.Tensor,
    heads: PromptCache | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [m x V] (float32) that predict the m targets, and the targets [m], row by row.

    ``ids``, ``labels`` and ``slots`` are [b x s], padded on the right (see `cirf.lm.training.loss.target_logits`); ``vectors``
    are [b x n x d]. ``heads``, for a model without trained weights: tokens before the vectors, most of a row, are read without a
    graph, and only once if cached. Logits and the vectors' gradient are the same up to rounding.
    """
    starts = (slots >= 0).int().argmax(dim=1)
    if heads is not None and int(starts.min()) > 0:
        return _after_heads(model, ids, labels, slots, vectors, starts, heads)
    logits, targets, _ = read_targets(model, labels, inputs_embeds=embed(model, ids, slots, vectors), use_cache=False)
    return logits, targets


def _after_heads(
    model: Any,
    ids: torch.Tensor,
    labels: torch.Tensor,
    slots: torch.Tensor,
    vectors: torch.Tensor,
    starts: torch.Tensor,
    heads: PromptCache,
) -> tuple[torch.Tensor, torch.Tensor]:
    """For rows whose first vectors are at ``starts`` [b]: the part before, padded on the left, goes into a cache, the rest after
    it."""
    width = ids.shape[1]
    mask = torch.arange(int(starts.max()), device=ids.device) >= (starts.max() - starts)[:, None]
    cache = heads.cache(model, [row[:start] for row, start in zip(ids.tolist(), starts.tolist(), strict=True)])
    ends = ((labels != IGNORED) * torch.arange(1, width + 1, device=ids.device)).amax(dim=1)  # after each row's last target
    places = starts[:, None] + torch.arange(max(1, int((ends - starts).max())), device=ids.device)
    there = places < width
    columns = places.clamp(max=width - 1)
    given = embed(model, ids.gather(1, columns), slots.gather(1, columns).masked_fill(~there, -1), vectors)
    logits, targets, _ = read_targets(
        model,
        labels.gather(1, columns).masked_fill(~there, IGNORED),
        inputs_embeds=given,
        attention_mask=torch.cat([mask, torch.ones_like(there)], dim=1).long(),
        position_ids=columns,  # padding's too stay within the row: some models choose their angles by the largest
        past_key_values=cache,
        use_cache=True,
    )
    return logits, targets
