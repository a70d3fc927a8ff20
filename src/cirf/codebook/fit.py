"""Training of the VQ-VAE: autoencoder, first codes, VQ epochs; resumable after any epoch (paper 3.2, eq. 10).

The phases of a fit::

    autoencoder epochs   encoder and decoder learn z' -> x -> z'
    first codes          balanced clusters, k-means or noise (the codebook-construction ablation)
    VQ epochs            each: assign all segments to the current codes, then one pass of eq. 10 with these codes

A segment keeps the code it got at the start of an epoch for that whole epoch: a balanced assignment is a property of the whole
set, so a minibatch cannot make its own. ``section.reassign`` says whether it is balanced, for all three initialisers alike, or
each segment takes its nearest code. Each of the two phases has its own Adam. The order of segments is drawn from (seed, phase,
epoch), so the state on disk is weights and moments alone, and a resumed fit sees the same batches as an uninterrupted one.

The order of an epoch is a permutation of all rows where they fit into memory. A set on disk would be read one row at a
time: blocks of neighbouring rows are drawn in any order until they fill a buffer, and the rows of the buffer are then permuted::

    blocks of the file      0 1 2 3 4 5 6 7
    buffers                 [5 0 6] [3 7 1] [4 2]       each: its rows in any order

With 256 blocks to a buffer, a batch has rows from all over the set.

Several processes share the assignment by pieces of the set, to the last bit as with one process. They share each batch by its
rows: all add up their gradients and make the same update, that of one process up to rounding. With fewer than
``MIN_ROWS_PER_PROCESS`` rows each, gradients take longer to exchange than to compute; then the main process updates alone and
hands its weights on.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cirf.codebook.rows import Rows, chunk_rows, chunks, held_rows
from cirf.codebook.sinkhorn import PIECE, assign, blocks, own_rows
from cirf.codebook.vqvae import VQVAE, EncodedRows
from cirf.distributed import ALONE, Share
from cirf.errors import CirfError
from cirf.progress import Advance, Progress
from cirf.recipe import schema
from cirf.store.files import whole_path

SAVE_EVERY = 2.0
"""Seconds between two saved states: an epoch of a small set is cheaper than writing it down."""

MIN_ROWS_PER_PROCESS = 64
"""Fewest rows of a batch that are worth a process: with 64 a CPU core breaks even (docs/how-to/several-machines.md)."""

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
    vectors: Rows,
    width: int,
    section: schema.Codebook,
    seed: int,
    work: Path,
    progress: Progress,
    device: str = "cpu",
    share: Share = ALONE,
) -> Fit:
    """Train a VQ-VAE on z' [M x d_s] with codes ``width`` wide, as ``section`` says; progress is kept in ``work/scratch``.

    Memory holds M x K numbers while segments are assigned, at most ``rows.HELD`` bytes of z' while they are trained on, and the
    model; z' itself may be on disk, and x = F_enc(z') is never held as a whole.

    Called again after a kill, it resumes from the last saved epoch and ends with the same bytes as an uninterrupted fit. All
    processes that ``share`` the work must call this; the main one keeps the progress. ``CirfError`` if there are fewer distinct
    segments than codes, or a loss is no longer finite.
    """
    check_size(vectors, section)
    saved = _State(work / "scratch" / "vqvae.pt", _fingerprint(vectors, width, section, seed, device), share)
    model = VQVAE(vectors.shape[1], section.hidden, width, section.codes, torch.Generator().manual_seed(_mix(seed, 0, 0))).to(
        device
    )
    state = share.settled(lambda: saved.load(model, section)) or Fit(model, _adam(model, "autoencoder", section))
    epochs = {"autoencoder": section.autoencoder_epochs, "vq": section.vq_epochs}
    for number, phase in enumerate(_PHASES):
        if phase == "vq" and state.phase == "autoencoder":
            with torch.no_grad():
                model.codes.copy_(first_codes(EncodedRows(model.encoder, vectors), vectors, section, _mix(seed, 1, 0), share))
            share.from_main([model.codes])  # for k-means may be rounded otherwise on another machine
            state.phase, state.optimiser = phase, _adam(model, phase, section)
            saved.save(state)
        done = len(state.losses[phase])
        if state.phase != phase or done >= epochs[phase]:
            continue
        rows = len(vectors)
        with progress.task(f"{phase} ({section.codes} codes)", epochs[phase] * rows, "segments", done * rows) as advance:
            for epoch in range(done, epochs[phase]):
                drawn = batches(vectors, section.batch_size, _mix(seed, 2 + number, epoch))
                state.losses[phase].append(_epoch(state, vectors, drawn, section, epoch, advance, share))
                saved.save(state, at_most_every=SAVE_EVERY)
    return state


def _epoch(
    state: Fit,
    vectors: Rows,
    drawn: Iterable[tuple[Tensor, Tensor]],
    section: schema.Codebook,
    epoch: int,
    advance: Advance,
    share: Share,
) -> dict[str, float]:
    """One pass over z' [M x d_s] in the ``drawn`` batches; the mean of each loss over the segments."""
    model, device = state.model, state.model.codes.device
    trained = _trained(model, state.phase)
    assignment = None
    if state.phase == "vq":
        assignment = assign(EncodedRows(model.encoder, vectors), model.codes.detach(), section.sinkhorn, share=share)
        codes = assignment.codes if section.reassign == "sinkhorn" else assignment.nearest
    sums: dict[str, Tensor] = {}
    sharing = share if section.batch_size >= MIN_ROWS_PER_PROCESS * share.of else ALONE
    mine = slice(sharing.rank, None, sharing.of)  # of a batch; may be empty in the last one
    for rows, batch in drawn if share.main or sharing is share else ():
        part = batch[mine].contiguous().to(device)
        if assignment is None:
            found = {"total": model.reconstruction(part, len(rows))}
        else:
            terms = model.losses(part, codes[rows[mine].to(device)], section.gradient, len(rows))
            found = {"total": terms.total(section.beta)} | vars(terms)
        state.optimiser.zero_grad(set_to_none=True)
        found["total"].backward()  # type: ignore[no-untyped-call]
        sharing.add_up([weight.grad for weight in trained if weight.grad is not None])
        torch.nn.utils.clip_grad_norm_(trained, section.max_grad_norm)
        state.optimiser.step()
        for name, loss in found.items():
            sums[name] = sums.get(name, torch.zeros((), dtype=torch.float64, device=device)) + loss.detach().double() * len(rows)
        advance(len(rows))
    share.from_main(trained)  # also where all updated: machines may round differently
    sharing.add_up(list(sums.values()))
    means = share.gathered({name: float(value) / len(vectors) for name, value in sums.items()})[0]
    if not math.isfinite(means["total"]):
        raise CirfError(f"codebook: the {state.phase} loss is not finite in epoch {epoch + 1}; lower codebook.learning_rate")
    if assignment is not None:
        means |= {"column_imbalance": assignment.column_imbalance, "disagreement": assignment.disagreement}
    return means


