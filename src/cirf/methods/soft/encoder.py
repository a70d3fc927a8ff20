"""Sentence vectors from middle layers of a language model (SemCoT, He et al. 2025, arXiv 2510.24940).

T is a copy of those layers with the final norm, then the mean over the positions and a linear map. It reads states of the layer
that comes before its first one: those of a text, or vectors that should have the same meaning::

    text    -> the model's layers 0 .. k-1 -> H [s x d] -> T -> [768]
    vectors                                   Z [n x d] -> T -> [768]

Of 32 layers SemCoT takes numbers 16 to 20; of others as many in proportion.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch

from cirf.cpu.linear import by_onednn
from cirf.cpu.memory import spare
from cirf.errors import CirfError
from cirf.lm.adapters import seeded
from cirf.lm.training.batches import cut, pass_price

WIDTH = 768
"""Width of a sentence vector."""

_FIRST, _LAST, _OF = 16, 21, 32
_PROBE, _SLACK = 8, 0.1  # tokens tried, and by how much of its length a state may differ, which bfloat16 stays far below


def layer_range(depth: int) -> tuple[int, int]:
    """The first of the layers that are copied and the one after the last, of a model with ``depth`` layers; at least one."""
    first = min(depth - 1, round(depth * _FIRST / _OF))
    return first, max(first + 1, round(depth * _LAST / _OF))


class SentenceEncoder(torch.nn.Module):
    """T, in float32. Without dropout, whatever the model has."""

    def __init__(self, model: Any, attention: Literal["causal", "bidirectional"] = "causal", seed: int = 0) -> None:
        """Copy the layers of a causal language model. ``attention``: whether a position sees later ones. ``CirfError`` for a
        model whose layers cannot be run by themselves as they run in it."""
        super().__init__()
        self.first, last = layer_range(model.config.get_text_config(decoder=True).num_hidden_layers)
        self._causal = attention == "causal"
        self.body = by_onednn(_copied(model.base_model, self.first, last).to(model.device, torch.float32).eval())
        with seeded(seed):
            self.head = torch.nn.Linear(model.get_input_embeddings().weight.shape[1], WIDTH)
        self.head.to(model.device)
        _check(model, self.body, self.first, last)

    def pooled(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The mean [b x d] over the positions that count; ``states`` [b x s x d], ``mask`` [b x s], 1 for those."""
        seen = attention_mask(mask, self._causal)
        with torch.autocast(states.device.type, enabled=False):
            made = self.body(inputs_embeds=states.float(), attention_mask=seen, use_cache=False).last_hidden_state
        counted = mask.to(made.dtype).unsqueeze(-1)
        mean: torch.Tensor = (made * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1)
        return mean

    def pooled_texts(self, texts: TextStates, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        """`pooled` of texts [b x d], in as many passes as pad little."""
        passes = cut([len(row) for row in rows], pass_price(self.head.weight.device.type))
        made = torch.cat([self.pooled(*texts([rows[row] for row in numbers])) for numbers in passes])
        places = torch.tensor([row for numbers in passes for row in numbers], device=made.device)
        return made[places.argsort()]

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Sentence vectors [b x 768]."""
        made: torch.Tensor = self.head(self.pooled(states, mask))
        return made

    def train(self, mode: bool = True) -> SentenceEncoder:
        return super().train(False)


@torch.no_grad()
def text_states(model: Any, rows: Sequence[Sequence[int]], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What layer ``layer`` of a model is given for texts as ids, states [b x s x d], and their mask [b x s]; padded on the
    right."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=model.device)
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=model.device)
    found: list[torch.Tensor] = []

    def take(module: Any, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        found.append(args[0] if args else given["hidden_states"])
        raise _StatesReady

    hook = _layers(model.base_model)[layer].register_forward_pre_hook(take, with_kwargs=True)
    try:
        with contextlib.suppress(_StatesReady):
            model.base_model(input_ids=ids, attention_mask=mask, use_cache=False)
    finally:
        hook.remove()
    return found[0], mask


class TextStates:
    """States of texts, each read once and by itself while there is memory to keep them in; others are read every time."""

    def __init__(self, model: Any, layer: int, most_bytes: int | None = None) -> None:
        """See `text_states`. ``most_bytes`` are kept; ``None``: what is to `spare`."""
        self._model, self._layer = model, layer
        self._left = spare(str(model.device)) if most_bytes is None else most_bytes
        self._kept: dict[tuple[int, ...], torch.Tensor] = {}

    def __call__(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        made = [self.states(tuple(row)) for row in rows]
        longest = max(map(len, made))
        mask = [[1] * len(states) + [0] * (longest - len(states)) for states in made]
        return torch.nn.utils.rnn.pad_sequence(made, batch_first=True), torch.tensor(mask, device=made[0].device)

    def states(self, row: tuple[int, ...]) -> torch.Tensor:
        """States [s x d] of one text."""
        if row in self._kept:
            return self._kept[row]
        made = text_states(self._model, [row], self._layer)[0][0]
        if made.nbytes <= self._left:
            self._left -= made.nbytes
            self._kept[row] = made
        return made


class _StatesReady(Exception):
    """The wanted states of a pass are there; later layers need not run."""


def _layers(inner: Any) -> torch.nn.ModuleList:
    return max((part for part in inner.children() if isinstance(part, torch.nn.ModuleList)), key=len)


def contrast(long: torch.Tensor, short: torch.Tensor) -> torch.Tensor:
    """L_B: the contrastive loss of matching each long text's vector [b x w] with its own short one's [b x w] among the batch, by
    cosine and without temperature."""
    cosines = torch.nn.functional.normalize(long, dim=1) @ torch.nn.functional.normalize(short, dim=1).T
    return torch.nn.functional.cross_entropy(cosines, torch.arange(len(long), device=long.device))


def _copied(inner: Any, first: int, last: int) -> Any:
    """A model of those layers and what follows the last, with separate weights and no vocabulary."""
    config = copy.deepcopy(inner.config)
    config.num_hidden_layers = last - first
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[first:last]
    config.vocab_size, config.pad_token_id = 1, None
    with torch.random.fork_rng(devices=[]):
        made = type(inner)(config)
    lists = {name for name, part in made.named_children() if isinstance(part, torch.nn.ModuleList)}
    known, own = inner.state_dict(), made.state_dict()
    for name, value in own.items():
        part, _, rest = name.partition(".")
        if part in lists:
            number, _, rest = rest.partition(".")
            value.copy_(known[f"{part}.{int(number) + first}.{rest}"])
        elif name in known and known[name].shape == value.shape:
            value.copy_(known[name])
    for module in made.modules():  # learned positions are in the states already
        if isinstance(module, torch.nn.Embedding):
            torch.nn.init.zeros_(module.weight)
    return made


def attention_mask(mask: torch.Tensor, causal: bool) -> torch.Tensor:
    """Who sees whom [b x 1 x s x s], 0 where one does and very little where one does not. Written out, since what attention
    kernels make of a mask of two dimensions differs."""
    size = mask.shape[1]
    seen = (mask > 0)[:, None, None, :].expand(-1, 1, size, -1)
    if causal:
        seen = seen & torch.ones(size, size, dtype=torch.bool, device=mask.device).tril()
    return torch.zeros(seen.shape, device=mask.device).masked_fill(~seen, torch.finfo(torch.float32).min)


@torch.no_grad()
def _check(model: Any, body: Any, first: int, last: int) -> None:
    """``CirfError`` unless the copied layers pass states on as they do in the model."""
    ids = torch.arange(_PROBE, device=model.device)[None]
    whole = model.base_model(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states
    mask = attention_mask(torch.ones_like(ids), causal=True)
    outputs: list[Any] = []
    layers = next(part for part in body.children() if isinstance(part, torch.nn.ModuleList))
    hook = layers[-1].register_forward_hook(lambda layer, given, made: outputs.append(made))
    made = body(inputs_embeds=whole[first].float(), attention_mask=mask, use_cache=False).last_hidden_state
    hook.remove()
    before_norm = outputs[0][0] if isinstance(outputs[0], tuple) else outputs[0]
    found, wanted = before_norm if last < len(whole) - 1 else made, whole[last].float()  # the last of all has the norm on it
    if ((found - wanted).norm(dim=-1) > _SLACK * wanted.norm(dim=-1)).any():
        kind = type(model.base_model).__name__
        raise CirfError(f"backbone.model: the middle layers of a {kind} cannot be run by themselves, which sem_cot needs")
