"""The first codes: balanced clusters, k-means or noise (paper 3.2 and the codebook-construction ablation)."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import torch
from torch import Tensor

from cirf import recipe
from cirf.codebook.sinkhorn import assign, blocks
from cirf.errors import CirfError

_KMEANS_STARTS = 4


def first_codes(encoded: Tensor, vectors: Tensor, section: recipe.Codebook, seed: int) -> Tensor:
    """K codes [K x d_e] for the encoded set x [M x d_e] of ``vectors`` z' [M x d_s], by ``section.initialiser``.

    * ``sinkhorn``: K anchors drawn from the set, a balanced assignment to them (eq. 6-8), each code the mean of its
      segments; a code without any keeps its anchor.
    * ``kmeans``: scikit-learn's, the best of four seeded starts.
    * ``random``: Gaussian noise with the root mean square of the encoded set.

    ``CirfError`` if there are fewer (distinct) segments than codes.
    """
    check_size(vectors, section)
    if section.initialiser == "sinkhorn":
        anchors = encoded[torch.from_numpy(draw_distinct(vectors, section.size, seed)).to(encoded.device)]
        codes = assign(encoded, anchors, section.sinkhorn).codes
        return code_means(encoded, codes, anchors)
    if section.initialiser == "kmeans":
        return _kmeans(encoded, section.size, seed)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(section.size, encoded.shape[1], generator=generator)
    return noise.to(encoded) * encoded.square().mean().sqrt()


def check_size(vectors: Tensor, section: recipe.Codebook) -> None:
    """``CirfError`` unless there is a distinct segment for every code."""
    found = len(vectors)
    if found >= section.size:
        found = len(draw_distinct(vectors, section.size, 0))
    if found < section.size:
        raise CirfError(
            f"codebook.size is {section.size}, but only {found} segments are distinct; set codebook.size to {found} or fewer"
        )


def draw_distinct(vectors: Tensor, count: int, seed: int) -> np.ndarray:
    """Indices of up to ``count`` rows of ``vectors`` [M x d], drawn by the seed, no two rows alike: int64 [<= count].

    Segments that read alike would make anchors that no assignment can tell apart.
    """
    rows = vectors.numpy()
    seen: set[bytes] = set()
    chosen = []
    for index in np.random.default_rng(seed).permutation(len(rows)):
        row = rows[index].tobytes()
        if row not in seen:
            seen.add(row)
            chosen.append(index)
            if len(chosen) == count:
                break
    return np.array(chosen, dtype=np.int64)


def code_means(encoded: Tensor, codes: Tensor, fallback: Tensor) -> Tensor:
    """Mean [K x d] of the rows of ``encoded`` [M x d] with each code [M]; a code without any keeps its ``fallback`` row.

    Summed on the CPU in double precision: a GPU adds in no fixed order.
    """
    sums = torch.zeros(fallback.shape, dtype=torch.float64)
    for block, numbers in zip(blocks(encoded), blocks(codes), strict=True):
        sums.index_add_(0, numbers.cpu(), block.cpu().double())
    counts = torch.bincount(codes.cpu(), minlength=len(fallback))
    means = (sums / counts.clamp(min=1)[:, None]).to(fallback)
    return torch.where((counts > 0)[:, None].to(fallback.device), means, fallback)


def _kmeans(encoded: Tensor, size: int, seed: int) -> Tensor:
    # Loaded by name: neither has type hints. One thread, since threads add up centres in no fixed order.
    clusters = import_module("sklearn.cluster")
    limits = import_module("threadpoolctl").threadpool_limits
    with limits(1):
        found = clusters.KMeans(size, n_init=_KMEANS_STARTS, random_state=seed).fit(encoded.cpu().numpy())
    return torch.from_numpy(np.ascontiguousarray(found.cluster_centers_)).to(encoded)