def _adam(model: VQVAE, phase: str, section: schema.Codebook) -> torch.optim.Adam:
    return torch.optim.Adam(_trained(model, phase), lr=section.learning_rate, fused=True)


def _trained(model: VQVAE, phase: str) -> list[Tensor]:
    codes = [model.codes] if phase == "vq" else []
    return [*model.encoder.parameters(), *model.decoder.parameters(), *codes]


def _mix(seed: int, purpose: int, epoch: int) -> int:
    """A separate seed for each purpose and epoch."""
    return int(np.random.SeedSequence([seed, purpose, epoch]).generate_state(1)[0])


def _fingerprint(vectors: Rows, width: int, section: schema.Codebook, seed: int, device: str) -> str:
    """What a fit depends on; the state of another fit is not resumed."""
    apart = {"reuse", "sizes", "size_trials", "chosen", "dimension", "representation", "single_step", "assign"}
    keys = section.model_dump(mode="json", exclude=apart)
    facts: dict[str, Any] = {"version": _VERSION, "width": width, "seed": seed, "device": device, "section": keys}
    facts["shape"] = list(vectors.shape)
    if len(vectors) > held_rows(vectors.shape[1]):
        facts["buffer"] = held_rows(vectors.shape[1])  # the order of an epoch depends on it
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for piece in chunks(*vectors.shape):
        digest.update(np.ascontiguousarray(vectors[piece], np.float32).data)
    return digest.hexdigest()


