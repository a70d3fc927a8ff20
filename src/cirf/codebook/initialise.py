"""The first codes: balanced clusters, k-means or noise (paper 3.2 and the codebook-construction ablation)."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

import numpy as np
import torch
from torch import Tensor

from cirf import recipe
from cirf.codebook.rows import Rows, chunk_rows, held_rows
from cirf.codebook.sinkhorn import assign, blocks
from cirf.codebook.vqvae import PIECE, Encoded
from cirf.errors import CirfError

_KMEANS_STARTS = 4


def first_codes(encoded: Encoded, vectors: Rows, section: recipe.Codebook, seed: int) -> Tensor:
    """K codes [K x d_e] for the encoded set x [M x d_e] of ``vectors`` z' [M x d_s], by ``section.initialiser``.

    * ``sinkhorn``: K anchors drawn from the set, a balanced assignment to them (eq. 6-8), each code the mean of its
      segments; a code without any keeps its anchor.
    * ``kmeans``: scikit-learn's, the best of four seeded starts; of a set whose x is more than ``rows.HELD`` bytes, on a seeded
      draw of as many of its rows as that holds.
    * ``random``: Gaussian noise with the root mean square of the encoded set.

    ``CirfError`` if there are fewer (distinct) segments than codes.
    """
    check_size(vectors, section)
    if section.initialiser == "sinkhorn":
        anchors = encoded.take(draw_distinct(vectors, section.size, seed))
        codes = assign(encoded, anchors, section.sinkhorn).codes
        return code_means(encoded.pieces(), codes, anchors)
    if section.initialiser == "kmeans":
        return _kmeans(encoded, section.size, seed)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(section.size, encoded.shape[1], generator=generator)
    size = _mean_square(encoded).sqrt()
    return noise.to(size) * size


def check_size(vectors: Rows, section: recipe.Codebook) -> None:
    """``CirfError`` unless there is a distinct segment for every code."""
    found = len(vectors)
    if found >= section.size:
        found = len(draw_distinct(vectors, section.size, 0))
    if found < section.size:
        raise CirfError(
            f"codebook.size is {section.size}, but only {found} segments are distinct; set codebook.size to {found} or fewer"
        )


def draw_distinct(vectors: Rows, count: int, seed: int) -> np.ndarray:
    """Indices of up to ``count`` rows of ``vectors`` [M x d], drawn by the seed, no two rows alike: int64 [<= count].

    Segments that read alike would make anchors that no assignment can tell apart. Rows are read until there are enough.
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


def code_means(encoded: Iterable[Tensor], codes: Tensor, fallback: Tensor) -> Tensor:
    """Mean [K x d] of the rows of ``encoded``, M of them in pieces [n x d], with each code [M]; a code without any keeps its
    ``fallback`` row.

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
    means = (sums / counts.clamp(min=1)[:, None]).to(fallback)
    return torch.where((counts > 0)[:, None].to(fallback.device), means, fallback)


def _mean_square(encoded: Encoded) -> Tensor:
    """Mean square of the encoded set, added up over parts of it that memory holds."""
    size = max(held_rows(encoded.shape[1]) // PIECE, 1) * PIECE
    total = 0.0
    for start in range(0, len(encoded), size):
        part = torch.cat([encoded.piece(at) for at in range(start, min(start + size, len(encoded)), PIECE)])
        total += float(part.square().mean()) * len(part)
    return torch.tensor(total / len(encoded), dtype=part.dtype, device=part.device)


def _kmeans(encoded: Encoded, size: int, seed: int) -> Tensor:
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
