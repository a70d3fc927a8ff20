"""An epoch meets every row once, in the plain order where the set fits into the buffer, and reads no row by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf.codebook import fit, rows
from cirf.codebook.fit import batches, buffers
from cirf.codebook.rows import Where


class _Watched:
    """Rows that remember what was asked for."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.shape, self.vectors, self.asked = vectors.shape, vectors, list[Where]()

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, where: Where, /) -> np.ndarray:
        self.asked.append(where)
        found: np.ndarray = self.vectors[where]
        return found


def _numbered(count: int) -> _Watched:
    """Vectors [count x 2] whose first number is their place."""
    return _Watched(np.stack([np.arange(count), np.ones(count)], axis=1).astype(np.float32))


@settings(max_examples=150, deadline=None)
@given(
    count=st.integers(1, 400),
    most=st.integers(1, 450),
    blocks=st.integers(1, 20),
    size=st.integers(1, 90),
    seed=st.integers(0, 9),
)
def test_every_row_comes_once_with_its_vector(count: int, most: int, blocks: int, size: int, seed: int) -> None:
    watched = _numbered(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "HELD", most * 8)
        patch.setattr(fit, "BLOCKS", blocks)
        found = list(batches(watched, size, seed))
    numbers = torch.cat([number for number, _ in found])
    assert numbers.sort().values.tolist() == list(range(count))
    assert [len(number) for number, _ in found] == [size] * (count // size) + [count % size] * (count % size > 0)
    assert torch.equal(torch.cat([vectors for _, vectors in found])[:, 0].long(), numbers)
    if count <= max(most, size):
        assert numbers.tolist() == np.random.default_rng(seed).permutation(count).tolist()
    block = max(1, max(most, size) // blocks)
    for where in watched.asked:  # whole blocks: the disk never looks for a row by itself
        assert isinstance(where, slice)
        assert where.stop == count or where.stop - where.start in (block, count)


@settings(max_examples=100, deadline=None)
@given(count=st.integers(1, 2000), most=st.integers(1, 900), seed=st.integers(0, 9))
def test_no_buffer_is_too_large(count: int, most: int, seed: int) -> None:
    for spans, permutation in buffers(count, most, seed):
        filled = sum(span.stop - span.start for span in spans)
        assert filled <= most and sorted(permutation.tolist()) == list(range(filled))


def test_seeds_shuffle_blocks_and_rows_otherwise() -> None:
    first, second = ([spans for spans, _ in buffers(10_000, 1000, seed)] for seed in (1, 2))
    assert first != second
    assert len({span.start // 1000 for span in first[0]}) > 5, "a buffer has rows from all over the set"