class _State:
    """The file from which a fit resumes: weights, Adam's moments, losses, phase."""

    def __init__(self, path: Path, fingerprint: str, share: Share) -> None:
        self._path = path
        self._fingerprint = fingerprint
        self._share = share
        self._saved = time.monotonic()

    def save(self, state: Fit, at_most_every: float = 0.0) -> None:
        if not self._share.main or time.monotonic() - self._saved < at_most_every:
            return
        facts = {"fingerprint": self._fingerprint, "phase": state.phase, "losses": state.losses}
        with whole_path(self._path) as temporary:
            torch.save(facts | {"model": state.model.state_dict(), "adam": state.optimiser.state_dict()}, temporary)
        self._saved = time.monotonic()

    def load(self, model: VQVAE, section: schema.Codebook) -> Fit | None:
        try:
            facts = torch.load(self._path, map_location="cpu", weights_only=True)
        except Exception:  # not there, or damaged, at which torch raises whatever it likes
            return None
        if facts["fingerprint"] != self._fingerprint:
            return None
        model.load_state_dict(facts["model"])
        optimiser = _adam(model, facts["phase"], section)
        optimiser.load_state_dict(facts["adam"])
        return Fit(model, optimiser, facts["losses"], facts["phase"])


_KMEANS_STARTS = 4


def first_codes(encoded: EncodedRows, vectors: Rows, section: schema.Codebook, seed: int, share: Share = ALONE) -> Tensor:
    """K codes [K x d_e] for the encoded set x [M x d_e] of ``vectors`` z' [M x d_s], by ``section.initialiser``.

    * ``sinkhorn``: K anchors drawn from the set, a balanced assignment to them (eq. 6-8), each code the mean of its
      segments; a code without any keeps its anchor.
    * ``kmeans``: scikit-learn's, the best of four seeded starts; of a set whose x is more than ``rows.HELD`` bytes, on a seeded
      draw of as many of its rows as that holds.
    * ``random``: Gaussian noise with the root mean square of the encoded set.

    All processes that ``share`` the work must call this. ``CirfError`` if there are fewer (distinct) segments than codes.
    """
    check_size(vectors, section)
    if section.initialiser == "sinkhorn":
        anchors = encoded.take(draw_distinct(vectors, section.codes, seed))
        codes = assign(encoded, anchors, section.sinkhorn, share=share).codes
        return code_means(encoded.pieces(share), own_rows(codes, share), anchors, share)
    if section.initialiser == "kmeans":
        return _kmeans(encoded, section.codes, seed)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(section.codes, encoded.shape[1], generator=generator)
    size = _mean_square(encoded).sqrt()
    return noise.to(size) * size


def check_size(vectors: Rows, section: schema.Codebook) -> None:
    """``CirfError`` unless there is a distinct segment for every code."""
    found = len(vectors)
    if found >= section.codes:
        found = len(draw_distinct(vectors, section.codes, 0))
    if found < section.codes:
        raise CirfError(f"codebook.size is {section.codes}, but only {found} segments are distinct; set it to {found} or fewer")


def draw_distinct(vectors: Rows, count: int, seed: int) -> np.ndarray:
    """Indices of up to ``count`` rows of ``vectors`` [M x d], drawn by the seed, no two rows alike: int64 [<= count].

    Equal segments would give equal anchors, which no assignment can distinguish. Rows are read until there are enough.
    """
    seen: set[bytes] = set()
    chosen = list[int]()
    order = np.random.default_rng(seed).permutation(len(vectors))
    size = min(max(count, 1), chunk_rows(vectors.shape[1]))
    for start in range(0, len(order), size):
        drawn = order[start : start + size]
        for index, row in zip(drawn.tolist(), vectors[drawn], strict=True):
            if len(chosen) == count:
                break
            if row.tobytes() not in seen:
                seen.add(row.tobytes())
                chosen.append(index)
        if len(chosen) == count:
            break
    return np.array(chosen, dtype=np.int64)


