"""Balanced assignment of M vectors to K anchors by Sinkhorn-Knopp, in the log domain (paper eq. 6-9).

    distances [M x K]  ->  A = exp(-d²/λ)  ->  columns to M/K, rows to 1, columns ...  ->  Q  ->  argmax of each row

exp(-d²/0.05) underflows for ordinary distances, so A is never formed: only its logarithm and one scaling per column. A round
updates rows and then columns of a chunk while it is in the cache, so the matrix is read once per round.

Several processes share the rows, in pieces of ``PIECE``, and exchange what each chunk adds to a column. That is added up in the
order of the chunks, so the codes do not depend on the number of processes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from cirf.cpu.linear import linear
from cirf.distributed import ALONE, Share
from cirf.errors import CirfError
from cirf.recipe import schema

_CHUNK = 2048
"""Rows worked on at once: few enough that a chunk of M x K stays in a core's cache."""
PIECE = 8192
"""Rows encoded at once, and given to one process; a multiple of a chunk."""
_FLOOR = -1e30
"""Lowest log affinity; keeps sums of a few of them finite in float32. No distance that matters comes near it."""


class Points(Protocol):
    """Vectors [M x d] read a piece at a time, in order; ``vqvae.EncodedRows`` is one."""

    @property
    def shape(self) -> tuple[int, int]:
        """M and d."""

    def pieces(self, share: Share = ALONE) -> Iterator[Tensor]:
        """The rows of a process's share, in pieces of ``PIECE`` or, at the end, fewer."""


@dataclass(frozen=True, eq=False)
class Assignment:
    """Codes of M vectors.

    ``codes`` int64 [M]: the balanced argmax (eq. 8); ``nearest`` int64 [M]: the nearest anchor; ``column_imbalance``:
    the largest relative deviation of a column of Q from M/K (0: perfectly balanced).
    """

    codes: Tensor
    nearest: Tensor
    column_imbalance: float

    @property
    def disagreement(self) -> float:
        """Share of vectors whose balanced code is not their nearest."""
        return float((self.codes != self.nearest).double().mean())


def sinkhorn(
    squared_distances: Tensor,
    temperature: float,
    iterations: int,
    scale: Literal["mean", "none"] = "mean",
    *,
    chunk: int = _CHUNK,
) -> Tensor:
    """log Q [M x K] from squared distances [M x K] (eq. 6-7): rows of Q sum to 1, its columns tend to M/K.

    A = exp(-d²/``temperature``), after division of d² by its mean if ``scale`` is ``mean``. Each of the ``iterations``
    scales the columns, then the rows, so rows are exact whenever it stops. The number format is the input's. ``CirfError`` for
    distances that are not finite.
    """
    _check(squared_distances.shape)
    logits = squared_distances.clone()
    mean = _mean((float(block.sum(dtype=torch.float64)) for block in blocks(logits, chunk)), logits.numel())
    fresh = _log_affinity(logits, mean, temperature, scale, chunk)
    columns = _columns(logits, fresh, iterations, chunk, ALONE, len(logits))
    for block in blocks(logits, chunk):
        block.copy_(torch.log_softmax(block + columns, dim=1))
    return logits


def assign(
    x: Tensor | Points, anchors: Tensor, section: schema.Sinkhorn, chunk: int = _CHUNK, share: Share = ALONE
) -> Assignment:
    """Assign ``x`` [M x d] to ``anchors`` [K x d] evenly (eq. 6-9) as ``section`` says.

    Holds one M x K matrix of the anchors' number format, or a process's ``share`` of its rows; everything else, including ``x``
    if it comes in pieces, is processed ``chunk`` rows at a time. All processes that share the rows must call this; each gets
    the codes of all rows. ``CirfError`` for distances that are not finite, no vector or no anchor.
    """
    count = x.shape[0]
    own = sum(min(PIECE, count - start) for start in share.mine(range(0, count, PIECE)))
    _check((count, len(anchors)))
    logits = torch.empty(own, len(anchors), dtype=anchors.dtype, device=anchors.device)
    closest, sums, done = list[Tensor](), list[float](), 0
    for block in _distances(x, anchors, chunk, share):
        logits[done : done + len(block)] = block
        closest.append(_least(block))
        sums.append(float(block.sum(dtype=torch.float64)))
        done += len(block)
    each = PIECE // chunk  # chunks of a piece
    mean = _mean(share.merged(sums, each), count * len(anchors))
    fresh = _log_affinity(logits, mean, section.temperature, section.scale, chunk)
    columns = _columns(logits, fresh, section.iterations, chunk, share, count)
    codes, masses = list[Tensor](), list[Tensor]()
    for block in blocks(logits, chunk):
        log_q = torch.log_softmax(block + columns, dim=1)
        codes.append(_most(log_q))
        masses.append(log_q.exp_().sum(dim=0, dtype=torch.float64))
    mass = torch.zeros(len(anchors), dtype=torch.float64, device=anchors.device)
    for part in _merged(masses, share, each):
        mass += part
    imbalance = float((mass * (len(anchors) / count) - 1).abs().max())
    return Assignment(torch.cat(_merged(codes, share, each)), torch.cat(_merged(closest, share, each)), imbalance)


def nearest(x: Tensor | Points, anchors: Tensor, chunk: int = _CHUNK) -> Tensor:
    """Index of the nearest anchor [K x d] of each row of ``x`` [M x d]: int64 [M]."""
    found = [_least(block) for block in _distances(x, anchors, chunk)]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64, device=anchors.device)


