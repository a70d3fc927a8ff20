"""A small model that reads a question and computes vectors for a larger one (SoftCoT, Xu et al. 2025; SemCoT, He et al. 2025).

It has its own chat template and tokenizer. Its turn begins with n places, whose last states (H after the final norm) are mapped
to the width of the larger model::

    Think of what helps ... How many clips? <end of turn> <assistant> # # #
                                                                      H H H  -> W H + b

The places hold a token of its vocabulary, or one trained vector.

The guide reads the question for every answer, and its time is part of the answer's time. Its vectors go into the cache from which
decoding continues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from cirf.errors import CirfError
from cirf.lm.backbone import load_model, load_tokenizer
from cirf.lm.decoding.prefix_cache import PrefilledPrompts
from cirf.lm.prompt import encode, prompt_text
from cirf.methods.latent.decode import prefill, read_settings, with_vectors
from cirf.methods.latent.loop import padded_left
from cirf.methods.soft.prompts import TemplateFrame, find_run, placeholder
from cirf.recipe import schema
from cirf.store.files import to_json, write_atomic

_FILE, _WEIGHTS = "soft.json", "soft.safetensors"
"""Next to a saved model: which guide computes its vectors and how, and the weights for it."""

_BATCH = 8

OWN = "guide"
"""The subfolder of a saved model that holds a guide trained with it."""


@dataclass(frozen=True, slots=True)
class SoftPromptSettings:
    """How a model is given vectors: ``count`` of them at the token ``placeholder`` in its prompts, from the model
    ``guide`` (a folder, a hub id, ``bundled:NAME``, or the folder `OWN`), which reads ``instruction`` before the question.

    ``fingerprint`` is that of the guide's weights. ``shifted``: the states are taken one place before each of its places.
    ``empty_system``: as in the recipe, for the guide's chat template.
    """

    placeholder: str
    count: int
    guide: str
    fingerprint: str
    instruction: str
    shifted: bool = False
    empty_system: bool = True


class Guide(torch.nn.Module):
    """The small model with what makes vectors of its states."""

    def __init__(self, model: Any, tokenizer: Any, instruction: str, width: int, shifted: bool = False, learned: bool = False):
        """``width``: that of the larger model; ``learned``: the places hold a trained vector, at first the mean row."""
        super().__init__()
        self.model, self.tokenizer, self.instruction, self.shifted = model, tokenizer, instruction, shifted
        self._holder = placeholder(tokenizer)
        self._id = tokenizer.convert_tokens_to_ids(self._holder)
        rows = model.get_input_embeddings().weight
        self.projection = torch.nn.Linear(rows.shape[1], width)
        self.thought = torch.nn.Parameter(rows[: len(tokenizer)].detach().float().mean(dim=0)) if learned else None

    def ids(self, question: str, count: int) -> list[int]:
        """The prompt that it reads, with ``count`` places. Its own special tokens in a question are broken up."""
        text = f"{self.instruction}\n{question}" if self.instruction else question
        made = encode(self.tokenizer, prompt_text(self.tokenizer, text) + self._holder * count)
        assert find_run(made, self._id)[1] == count
        return made

    def batch(self, rows: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        """Rows of `ids` with n places each: ``read`` and ``seen`` [b x s], ids padded on the left and their mask, and ``places``
        [b x n], the columns of the places."""
        read, seen = padded_left(rows, rows[0][0])
        runs = [find_run(row, self._id) for row in rows]
        starts = [start + read.shape[1] - len(row) for row, (start, _) in zip(rows, runs, strict=True)]
        return {"read": read, "seen": seen, "places": torch.tensor(starts)[:, None] + torch.arange(runs[0][1])}

    def states(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Its states at the places of a `batch` [b x n x d_a]."""
        ids, mask, places = (batch[name].to(self.model.device) for name in ("read", "seen", "places"))
        given = self.model.get_input_embeddings()(ids)
        if self.thought is not None:
            held = torch.zeros_like(ids).scatter(1, places, 1).bool()
            given = torch.where(held.unsqueeze(-1), self.thought.to(given.dtype), given)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        made = self.model.base_model(inputs_embeds=given, attention_mask=mask, position_ids=positions, use_cache=False)
        last: torch.Tensor = made.last_hidden_state  # [b x s x d_a], after the final norm
        return last.gather(1, (places - int(self.shifted)).unsqueeze(-1).expand(-1, -1, last.shape[2]))

    @torch.inference_mode()
    def read(self, questions: Sequence[str], count: int) -> torch.Tensor:
        """The states [q x count x d_a] for any number of questions, in batches of like length."""
        rows = [self.ids(question, count) for question in questions]
        order = sorted(range(len(rows)), key=lambda row: (-len(rows[row]), row))
        made: dict[int, torch.Tensor] = {}
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            made |= dict(zip(batch, self.states(self.batch([rows[row] for row in batch])), strict=True))
        return torch.stack([made[row] for row in range(len(rows))])

    def forward(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Its vectors for a `batch` [b x n x d]."""
        made: torch.Tensor = self.projection(self.states(batch).to(self.projection.weight.dtype))
        return made

    def requires_grad_(self, requires_grad: bool = True) -> Guide:
        """As usual, except for the rows of its vocabulary, which are never trained: the places hold a separate vector."""
        super().requires_grad_(requires_grad)
        for part in (self.model.get_input_embeddings(), self.model.get_output_embeddings()):
            if part is not None:
                part.requires_grad_(False)
        return self


def load_guide(
    source: str, section: schema.Backbone, width: int, instruction: str, shifted: bool = False, learned: bool = False
) -> Guide:
    """The guide of a folder, hub id or ``bundled:NAME`` for a model of that ``width``; ``section`` says on which device and in
    which number format. Its own code is not run."""
    apart = {"model": source, "revision": None, "trust_remote_code": False, "architecture": schema.Architecture()}
    section = section.model_copy(update=apart)
    model = load_model(source, section).requires_grad_(False)
    return Guide(model, load_tokenizer(source, section), instruction, width, shifted, learned).to(model.device)


def fingerprint(model: Any) -> str:
    """Identifies weights: the hash of a few numbers of each, in bfloat16, in which all formats agree."""
    digest = hashlib.sha256()
    for name, value in sorted(model.named_parameters()):
        flat = value.detach().flatten()
        few = flat[:: max(1, flat.numel() // 64)][:64].to(torch.bfloat16).float().cpu()
        digest.update(f"{name} {tuple(value.shape)} ".encode() + few.numpy().tobytes())
    return digest.hexdigest()


def save_soft(folder: Path, soft: SoftPromptSettings, projection: torch.nn.Linear, thought: torch.Tensor | None = None) -> None:
    """Write to a model's folder how it is given vectors."""
    weights = {"weight": projection.weight, "bias": projection.bias} | ({} if thought is None else {"thought": thought})
    save_file({name: value.detach().float().cpu().contiguous() for name, value in weights.items()}, folder / _WEIGHTS)
    write_atomic(folder / _FILE, to_json(asdict(soft)))


def read_soft(folder: Path) -> SoftPromptSettings | None:
    """How the model in a folder is given vectors; ``None`` where it is not. ``CirfError`` for a damaged file."""
    return read_settings(folder / _FILE, SoftPromptSettings)


def saved_guide(folder: Path, soft: SoftPromptSettings, model: Any) -> Guide:
    """The guide of a saved ``model``. ``CirfError`` where it is not there, or is not the one that the model was trained with."""
    own = soft.guide == OWN
    path = folder / _WEIGHTS
    try:
        weights = load_file(path)
        # The fingerprint cannot be checked on weights rounded to float16, so bfloat16 is used instead.
        number = model.config.dtype or model.dtype  # that of its values, whatever they are computed in
        dtype = "bfloat16" if number == torch.float16 else str(number).removeprefix("torch.")
        section = schema.Backbone(dtype=dtype, device=str(model.device), empty_system=soft.empty_system)
        source, width = str(folder / OWN) if own else soft.guide, model.get_input_embeddings().weight.shape[1]
        guide = load_guide(source, section, width, soft.instruction, soft.shifted, "thought" in weights)
        guide.projection.load_state_dict({name: weights[name] for name in ("weight", "bias")})
        if guide.thought is not None:
            guide.thought.data.copy_(weights["thought"])
    except CirfError as error:
        raise CirfError(f"{folder}: the model that computes its vectors cannot be loaded: {error}") from None
    except (OSError, SafetensorError, KeyError, RuntimeError):
        raise CirfError(f"{path}: missing, damaged or of another width; train the model again") from None
    if fingerprint(guide.model) != soft.fingerprint:
        raise CirfError(f"{soft.guide}: another model than the one that made the vectors in training; put that one back")
    return guide.requires_grad_(False).eval()


class GuidedPrefiller:
    """Begins prompts to one model with a guide's vectors in their places (see `cirf.lm.decoding.prefix_cache.Prefiller`)."""

    besides = 0  # the prompt has a place for each

    def __init__(self, model: Any, tokenizer: Any, soft: SoftPromptSettings, guide: Guide) -> None:
        """``CirfError`` where the tokenizer does not know the token that holds places."""
        self._model, self.guide, self._frame = model, guide, TemplateFrame(tokenizer)
        known = tokenizer.get_vocab()
        if soft.placeholder not in known:
            raise CirfError(f"the tokenizer does not know {soft.placeholder}, which is to hold the places of vectors")
        self._holder = known[soft.placeholder]

    def prepare(self, prompts: Sequence[str]) -> None:
        """Nothing is kept for other prompts: what a guide reads is part of the answer, and of its time."""

    @torch.inference_mode()
    def vectors(self, prompts: Sequence[list[int]]) -> torch.Tensor:
        """The vectors [b x n x d] for a batch of prompts with n places each. ``CirfError`` for prompts of unlike numbers."""
        counts = {find_run(ids, self._holder)[1] for ids in prompts}
        if len(counts) > 1:
            raise CirfError("prompts of one batch have different numbers of places for vectors; send them separately")
        count = counts.pop()
        rows = [self.guide.ids(self._frame.text(ids), count) for ids in prompts]
        made: torch.Tensor = self.guide(self.guide.batch(rows))
        return made

    @torch.inference_mode()
    def fill(self, prompts: Sequence[list[int]], vectors: torch.Tensor | Sequence[torch.Tensor]) -> PrefilledPrompts:
        """The prompts with these vectors, [n x d] each, in their places, however many there are; all but the last token of each
        is in the cache. ``CirfError`` for a prompt that ends in its places: then nothing would be left to go on from."""
        shown, starts = [], []
        for ids, own in zip(prompts, vectors, strict=True):
            start, count = find_run(ids, self._holder)
            if start + count == len(ids):
                raise CirfError("a prompt ends with the places of vectors; there is no token after them")
            shown.append([*ids[:start], *[self._holder] * len(own), *ids[start + count :]])
            starts.append(start)
        placed = list(zip(starts, vectors, strict=True))
        return replace(prefill(self._model, with_vectors(self._model, shown, placed)), vectors=placed)

    def begin(self, prompts: Sequence[list[int]]) -> PrefilledPrompts:
        return self.fill(prompts, self.vectors(prompts))
