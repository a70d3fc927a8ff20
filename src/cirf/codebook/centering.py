"""The input of quantisation: segment embeddings without the context of their question (paper eq. 5 and appendix C).

Embeddings may be on disk. They are read some whole rationales at a time, so memory holds a few megabytes of them, or the
longest rationale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from cirf.codebook.rows import FileRows, Rows, chunk_rows, chunks, room_for
from cirf.errors import CirfError

Kind = Literal["mean_centered", "raw", "question_centered", "random"]
SingleStep = Literal["corpus_mean", "zero"]


@dataclass(frozen=True, eq=False)
class Representation:
    """Functional representations z' of M segments.

    ``vectors`` float32 [M x d_s], an array or on disk; ``corpus_mean`` float32 [d_s], the mean of the bare embeddings, which a
    later rationale of one step needs; ``single_steps``: how many rationales have one step only, or steps of one embedding.
    """

    vectors: np.ndarray | FileRows
    corpus_mean: np.ndarray
    single_steps: int


def represent(
    vectors: Rows,
    groups: np.ndarray,
    kind: Kind,
    single_step: SingleStep,
    seed: int,
    questions: Rows | None = None,
    *,
    corpus_mean: np.ndarray | None = None,
    scratch: Path | None = None,
) -> Representation:
    """Turn embeddings [M x d_s] into what is quantised [M x d_s].

    ``groups`` [M] gives each segment its rationale. The kinds:

    * ``mean_centered`` (eq. 5): z - mean of z over its rationale. A rationale of one step, or of steps that all have the
      same embedding, would become zero, and all such steps one code; ``single_step`` says whether the corpus mean is
      subtracted instead, or the zero stays.
    * ``raw``: z itself.
    * ``question_centered``: z - the embedding of its question, row ``groups[i]`` of ``questions`` [G x d_s].
    * ``random``: seeded Gaussian noise of each segment's own norm.

    ``corpus_mean`` [d_s] defaults to that of all rows. The result is an array, or the new file ``scratch`` if that is given and
    the result has more than ``rows.HELD`` bytes. ``CirfError`` if shapes do not agree or questions are missing.
    """
    count, width = vectors.shape if len(vectors.shape) == 2 else (0, 0)
    if len(vectors.shape) != 2 or groups.shape != (count,):
        raise CirfError(f"codebook: {vectors.shape} embeddings do not fit {groups.shape} rationales; make the embeddings again")
    names, inverse, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    question_vectors = _checked(questions, names, width) if kind == "question_centered" else None
    if corpus_mean is None:
        corpus_mean = mean_of(vectors)
    found = room_for((count, width), scratch)
    single = 0
    for first, last, begins in _whole_groups(sizes, chunk_rows(width)):
        rows, lengths = order[begins[0] : begins[-1]], sizes[first:last]
        block = vectors[rows].astype(np.float32, copy=False)
        firsts = begins[:-1] - begins[0]
        copies = (block == np.repeat(block[firsts], lengths, axis=0)).all(axis=1)
        alone = np.logical_and.reduceat(copies, firsts)  # groups that hold only copies of one vector: bool [G]
        single += int(alone.sum())
        if kind == "mean_centered":
            found[rows] = _off_mean(block, firsts, lengths, alone, corpus_mean, single_step)
        elif kind == "raw":
            found[rows] = block
        elif question_vectors is not None:
            found[rows] = block - np.repeat(question_vectors[names[first:last]].astype(np.float32, copy=False), lengths, axis=0)
    if kind == "random":
        random = np.random.default_rng(seed)
        for piece in chunks(count, width):
            noise = random.standard_normal((piece.stop - piece.start, width), dtype=np.float32)
            noise *= (np.linalg.norm(vectors[piece], axis=1) / np.linalg.norm(noise, axis=1))[:, None]
            found[piece] = noise
    return Representation(found, corpus_mean, single)


def mean_of(vectors: Rows) -> np.ndarray:
    """Mean [d_s] of embeddings [M x d_s], float32: added up in double precision one after the other, whatever the pieces."""
    count, width = vectors.shape
    total = np.zeros((1, width))
    for piece in chunks(count, width):
        block = vectors[piece].astype(np.float64)
        total = np.add.reduce(np.concatenate([total, block]) if piece.start else block, axis=0, keepdims=True)
    mean: np.ndarray = (total[0] / max(count, 1)).astype(np.float32)
    return mean


def _whole_groups(sizes: np.ndarray, most: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """Pieces of whole groups with at most ``most`` rows, or of one group: the groups' first and last number, and where each
    begins and the last ends when rows are sorted by group."""
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    first = 0
    while first < len(sizes):
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + most, side="right")) - 1)
        yield first, last, bounds[first : last + 1]
        first = last


def _off_mean(
    block: np.ndarray,
    begins: np.ndarray,
    lengths: np.ndarray,
    alone: np.ndarray,
    corpus_mean: np.ndarray,
    single_step: SingleStep,
) -> np.ndarray:
    """Eq. 5 in double precision, with the rule for the groups that are ``alone``."""
    exact = block.astype(np.float64)
    exact -= np.repeat(np.add.reduceat(exact, begins, axis=0) / lengths[:, None], lengths, axis=0)
    made = exact.astype(np.float32)
    rows = np.repeat(alone, lengths)
    made[rows] = block[rows] - corpus_mean if single_step == "corpus_mean" else 0.0
    return made


def _checked(questions: Rows | None, names: np.ndarray, width: int) -> Rows:
    if questions is None:
        raise CirfError("codebook.representation is question_centered, but no question was embedded; make the embeddings again")
    shape = questions.shape
    if len(shape) != 2 or shape[1] != width or (len(names) and (names[0] < 0 or names[-1] >= shape[0])):
        raise CirfError(f"codebook: {shape} question embeddings do not fit {len(names)} rationales of width {width}")
    return questions
