"""The codebook: trained, saved, read back, reused, and asked for the codes of something new."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf.analysis.clustering import clustering
from cirf.codebook.centering import mean_of, represent
from cirf.codebook.codebook import Codebook, train, usage
from cirf.codebook.embedding import WORDING
from cirf.errors import CirfError
from cirf.progress import SILENT
from cirf.recipe import schema

Segments = tuple[np.ndarray, np.ndarray]
Trained = tuple[Codebook, np.ndarray, dict[str, Any], np.ndarray]
EMBEDDER = {"model": "tiny", "revision": None, "numbers": "keep", "choices": "keep", "closing": "keep", "words": "all"}


@pytest.fixture(scope="module")
def trained(segments: Segments, small: schema.Codebook, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    found = represent(*segments, "mean_centered", "corpus_mean", 1)
    book, codes, report = train(found.vectors, 10, small, 1, tmp_path_factory.mktemp("work"), SILENT)
    return book.described(found.corpus_mean, EMBEDDER), codes, report, found.vectors


def test_the_report_shows_what_happened(trained: Trained, small: schema.Codebook) -> None:
    book, codes, report, vectors = trained
    assert codes.shape == (120,) and codes.dtype == np.int64 and report["segments"] == 120
    assert report["usage"] == [int((codes == k).sum()) for k in range(6)] and sum(report["usage"]) == 120
    shares = np.array([n / 120 for n in report["usage"] if n])
    assert report["perplexity"] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    assert report["disagreement"] == pytest.approx((book.encode(vectors) != codes).mean())
    assert report["column_imbalance"] >= 0 and len(report["losses"]["vq"]) == small.vq_epochs
    json.dumps(report)


def test_assign_nearest_gives_training_segments_what_a_new_one_would_get(
    segments: Segments, small: schema.Codebook, trained: Trained, tmp_path: Path
) -> None:
    section = small.model_copy(update={"assign": "nearest"})
    book, codes, report = train(trained[3], 10, section, 1, tmp_path, SILENT)
    np.testing.assert_array_equal(codes, book.encode(trained[3]))
    assert torch.equal(book.codes, trained[0].codes), "only the last assignment differs"
    assert report["disagreement"] == trained[2]["disagreement"]


def test_what_is_saved_is_read_back_and_both_write_the_same_bytes(trained: Trained, tmp_path: Path) -> None:
    book, _, report, vectors = trained
    book.save(tmp_path / "one", report | {"note": 1})
    again = Codebook.load(tmp_path / "one")
    again.save(tmp_path / "two")
    for name in ("codebook.safetensors", "codebook.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    np.testing.assert_array_equal(again.encode(vectors), book.encode(vectors))
    assert torch.equal(again.codes, book.codes) and again.settings == book.settings and again.report["note"] == 1
    np.testing.assert_array_equal(again.corpus_mean, book.corpus_mean)
    again.check(width=10, embedder=EMBEDDER, size=6, representation="mean_centered")


def test_a_codebook_from_before_words_could_be_masked_kept_them(trained: Trained, tmp_path: Path) -> None:
    trained[0].save(tmp_path)
    facts = json.loads((tmp_path / "codebook.json").read_text())
    for key in WORDING:
        del facts["embedder"][key]
    (tmp_path / "codebook.json").write_text(json.dumps(facts))
    assert Codebook.load(tmp_path).embedder == EMBEDDER


def test_encoding_is_the_nearest_code(trained: Trained) -> None:
    book, _, _, vectors = trained
    x = book.encoder(torch.from_numpy(vectors))
    np.testing.assert_array_equal(book.encode(vectors), torch.cdist(x, book.codes).argmin(dim=1).numpy())
    assert book.encode(vectors[:0]).shape == (0,)


def test_a_codebook_that_does_not_fit_is_refused(trained: Trained) -> None:
    book = trained[0]
    with pytest.raises(CirfError, match=r"its codes are 10 wide, the backbone's embeddings 576"):
        book.check(width=576, embedder=EMBEDDER)
    with pytest.raises(CirfError, match=r"trained on vectors of tiny, the recipe embeds with other at v2"):
        book.check(width=10, embedder=EMBEDDER | {"model": "other", "revision": "v2"})
    with pytest.raises(CirfError, match=r"of tiny, the recipe embeds with tiny, numbers masked; set .*embeddings\.numbers"):
        book.check(width=10, embedder=EMBEDDER | {"numbers": "mask"})
    with pytest.raises(CirfError, match=r"the recipe embeds with tiny, first 4 words; set .*embeddings\.words"):
        book.check(width=10, embedder=EMBEDDER | {"words": 4})
    with pytest.raises(CirfError, match=r"set that to 6"):
        book.check(width=10, embedder=EMBEDDER, size=64)
    with pytest.raises(CirfError, match=r"representation is raw; set it to mean_centered"):
        book.check(width=10, embedder=EMBEDDER, representation="raw")
    with pytest.raises(CirfError, match=r"reads vectors of width 12, got \(3, 5\)"):
        book.encode(np.zeros((3, 5), np.float32))


def test_a_folder_without_a_whole_codebook_is_named(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(CirfError, match="holds no codebook"):
        Codebook.load(tmp_path)
    trained[0].save(tmp_path)
    (tmp_path / "codebook.safetensors").write_bytes(b"torn")
    with pytest.raises(CirfError, match="damaged"):
        Codebook.load(tmp_path)
    trained[0].save(tmp_path)
    (tmp_path / "codebook.json").write_text('{"settings": {"size": "many"}}')
    with pytest.raises(CirfError, match="damaged"):
        Codebook.load(tmp_path)


def test_a_fixed_dimension_must_be_the_backbones(segments: Segments, small: schema.Codebook, tmp_path: Path) -> None:
    with pytest.raises(CirfError, match=r"codebook.dimension is 12, the backbone's embeddings are 10"):
        train(segments[0], 10, small.model_copy(update={"dimension": 12}), 1, tmp_path, SILENT)


def test_a_new_rationale_is_centred_on_itself(trained: Trained, segments: Segments) -> None:
    book, _, _, represented = trained
    vectors, _ = segments
    np.testing.assert_array_equal(book.quantise(vectors[8:12]), book.encode(represented[8:12]))
    np.testing.assert_array_equal(book.quantise(vectors[8:12] + np.float32(2)), book.encode(represented[8:12]))
    np.testing.assert_array_equal(book.quantise(vectors[8:9]), book.encode(vectors[8:9] - book.corpus_mean))


def test_a_question_centred_codebook_asks_for_the_question(segments: Segments, small: schema.Codebook, tmp_path: Path) -> None:
    vectors, groups = segments
    section = small.model_copy(update={"representation": "question_centered"})
    found = represent(vectors, groups, "question_centered", "zero", 1, vectors[::4] * 0.5)
    book = train(found.vectors, 10, section, 1, tmp_path, SILENT)[0].described(found.corpus_mean, EMBEDDER)
    np.testing.assert_array_equal(book.quantise(vectors[4:8], vectors[40]), book.encode(vectors[4:8] - vectors[40]))
    with pytest.raises(CirfError, match="centred on the question, which was not given"):
        book.quantise(vectors[4:8])


def test_what_cannot_be_quantised_is_said(trained: Trained, small: schema.Codebook, tmp_path: Path) -> None:
    with pytest.raises(CirfError, match="no step"):
        trained[0].quantise(np.zeros((0, 12), np.float32))
    section = small.model_copy(update={"representation": "random", "autoencoder_epochs": 0, "vq_epochs": 0})
    noise = train(trained[3], 10, section, 1, tmp_path, SILENT)[0]
    with pytest.raises(CirfError, match="are of noise"):
        noise.quantise(trained[3][:2])


def test_usage_of_even_and_of_one_sided_codes() -> None:
    assert usage(np.arange(8) % 4, 4)["perplexity"] == pytest.approx(4)
    one = usage(np.zeros(5, np.int64), 4)
    assert one == {"usage": [5, 0, 0, 0], "used": 1, "perplexity": pytest.approx(1)}
    assert usage(np.zeros(0, np.int64), 2) == {"usage": [0, 0], "used": 0, "perplexity": 0.0}


# Centring takes a question's situation away and nothing else


@settings(max_examples=25, deadline=None)
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


def test_the_corpus_mean_is_the_one_given() -> None:
    vectors, groups = np.eye(4, dtype=np.float32), np.arange(4)
    fitted = represent(vectors, groups, "mean_centered", "corpus_mean", 0, corpus_mean=mean_of(vectors[:2]))
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
    with pytest.raises(CirfError, match="do not fit"):
        represent(vectors, groups[:2], "raw", "zero", 0)
    with pytest.raises(CirfError, match="no question was embedded"):
        represent(vectors, groups, "question_centered", "zero", 0)
    with pytest.raises(CirfError, match="do not fit 2 rationales"):
        represent(vectors, groups, "question_centered", "zero", 0, np.zeros((1, 2), np.float32))


# Intrinsic measures of an assignment, on assignments whose measures are known


def test_a_code_for_each_question_says_all_of_it():
    found = clustering([[0, 0], [1, 1], [2, 2]], 4)
    assert found.ami == pytest.approx(1)
    assert found.purity == 1
    assert found.collapsed == 1
    assert found.unique == 1
    assert found.used == 0.75
    assert found.perplexity == pytest.approx(3)


def test_the_same_codes_for_every_question_say_nothing_of_it():
    found = clustering([[0, 1, 2, 3]] * 50, 4)
    assert found.ami <= 0.0
    assert found.purity == pytest.approx(1 / 50)
    assert found.collapsed == 0
    assert found.unique == 4


def test_random_codes_have_no_mutual_information_left_after_adjustment():
    draw = random.Random(3)
    found = clustering([[draw.randrange(16) for _ in range(5)] for _ in range(400)], 16)
    assert abs(found.ami) < 0.05
    assert 15 < found.perplexity <= 16


def test_a_rationale_of_one_step_is_not_collapsed():
    found = clustering([[0], [1, 1], [0, 1]], 2)
    assert found.collapsed == 0.5
    assert math.isclose(found.unique, 4 / 3)


def test_no_step_is_an_error():
    with pytest.raises(ValueError, match="no step"):
        clustering([[]], 4)