def code_means(encoded: Iterable[Tensor], codes: Tensor, fallback: Tensor, share: Share = ALONE) -> Tensor:
    """Mean [K x d] of the rows of ``encoded``, M of them in pieces [n x d], with each code [M]; a code without any keeps its
    ``fallback`` row. With processes that ``share`` the rows each gives its own, and gets the means of all.

    Summed on the CPU in double precision: a GPU adds in no fixed order.
    """
    sums = torch.zeros(fallback.shape, dtype=torch.float64)
    codes = codes.cpu()
    done = 0
    for piece in encoded:
        for block in blocks(piece):
            sums.index_add_(0, codes[done : done + len(block)], block.cpu().double())
            done += len(block)
    counts = torch.bincount(codes, minlength=len(fallback))
    share.add_up([sums])
    share.add_up([counts])
    means = (sums / counts.clamp(min=1)[:, None]).to(fallback)
    return torch.where((counts > 0)[:, None].to(fallback.device), means, fallback)


def _mean_square(encoded: EncodedRows) -> Tensor:
    """Mean square of the encoded set, added up over parts of it that memory holds."""
    size = max(held_rows(encoded.shape[1]) // PIECE, 1) * PIECE
    total = 0.0
    for start in range(0, len(encoded), size):
        part = torch.cat([encoded.piece(at) for at in range(start, min(start + size, len(encoded)), PIECE)])
        total += float(part.square().mean()) * len(part)
    return torch.tensor(total / len(encoded), dtype=part.dtype, device=part.device)


def _kmeans(encoded: EncodedRows, size: int, seed: int) -> Tensor:
    # Loaded by name: neither has type hints. One thread, since threads add up centres in no fixed order.
    clusters = import_module("sklearn.cluster")
    limits = import_module("threadpoolctl").threadpool_limits
    rows = np.arange(len(encoded))
    if len(rows) > held_rows(encoded.shape[1]):
        rows = np.sort(np.random.default_rng(seed).choice(rows, held_rows(encoded.shape[1]), replace=False))
    x = encoded.take(rows)
    with limits(1):
        found = clusters.KMeans(size, n_init=_KMEANS_STARTS, random_state=seed).fit(x.cpu().numpy())
    return torch.from_numpy(np.ascontiguousarray(found.cluster_centers_)).to(x)


BLOCKS = 256
"""Blocks a buffer: few enough that a block of wide rows is about a megabyte, and is read at the disk's full speed."""


def batches(rows: Rows, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch over ``rows`` [M x d]: indices int64 [b] and vectors [b x d] of each batch, where b is ``size`` but for the last.

    Every row comes once. At most ``rows.HELD`` bytes of vectors, or one batch of them, are in memory; a set no larger than
    that comes in the order of NumPy's seeded permutation.
    """
    count, width = rows.shape
    most = max(held_rows(width), size)
    room = np.empty((most, width), np.float32) if count > most else None
    left: list[tuple[Tensor, Tensor]] = []
    for spans, order in buffers(count, most, seed):
        if room is None:
            data = np.ascontiguousarray(rows[spans[0]])
        else:
            data = room[: len(order)]
            for place, span in zip(_places(spans), spans, strict=True):
                data[place] = rows[span]
        numbers = np.concatenate([np.arange(span.start, span.stop) for span in spans])
        begun = sum(len(kept) for kept, _ in left)
        for chosen in np.split(order, range(size - begun, len(order), size)):
            left.append((torch.from_numpy(numbers[chosen]), torch.from_numpy(data)[torch.from_numpy(chosen)]))
            if begun + len(chosen) == size:
                yield _one(left)
                left, begun = [], 0
    if left:
        yield _one(left)


def buffers(count: int, most: int, seed: int) -> Iterator[tuple[list[slice], np.ndarray]]:
    """The spans that fill each buffer of at most ``most`` of ``count`` rows, and the order [n] of its rows."""
    random = np.random.default_rng(seed)
    if count <= most:
        yield [slice(0, count)], random.permutation(count)
        return
    block = max(1, most // BLOCKS)
    starts = random.permutation(np.arange(0, count, block)).tolist()
    for first in range(0, len(starts), most // block):
        spans = [slice(start, min(start + block, count)) for start in starts[first : first + most // block]]
        yield spans, random.permutation(sum(span.stop - span.start for span in spans))


def _places(spans: list[slice]) -> list[slice]:
    stops = np.cumsum([span.stop - span.start for span in spans]).tolist()
    return [slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False)]


def _one(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """A batch of the end of one buffer and the beginning of the next."""
    if len(parts) == 1:
        return parts[0]
    return torch.cat([numbers for numbers, _ in parts]), torch.cat([vectors for _, vectors in parts])
