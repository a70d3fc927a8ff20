"""A decoder that predicts, while a model learns to think, the steps that its thoughts replace (SIM-CoT, Wei et al. 2025).

For group k of c thoughts it gets the vectors that were fed to the model and then the text of step k, which it learns to write::

    z z | 48 / 2 = 24 . <end>

Groups of all rows go through it together, in as many passes as pad little (`cirf.lm.training.padding`): a group's step may be a
word, and the last group's all the steps that are left. Its gradients reach the thoughts, and through them the model and the
question. After training it is removed, and the model answers without it.

The decoder is a second set of adapters on the model that is trained, whose own weights are frozen; so it takes no more memory
than adapters do. Where every weight is trained there is nothing frozen to share: then it is adapters on a copy of the model as it
was. Or it is a copy that is trained itself, as in the publication, for twice the memory.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from cirf.lm.adapters import add_second, put_adapters, through
from cirf.lm.training.batches import Feature
from cirf.lm.training.loss import IGNORED, only_at, unwrap
from cirf.lm.training.objective import Batch, Objective
from cirf.lm.training.padding import cut, pass_price
from cirf.lm.vocabulary import is_tied
from cirf.methods.latent.loop import Thoughts
from cirf.methods.latent.loss import LatentObjective
from cirf.recipe import schema

_NAME = "decoder"


_AT_ONCE = 10**12  # the price of a pass, in positions of padding, at which there is one


class Decoder:
    """Predicts steps from thoughts. ``own`` is a separate model, or ``None``: the trained one with a second set of adapters."""

    def __init__(self, own: torch.nn.Module | None = None) -> None:
        """See `copied`; without, it is adapters."""
        self.own = own
        self._learns: list[torch.nn.Parameter] = []

    def join(self, model: Any, section: schema.Finetune, seed: int) -> None:
        """Put its adapters on the model that is trained, or on a copy of it where that has none."""
        if self.own is None and section.adaptation == "lora":
            add_second(model, section.lora, _NAME, seed)
            self._learns = [weight for name, weight in model.named_parameters() if f".{_NAME}." in name]
            return
        if self.own is None:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                self.own = put_adapters(copy.deepcopy(model), section.lora)
        assert self.own is not None
        self._learns = [weight for weight in self.own.parameters() if weight.requires_grad]

    def nothing(self) -> torch.Tensor:
        """0, for a batch without targets: processes that train together wait for gradients of every weight."""
        return torch.stack([weight.sum() for weight in self._learns]).sum() * 0

    @contextlib.contextmanager
    def reading(self, model: Any) -> Iterator[Any]:
        """The model to pass vectors through."""
        if self.own is not None:
            yield self.own
            return
        with through(unwrap(model), _NAME):
            yield model


def copied(model: Any) -> Decoder:
    """A copy of ``model`` in float32, all trained except its separate input matrix, since its inputs are vectors."""
    own = copy.deepcopy(model).float().requires_grad_(True)
    if not is_tied(own):
        own.get_input_embeddings().requires_grad_(False)
    return Decoder(own)


class Explaining(Objective):
    """The sum of another objective's loss and the decoder's, whose weight in an update follows the batch's number of targets."""

    def __init__(self, host: LatentObjective, decoder: Decoder, size: int, beyond: bool, weight: float, mean: bool) -> None:
        """``size``: thoughts a group; ``beyond``: the vector that would come next is a group, too; ``mean``: over the tokens of
        a group, and not their sum over its rows."""
        self.host, self.decoder = host, decoder
        self._size, self._beyond, self._weight, self._mean = size, beyond, weight, mean

    def join(self, model: Any, section: schema.Finetune, seed: int) -> None:
        """The decoder's weights, and the host's net."""
        self.decoder.join(model, section, seed)
        parts = {"host": self.host.module, "decoder": self.decoder.own}
        found = {name: part for name, part in parts.items() if part is not None}
        self.module = torch.nn.ModuleDict(found) if found else None

    def collate(self, features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
        """The host's batch and ``groups`` [b x g x t]: the target ids of each group, padded with `IGNORED`."""
        batch = self.host.collate(features, padding)
        count = max(len(feature.groups) for feature in features)
        longest = max((len(ids) for feature in features for ids in feature.groups), default=0)
        if longest:
            batch["groups"] = torch.full((len(features), count, longest), IGNORED)
            for row, feature in enumerate(features):
                for place, ids in enumerate(feature.groups):
                    batch["groups"][row, place, : len(ids)] = torch.tensor(ids, dtype=torch.long)
        return batch

    def logits(self, model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """The host's."""
        return self.host.logits(model, batch)

    def loss(self, model: Any, batch: Batch, count: torch.Tensor | int | None) -> torch.Tensor:
        """The host's loss and ``weight`` times the decoder's."""
        loss, thoughts = self.host.parts(model, batch, count)
        if thoughts is None or "groups" not in batch or not self._weight:
            return loss + self.decoder.nothing()
        share = 1.0 if count is None else (batch["labels"] != IGNORED).sum() / count
        said = self.said(model, self.vectors(thoughts), batch["counts"] + self._beyond, batch["groups"])
        return loss + self._weight * share * said

    def vectors(self, thoughts: Thoughts) -> torch.Tensor:
        """What the decoder reads [b x n x d]: the vectors that were fed in, and with ``beyond`` the one that would come next
        (all rows must have as many thoughts then)."""
        if not self._beyond:
            return thoughts.latents
        after = thoughts.last if self.host.projector is None else self.host.projector(thoughts.last)
        return torch.cat([thoughts.latents, after[:, None].to(thoughts.latents.dtype)], dim=1)

    def said(self, model: Any, vectors: torch.Tensor, counts: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        """The decoder's loss: of each group the sum over its tokens by the rows in which there are any, or the mean over its
        tokens; then the mean over the groups. ``vectors`` [b x n x d], of which ``counts`` [b] are a row's."""
        lengths = (groups != IGNORED).sum(dim=2)
        rows, places = lengths.nonzero(as_tuple=True)  # r of them
        longs = lengths[rows, places].tolist()
        sums = vectors.new_zeros(groups.shape[1], dtype=torch.float32)
        with self.decoder.reading(model) as decoder:
            price = _AT_ONCE if _casts(decoder, groups.device.type) else pass_price(groups.device.type)
            for numbers in cut([self._size + long for long in longs], price):
                row, place = rows[numbers], places[numbers]
                text = groups[row, place, : longs[numbers[-1]]]  # [r x t]
                words = unwrap(model).get_input_embeddings()(text.clamp(min=0))
                losses, of = self._losses(decoder, *self._of_groups(vectors, counts, row, place), words, text)
                sums = sums.index_add(0, place[of], losses)
        by = torch.bincount(places, weights=lengths[rows, places].float() if self._mean else None, minlength=len(sums))
        return (sums[by > 0] / by[by > 0]).mean()

    def _losses(
        self, decoder: Any, read: torch.Tensor, mask: torch.Tensor, words: torch.Tensor, text: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One pass over vectors [r x c x d], of which ``mask`` [r x c] counts, followed by ``words`` [r x t x d], the rows of
        the ids ``text`` [r x t]: the loss of each target id, and its row."""
        length = read.shape[1] + text.shape[1]
        mask = torch.cat([mask, (text != IGNORED).to(mask)], dim=1)
        row, column = (text != IGNORED).nonzero(as_tuple=True)
        with only_at(decoder, row * length + column + read.shape[1] - 1) as kept:
            given = torch.cat([read, words], dim=1).to(unwrap(decoder).get_input_embeddings().weight.dtype)
            seen = (mask.cumsum(dim=1) - 1).clamp(min=0)
            made = decoder(inputs_embeds=given, attention_mask=mask, position_ids=seen, use_cache=False)
            logits = kept(made.logits).float()
        return torch.nn.functional.cross_entropy(logits, text[row, column], reduction="none"), row

    def _of_groups(
        self, vectors: torch.Tensor, counts: torch.Tensor, rows: torch.Tensor, places: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The vectors of r groups [r x c x d], those of a group with fewer than c on the right, and their mask [r x c]."""
        column = torch.arange(self._size, device=rows.device)
        width = (counts[rows] - places * self._size).clamp(max=self._size)  # [r]
        mask = column >= self._size - width[:, None]
        place = (places * self._size + width)[:, None] - self._size + column  # of each vector among its row's
        return vectors[rows[:, None], place.clamp(min=0)] * mask[..., None], mask.long()


def _casts(model: Any, kind: str) -> bool:
    """Whether every pass casts weights of the model and holds them for its way back: autocast keeps those of trained weights
    alone."""
    if not torch.is_autocast_enabled(kind):
        return False
    dtype = torch.get_autocast_dtype(kind)
    layers = (part.weight for part in model.modules() if isinstance(part, torch.nn.Linear))
    return any(not weight.requires_grad and weight.dtype != dtype for weight in layers)
