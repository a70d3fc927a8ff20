"""What is quantised: segment embeddings without the situation of their question (paper eq. 5 and appendix C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cirf.errors import CirfError

Kind = Literal["mean_centered", "raw", "question_centered", "random"]
SingleStep = Literal["corpus_mean", "zero"]

_COLUMNS = 64
"""Columns treated at once in double precision, so that a large M x d_s is never held twice."""


@dataclass(frozen=True, eq=False)
class Representation:
    """Functional representations z' of M segments.

    ``vectors`` float32 [M x d_s]; ``corpus_mean`` float32 [d_s], the mean of the bare embeddings, which a later
    rationale of one step needs; ``single_steps``: how many rationales have one step only, or steps of one embedding.
    """

    vectors: np.ndarray
    corpus_mean: np.ndarray
    single_steps: int


def represent(
    vectors: np.ndarray,
    groups: np.ndarray,
    kind: Kind,
    single_step: SingleStep,
    seed: int,
    questions: np.ndarray | None = None,
    *,
    fit: np.ndarray | None = None,
    corpus_mean: np.ndarray | None = None,
) -> Representation:
    """Turn embeddings [M x d_s] into what is quantised [M x d_s].

    ``groups`` [M] gives each segment its rationale. The kinds:

    * ``mean_centered`` (eq. 5): z - mean of z over its rationale. A rationale of one step, or of steps that all have the
      same embedding, would become zero, and all such steps one code; ``single_step`` says whether the corpus mean is
      taken off instead, or zero it stays.
    * ``raw``: z itself.
    * ``question_centered``: z - the embedding of its question, row ``groups[i]`` of ``questions`` [G x d_s].
    * ``random``: seeded Gaussian noise of each segment's own norm.

    The corpus mean is that of the rows ``fit`` (indices; null: all), or ``corpus_mean`` as an earlier codebook saved it.
    ``CirfError`` if shapes do not agree or questions are missing.
    """
    if vectors.ndim != 2 or groups.shape != (len(vectors),):
        raise CirfError(
            f"codebook: {vectors.shape} embeddings do not fit {groups.shape} rationale numbers; make the embeddings again"
        )
    names, inverse, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    single = _all_alike(vectors, inverse, order, starts)
    if corpus_mean is None:
        chosen = vectors if fit is None else vectors[fit]
        corpus_mean = (
            chosen.mean(axis=0, dtype=np.float64).astype(np.float32) if len(chosen) else np.zeros(vectors.shape[1], np.float32)
        )
    if kind == "mean_centered":
        found = _off_group_mean(vectors, inverse, sizes, order, starts)
        alone = single[inverse]
        found[alone] = vectors[alone] - corpus_mean if single_step == "corpus_mean" else 0.0
    elif kind == "raw":
        found = vectors.astype(np.float32)
    elif kind == "question_centered":
        found = (vectors - _questions_of(questions, groups, names, vectors.shape[1])).astype(np.float32)
    else:
        found = np.random.default_rng(seed).standard_normal(vectors.shape, dtype=np.float32)
        found *= (np.linalg.norm(vectors, axis=1) / np.linalg.norm(found, axis=1))[:, None]
    return Representation(found, corpus_mean, int(single.sum()))


def _all_alike(vectors: np.ndarray, inverse: np.ndarray, order: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Which groups hold one vector, be it several times: bool [G]."""
    if not len(vectors):
        return np.zeros(0, dtype=bool)
    first = order[starts][inverse]
    same = np.ones(len(vectors), dtype=bool)
    for left in range(0, vectors.shape[1], _COLUMNS):
        block = vectors[:, left : left + _COLUMNS]
        same &= (block == block[first]).all(axis=1)
    alike: np.ndarray = np.logical_and.reduceat(same[order], starts)
    return alike


def _off_group_mean(
    vectors: np.ndarray, inverse: np.ndarray, sizes: np.ndarray, order: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    found = np.empty(vectors.shape, np.float32)
    for left in range(0, vectors.shape[1], _COLUMNS):
        block = vectors[:, left : left + _COLUMNS].astype(np.float64)
        means = np.add.reduceat(block[order], starts, axis=0) / sizes[:, None] if len(sizes) else block
        found[:, left : left + _COLUMNS] = block - means[inverse]
    return found


def _questions_of(questions: np.ndarray | None, groups: np.ndarray, names: np.ndarray, width: int) -> np.ndarray:
    if questions is None:
        raise CirfError("codebook.representation is question_centered, but no question was embedded; make the embeddings again")
    if questions.ndim != 2 or questions.shape[1] != width or (len(names) and (names[0] < 0 or names[-1] >= len(questions))):
        raise CirfError(f"codebook: {questions.shape} question embeddings do not fit {len(names)} rationales of width {width}")
    rows: np.ndarray = questions[groups]
    return rows
