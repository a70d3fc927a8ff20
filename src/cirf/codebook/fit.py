"""Training of the VQ-VAE: autoencoder, first codes, VQ epochs; resumable after any epoch (paper 3.2, eq. 10).

The course of a fit::

    autoencoder epochs   encoder and decoder learn z' -> x -> z'
    first codes          initialise.py
    VQ epochs            each: assign all segments evenly to the current codes, then one pass of eq. 10 with these codes

A segment keeps the code it got at the start of an epoch for that whole epoch: a balanced assignment is a property of the
whole set, so a minibatch cannot make its own. All three initialisers are followed by the same balanced VQ epochs. Each of
the two phases has its own Adam. The order of segments is drawn from (seed, phase, epoch), so the state on disk is weights
and moments alone, and a resumed fit sees the very batches an unbroken one would.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from cirf import recipe
from cirf.codebook.initialise import check_size, first_codes
from cirf.codebook.order import batches
from cirf.codebook.rows import Rows, chunks, held_rows
from cirf.codebook.sinkhorn import assign
from cirf.codebook.vqvae import VQVAE, Encoded
from cirf.errors import CirfError
from cirf.files import write_atomic
from cirf.progress import Advance, Progress

SAVE_EVERY = 2.0
"""Seconds between two saved states: an epoch of a small set is cheaper than writing it down."""

_VERSION = 1
_PHASES = ("autoencoder", "vq")


@dataclass
class Fit:
    """A fit at some epoch: the model, its optimiser and the losses so far (mean over segments, by phase, one dict an epoch)."""

    model: VQVAE
    optimiser: torch.optim.Adam
    losses: dict[str, list[dict[str, float]]] = field(default_factory=lambda: {phase: [] for phase in _PHASES})
    phase: str = "autoencoder"


def fit(
    vectors: Rows, width: int, section: recipe.Codebook, seed: int, work: Path, progress: Progress, device: str = "cpu"
) -> Fit:
    """Train a VQ-VAE on z' [M x d_s] with codes ``width`` wide, as ``section`` says; progress is kept in ``work/scratch``.

    Memory holds M x K numbers while segments are assigned, at most ``rows.HELD`` bytes of z' while they are trained on, and the
    model; z' itself may lie on disk, and x = F_enc(z') is never there as a whole.

    Called again after a kill it goes on from the last saved epoch and ends with the same bytes as an unbroken fit.
    ``CirfError`` if there are fewer distinct segments than codes, or a loss is no longer finite.
    """
    check_size(vectors, section)
    saved = _State(work / "scratch" / "vqvae.safetensors", _fingerprint(vectors, width, section, seed, device))
    model = VQVAE(vectors.shape[1], section.hidden, width, section.size, torch.Generator().manual_seed(_mix(seed, 0, 0))).to(
        device
    )
    state = saved.load(model, section) or Fit(model, _adam(model, "autoencoder", section))
    epochs = {"autoencoder": section.autoencoder_epochs, "vq": section.vq_epochs}
    for number, phase in enumerate(_PHASES):
        if phase == "vq" and state.phase == "autoencoder":
            with torch.no_grad():
                model.codes.copy_(first_codes(Encoded(model.encoder, vectors), vectors, section, _mix(seed, 1, 0)))
            state.phase, state.optimiser = phase, _adam(model, phase, section)
            saved.save(state)
        done = len(state.losses[phase])
        if state.phase != phase or done >= epochs[phase]:
            continue
        rows = len(vectors)
        with progress.task(f"{phase} ({section.size} codes)", epochs[phase] * rows, "segments", done * rows) as advance:
            for epoch in range(done, epochs[phase]):
                state.losses[phase].append(_epoch(state, vectors, _mix(seed, 2 + number, epoch), section, epoch, advance))
                saved.save(state, at_most_every=SAVE_EVERY)
    return state


def _epoch(state: Fit, vectors: Rows, seed: int, section: recipe.Codebook, epoch: int, advance: Advance) -> dict[str, float]:
    """One pass over z' [M x d_s] in an order drawn by the seed; the mean of each loss over the segments."""
    model, device = state.model, state.model.codes.device
    trained = _trained(model, state.phase)
    assignment = None
    if state.phase == "vq":
        assignment = assign(Encoded(model.encoder, vectors), model.codes.detach(), section.sinkhorn)
    sums: dict[str, Tensor] = {}
    for rows, batch in batches(vectors, section.batch_size, seed):
        batch = batch.to(device)
        if assignment is None:
            found = {"total": model.reconstruction(batch)}
        else:
            terms = model.losses(batch, assignment.codes[rows.to(device)], section.gradient)
            found = {"total": terms.total(section.beta)} | vars(terms)
        state.optimiser.zero_grad(set_to_none=True)
        found["total"].backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(trained, section.clip)
        state.optimiser.step()
        for name, loss in found.items():
            sums[name] = sums.get(name, torch.zeros((), dtype=torch.float64, device=device)) + loss.detach().double() * len(rows)
        advance(len(rows))
    means = {name: float(value) / len(vectors) for name, value in sums.items()}
    if not math.isfinite(means["total"]):
        raise CirfError(f"codebook: the {state.phase} loss is not finite in epoch {epoch + 1}; lower codebook.learning_rate")
    if assignment is not None:
        means |= {"column_imbalance": assignment.column_imbalance, "disagreement": assignment.disagreement}
    return means


