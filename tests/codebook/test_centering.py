"""Centring takes a question's situation away and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf.codebook.centering import represent
from cirf.errors import CirfError


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.integers(2, 5), min_size=1, max_size=8), width=st.integers(1, 70), seed=st.integers(0, 99))
def test_an_offset_of_each_question_leaves_no_trace(sizes: list[int], width: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    # Integers: every sum is exact, so equality may be asked for to the last bit (sizes of 3 and 5 round alike on both sides).
    plain = random.integers(-8, 8, size=(len(groups), width)).astype(np.float32) * 60
    plain[np.flatnonzero(np.diff(groups, prepend=-1))] += 17 * 60  # no group of vectors that are all alike
    offset = random.integers(-8, 8, size=(len(sizes), width)).astype(np.float32) * 60
    before = represent(plain, groups, "mean_centered", "corpus_mean", 0)
    after = represent(plain + offset[groups], groups, "mean_centered", "corpus_mean", 0)
    np.testing.assert_array_equal(before.vectors, after.vectors)
    for group in range(len(sizes)):
        np.testing.assert_allclose(after.vectors[groups == group].sum(axis=0), 0, atol=1e-3)


def test_mean_centring_is_equation_five_in_any_order_of_rows(segments: tuple[np.ndarray, np.ndarray]) -> None:
    vectors, groups = segments
    plain = np.stack([vector - vectors[groups == group].mean(axis=0) for vector, group in zip(vectors, groups, strict=True)])
    shuffle = np.random.default_rng(0).permutation(len(vectors))
    found = represent(vectors[shuffle], groups[shuffle], "mean_centered", "corpus_mean", 0)
    np.testing.assert_allclose(found.vectors, plain[shuffle], atol=1e-5)
    assert found.vectors.dtype == np.float32 and found.single_steps == 0


def test_a_single_step_loses_the_corpus_mean_or_everything() -> None:
    vectors = np.arange(12, dtype=np.float32).reshape(4, 3) ** 2
    groups = np.array([0, 0, 7, 9])
    centred = represent(vectors, groups, "mean_centered", "corpus_mean", 0)
    np.testing.assert_allclose(centred.corpus_mean, vectors.mean(axis=0))
    np.testing.assert_allclose(centred.vectors[2:], vectors[2:] - vectors.mean(axis=0))
    zero = represent(vectors, groups, "mean_centered", "zero", 0)
    assert not zero.vectors[2:].any() and zero.vectors[:2].any()
    assert centred.single_steps == zero.single_steps == 2


def test_steps_that_all_read_alike_are_a_single_step() -> None:
    draw = np.random.default_rng(3)
    vectors = draw.standard_normal((6, 70)).astype(np.float32)
    vectors[2:5] = vectors[2]  # a rationale of three steps with one embedding
    groups = np.array([0, 0, 4, 4, 4, 9])
    found = represent(vectors, groups, "mean_centered", "corpus_mean", 0)
    assert found.single_steps == 2
    np.testing.assert_array_equal(found.vectors[2:], vectors[2:] - found.corpus_mean)
    np.testing.assert_allclose(found.vectors[0], (vectors[0] - vectors[1]) / 2, atol=1e-6)
    assert not represent(vectors, groups, "mean_centered", "zero", 0).vectors[2:].any()


def test_the_corpus_is_the_rows_fitted_on_or_the_one_remembered() -> None:
    vectors, groups = np.eye(4, dtype=np.float32), np.arange(4)
    fitted = represent(vectors, groups, "mean_centered", "corpus_mean", 0, fit=np.array([0, 1]))
    np.testing.assert_allclose(fitted.corpus_mean, [0.5, 0.5, 0, 0])
    np.testing.assert_allclose(fitted.vectors[3], [-0.5, -0.5, 0, 1])
    again = represent(vectors[3:], groups[3:], "mean_centered", "corpus_mean", 0, corpus_mean=fitted.corpus_mean)
    np.testing.assert_array_equal(again.vectors[0], fitted.vectors[3])


def test_the_other_kinds(segments: tuple[np.ndarray, np.ndarray]) -> None:
    vectors, groups = segments
    np.testing.assert_array_equal(represent(vectors, groups, "raw", "zero", 0).vectors, vectors)
    questions = np.random.default_rng(1).normal(size=(30, 12)).astype(np.float32)
    asked = represent(vectors, groups, "question_centered", "zero", 0, questions).vectors
    np.testing.assert_allclose(asked, vectors - questions[groups], rtol=1e-6)
    noise = represent(vectors, groups, "random", "zero", 3).vectors
    np.testing.assert_allclose(np.linalg.norm(noise, axis=1), np.linalg.norm(vectors, axis=1), rtol=1e-4)
    np.testing.assert_array_equal(noise, represent(vectors, groups, "random", "zero", 3).vectors)
    assert not np.allclose(noise, represent(vectors, groups, "random", "zero", 4).vectors)


def test_the_input_is_left_alone(segments: tuple[np.ndarray, np.ndarray]) -> None:
    vectors, groups = segments[0].copy(), segments[1]
    found = represent(vectors, groups, "raw", "zero", 0)
    found.vectors[:] = 0
    np.testing.assert_array_equal(vectors, segments[0])


def test_what_does_not_fit_together_is_refused() -> None:
    vectors, groups = np.zeros((3, 2), np.float32), np.array([0, 0, 1])
    with pytest.raises(CirfError, match="rationale numbers"):
        represent(vectors, groups[:2], "raw", "zero", 0)
    with pytest.raises(CirfError, match="no question was embedded"):
        represent(vectors, groups, "question_centered", "zero", 0)
    with pytest.raises(CirfError, match="do not fit 2 rationales"):
        represent(vectors, groups, "question_centered", "zero", 0, np.zeros((1, 2), np.float32))