def squared_distances(x: Tensor | Points, anchors: Tensor, chunk: int = _CHUNK) -> Tensor:
    """|x_n - e_k|² [M x K] of ``x`` [M x d] and ``anchors`` [K x d], never forming M x K x d.

    Both are shifted by the anchors' mean first: the expanded square cancels badly far from the origin.
    """
    found = torch.empty(x.shape[0], len(anchors), dtype=anchors.dtype, device=anchors.device)
    done = 0
    for block in _distances(x, anchors, chunk):
        found[done : done + len(block)] = block
        done += len(block)
    return found


def blocks(rows: Tensor, chunk: int = _CHUNK) -> Iterator[Tensor]:
    """``rows`` [M x ...] in pieces of ``chunk`` rows, as views."""
    for start in range(0, len(rows), chunk):
        yield rows[start : start + chunk]


def own_rows(rows: Tensor, share: Share) -> Tensor:
    """The rows of a process's share of the pieces, of ``rows`` [M x ...]."""
    return rows if share.of == 1 else torch.cat([rows[:0], *share.mine(list(blocks(rows, PIECE)))])


def _merged(parts: list[Tensor], share: Share, run: int) -> list[Tensor]:
    """The tensors of all processes in order, on the device of this process's."""
    if share.of == 1:
        return parts
    device = parts[0].device if parts else torch.device("cpu")
    return [part.to(device) for part in share.merged([part.cpu() for part in parts], run)]


def _distances(x: Tensor | Points, anchors: Tensor, chunk: int, share: Share = ALONE) -> Iterator[Tensor]:
    """Squared distances of a process's share of the rows, a chunk at a time."""
    if x.shape[1] != anchors.shape[1]:
        raise CirfError(f"codebook: vectors are {x.shape[1]} wide, codes {anchors.shape[1]}; they must be of one width")
    origin = anchors.mean(dim=0)
    centred = anchors - origin
    norms, doubled = centred.square().sum(dim=1), -2 * centred
    for piece in (own_rows(x, share),) if isinstance(x, Tensor) else x.pieces(share):
        for rows in blocks(piece, chunk):
            block = rows - origin
            found = linear(block, doubled, norms)
            yield found.add_(block.square().sum(dim=1, keepdim=True)).clamp_(min=0)


def _least(block: Tensor) -> Tensor:
    """The first of the smallest of each row. NumPy's search uses the processor's vector instructions, torch's does not."""
    return torch.from_numpy(block.numpy().argmin(axis=1)) if block.device.type == "cpu" else block.argmin(dim=1)


def _most(block: Tensor) -> Tensor:
    """The first of the largest of each row."""
    return torch.from_numpy(block.numpy().argmax(axis=1)) if block.device.type == "cpu" else block.argmax(dim=1)


def _check(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or not shape[0] or not shape[1]:
        raise CirfError(f"codebook: a balanced assignment needs at least one segment and one code, got {tuple(shape)}")


def _mean(sums: Iterable[float], count: int) -> float:
    total = math.fsum(sums)
    if not math.isfinite(total):
        raise CirfError("codebook: a distance is not finite; lower codebook.learning_rate or check the embeddings")
    return total / count


def _log_affinity(distances: Tensor, mean: float, temperature: float, scale: str, chunk: int) -> Iterator[Tensor]:
    """-d²/λ (after the scaling), written over ``distances`` a chunk at a time, each of which is given once it is."""
    # The division comes first: mean * λ can underflow where d² / mean cannot.
    unit = mean if scale == "mean" and mean > 0 else 1.0
    for block in blocks(distances, chunk):
        yield block.div_(unit).div_(-temperature).clamp_(min=_FLOOR)


def _columns(logits: Tensor, fresh: Iterator[Tensor], iterations: int, chunk: int, share: Share, count: int) -> Tensor:
    """The logarithm of the columns' scaling [K] after ``iterations`` rounds over ``count`` rows, of which ``logits`` has a
    process's share; the rows' follows from it. ``fresh`` fills ``logits``."""
    even = math.log(count / logits.shape[1])
    room = torch.empty(min(chunk, len(logits)), logits.shape[1], dtype=logits.dtype, device=logits.device)

    def scaled(masses: list[Tensor]) -> Tensor:
        mass = torch.full((logits.shape[1],), -math.inf, dtype=logits.dtype, device=logits.device)
        for part in _merged(masses, share, PIECE // chunk):
            mass = torch.logaddexp(mass, part.to(mass.device))
        return even - mass

    columns = scaled([_log_sum(block, 0, None, room) for block in fresh])
    for _ in range(iterations - 1):
        masses = []
        for block in blocks(logits, chunk):
            rows = _log_sum(block, 1, columns, room).neg_()
            masses.append(_log_sum(block, 0, rows[:, None], room))
        columns = scaled(masses)
    return columns


def _log_sum(block: Tensor, dim: int, offset: Tensor | None, room: Tensor) -> Tensor:
    """``torch.logsumexp(block + offset, dim)`` of finite numbers, to the last bit, in memory that is already allocated."""
    room = room[: len(block)]
    shifted = block if offset is None else torch.add(block, offset, out=room)
    largest = shifted.amax(dim, keepdim=True)
    return torch.sub(shifted, largest, out=room).exp_().sum(dim).log_().add_(largest.squeeze(dim))