def _adam(model: VQVAE, phase: str, section: recipe.Codebook) -> torch.optim.Adam:
    return torch.optim.Adam(_trained(model, phase), lr=section.learning_rate, fused=True)


def _trained(model: VQVAE, phase: str) -> list[Tensor]:
    codes = [model.codes] if phase == "vq" else []
    return [*model.encoder.parameters(), *model.decoder.parameters(), *codes]


def _mix(seed: int, purpose: int, epoch: int) -> int:
    """A seed of its own for each purpose and epoch."""
    return int(np.random.SeedSequence([seed, purpose, epoch]).generate_state(1)[0])


def _fingerprint(vectors: Rows, width: int, section: recipe.Codebook, seed: int, device: str) -> str:
    """What the course of a fit depends on; a state of another fit is not gone on from."""
    keys = section.model_dump(mode="json", exclude={"reuse", "sizes", "dimension", "representation", "single_step", "assign"})
    facts: dict[str, Any] = {"version": _VERSION, "width": width, "seed": seed, "device": device, "section": keys}
    facts["shape"] = list(vectors.shape)
    if len(vectors) > held_rows(vectors.shape[1]):
        facts["buffer"] = held_rows(vectors.shape[1])  # the order of an epoch depends on it
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for piece in chunks(*vectors.shape):
        digest.update(np.ascontiguousarray(vectors[piece], np.float32).data)
    return digest.hexdigest()


class _State:
    """The file that a fit goes on from: weights, Adam's moments, losses, phase. One metadata key, so its bytes are fixed."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._path = path
        self._fingerprint = fingerprint
        self._saved = time.monotonic()

    def save(self, state: Fit, at_most_every: float = 0.0) -> None:
        if time.monotonic() - self._saved < at_most_every:
            return
        tensors = {f"model.{name}": tensor for name, tensor in state.model.state_dict().items()}
        for index, moments in state.optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{index}.{name}": tensor for name, tensor in moments.items()}
        facts = {"fingerprint": self._fingerprint, "phase": state.phase, "losses": state.losses}
        data = save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, {"fit": json.dumps(facts)})
        write_atomic(self._path, data)
        self._saved = time.monotonic()

    def load(self, model: VQVAE, section: recipe.Codebook) -> Fit | None:
        try:
            with safe_open(self._path, framework="pt") as file:
                facts = json.loads((file.metadata() or {}).get("fit", "{}"))
                if facts.get("fingerprint") != self._fingerprint:
                    return None
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        except (FileNotFoundError, SafetensorError):
            return None
        model.load_state_dict({name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")})
        optimiser = _adam(model, facts["phase"], section)
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("adam."):
                _, index, moment = name.split(".")
                moments.setdefault(int(index), {})[moment] = tensor
        optimiser.load_state_dict(optimiser.state_dict() | {"state": moments})
        return Fit(model, optimiser, facts["losses"], facts["phase"])
