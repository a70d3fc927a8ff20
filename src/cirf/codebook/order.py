"""The order of an epoch: a permutation of all rows where they fit into memory, else a shuffle through a buffer.

A set on disk read in any order would be read one row at a time. So blocks of neighbouring rows are drawn in any order until
they fill a buffer, and the rows of the buffer are then permuted::

    blocks of the file      0 1 2 3 4 5 6 7
    buffers                 [5 0 6] [3 7 1] [4 2]       each: its rows in any order

With 256 blocks to a buffer, a batch has rows from all over the set.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from cirf.codebook.rows import Rows, held_rows

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
    """What each buffer of at most ``most`` of ``count`` rows is filled with, and the order [n] in which its rows come."""
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
    """Where each span lies once they lie one behind the other."""
    stops = np.cumsum([span.stop - span.start for span in spans]).tolist()
    return [slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False)]


def _one(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """A batch of the end of one buffer and the beginning of the next."""
    if len(parts) == 1:
        return parts[0]
    return torch.cat([numbers for numbers, _ in parts]), torch.cat([vectors for _, vectors in parts])
