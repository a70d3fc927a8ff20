"""Balanced assignment of M vectors to K anchors by Sinkhorn-Knopp, in the log domain (paper eq. 6-9).

    distances [M x K]  ->  A = exp(-d²/λ)  ->  columns to M/K, rows to 1, columns ...  ->  Q  ->  argmax of each row

exp(-d²/0.05) underflows for ordinary distances, so A is never formed: only its logarithm and one scaling per column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cirf import recipe
from cirf.errors import CirfError

_CHUNK = 2048
"""Rows worked on at once: few enough that a chunk of M x K stays in a core's cache."""
_FLOOR = -1e30
"""Lowest log affinity; keeps sums of a few of them finite in float32. No distance that matters comes near it."""


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
    tolerance: float | None = None,
    chunk: int = _CHUNK,
) -> Tensor:
    """log Q [M x K] from squared distances [M x K] (eq. 6-7): rows of Q sum to 1, its columns tend to M/K.

    A = exp(-d²/``temperature``), after division of d² by its mean if ``scale`` is ``mean``. Each of the ``iterations``
    scales the columns, then the rows, so rows are exact whenever it stops. With a ``tolerance`` it stops as soon as no
    column is further than that (relatively) from M/K. The number format is the input's. ``CirfError`` for distances
    that are not finite.
    """
    _check(squared_distances.shape)
    logits = _log_affinity(squared_distances.clone(), temperature, scale, chunk)
    return torch.log_softmax(logits + _columns(logits, iterations, tolerance, chunk), dim=1)


def assign(x: Tensor, anchors: Tensor, section: recipe.Sinkhorn, chunk: int = _CHUNK) -> Assignment:
    """Assign ``x`` [M x d] to ``anchors`` [K x d] evenly (eq. 6-9) as ``section`` says.

    Holds one M x K matrix besides its input; everything else is done ``chunk`` rows at a time.
    """
    logits = squared_distances(x, anchors, chunk)
    nearest = torch.cat([block.argmin(dim=1) for block in blocks(logits, chunk)])
    logits = _log_affinity(logits, section.temperature, section.scale, chunk)
    columns = _columns(logits, section.iterations, None, chunk)
    codes, mass = [], torch.zeros(len(anchors), dtype=torch.float64, device=x.device)
    for block in blocks(logits, chunk):
        log_q = torch.log_softmax(block + columns, dim=1)
        codes.append(log_q.argmax(dim=1))
        mass += log_q.exp_().sum(dim=0, dtype=torch.float64)
    imbalance = float((mass * (len(anchors) / len(x)) - 1).abs().max())
    return Assignment(torch.cat(codes), nearest, imbalance)


def nearest(x: Tensor, anchors: Tensor, chunk: int = _CHUNK) -> Tensor:
    """Index of the nearest anchor [K x d] of each row of ``x`` [M x d]: int64 [M]."""
    if not len(x):
        return torch.empty(0, dtype=torch.int64, device=x.device)
    return torch.cat([squared_distances(block, anchors, chunk).argmin(dim=1) for block in blocks(x, chunk)])


def squared_distances(x: Tensor, anchors: Tensor, chunk: int = _CHUNK) -> Tensor:
    """|x_n - e_k|² [M x K] of ``x`` [M x d] and ``anchors`` [K x d], never forming M x K x d.

    Both are shifted by the anchors' mean first: the expanded square cancels badly far from the origin.
    """
    if x.shape[1] != anchors.shape[1]:
        raise CirfError(f"codebook: vectors are {x.shape[1]} wide, codes {anchors.shape[1]}; they must be of one width")
    origin = anchors.mean(dim=0)
    centred = anchors - origin
    norms = centred.square().sum(dim=1)
    found = torch.empty(len(x), len(anchors), dtype=x.dtype, device=x.device)
    for start in range(0, len(x), chunk):
        block = x[start : start + chunk] - origin
        rows = torch.addmm(norms, block, centred.T, alpha=-2)
        found[start : start + chunk] = rows.add_(block.square().sum(dim=1, keepdim=True)).clamp_(min=0)
    return found


def blocks(rows: Tensor, chunk: int = _CHUNK) -> Iterator[Tensor]:
    """``rows`` [M x ...] in pieces of ``chunk`` rows, as views."""
    for start in range(0, len(rows), chunk):
        yield rows[start : start + chunk]


def _check(shape: torch.Size) -> None:
    if len(shape) != 2 or not shape[0] or not shape[1]:
        raise CirfError(f"codebook: a balanced assignment needs at least one segment and one code, got {tuple(shape)}")


def _log_affinity(distances: Tensor, temperature: float, scale: str, chunk: int) -> Tensor:
    """-d²/λ (after the scaling), written over ``distances``."""
    _check(distances.shape)
    total = math.fsum(float(block.sum(dtype=torch.float64)) for block in blocks(distances, chunk))
    if not math.isfinite(total):
        raise CirfError(
            "codebook: a distance of segment and code is not finite; lower codebook.learning_rate or check the embeddings"
        )
    mean = total / distances.numel()
    # The division comes first: mean * λ can underflow where d² / mean cannot.
    unit = mean if scale == "mean" and mean > 0 else 1.0
    return distances.div_(unit).div_(-temperature).clamp_(min=_FLOOR)


def _columns(logits: Tensor, iterations: int, tolerance: float | None, chunk: int) -> Tensor:
    """The logarithm of the columns' scaling [K] after so many rounds; the rows' follows from it."""
    count, codes = logits.shape
    share = math.log(count / codes)
    rows = torch.zeros(count, dtype=logits.dtype, device=logits.device)
    columns = torch.zeros(codes, dtype=logits.dtype, device=logits.device)
    for done in range(iterations):
        mass = torch.full_like(columns, -math.inf)
        for block, row in zip(blocks(logits, chunk), blocks(rows, chunk), strict=True):
            mass = torch.logaddexp(mass, torch.logsumexp(block + row[:, None], dim=0))
        if tolerance is not None and done and float(torch.expm1(columns + mass - share).abs().max()) < tolerance:
            break
        columns = share - mass
        rows = -torch.cat([torch.logsumexp(block + columns, dim=1) for block in blocks(logits, chunk)])
    return columns
