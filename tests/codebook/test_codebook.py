"""The codebook: trained, saved, read back, reused, and asked for the codes of something new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cirf import recipe
from cirf.codebook.centering import represent
from cirf.codebook.codebook import Codebook, train, usage
from cirf.errors import CirfError
from cirf.progress import SILENT

Segments = tuple[np.ndarray, np.ndarray]
Trained = tuple[Codebook, np.ndarray, dict[str, Any], np.ndarray]
EMBEDDER = {"model": "tiny", "revision": None, "numbers": "keep", "choices": "keep", "closing": "keep"}


@pytest.fixture(scope="module")
def trained(segments: Segments, small: recipe.Codebook, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    found = represent(*segments, "mean_centered", "corpus_mean", 1)
    book, codes, report = train(found.vectors, 10, small, 1, tmp_path_factory.mktemp("work"), SILENT)
    return book.described(found.corpus_mean, EMBEDDER), codes, report, found.vectors


def test_the_report_tells_what_happened(trained: Trained, small: recipe.Codebook) -> None:
    book, codes, report, vectors = trained
    assert codes.shape == (120,) and codes.dtype == np.int64 and report["segments"] == 120
    assert report["usage"] == [int((codes == k).sum()) for k in range(6)] and sum(report["usage"]) == 120
    shares = np.array([n / 120 for n in report["usage"] if n])
    assert report["perplexity"] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    assert report["disagreement"] == pytest.approx((book.encode(vectors) != codes).mean())
    assert report["column_imbalance"] >= 0 and len(report["losses"]["vq"]) == small.vq_epochs
    json.dumps(report)


def test_assign_nearest_gives_training_segments_what_a_new_one_would_get(
    segments: Segments, small: recipe.Codebook, trained: Trained, tmp_path: Path
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
    for key in ("numbers", "choices", "closing"):
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
    with pytest.raises(CirfError, match=r"set codebook.size to 6"):
        book.check(width=10, embedder=EMBEDDER, size=64)
    with pytest.raises(CirfError, match=r"quantises mean_centered, codebook.representation is raw"):
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


def test_a_fixed_dimension_must_be_the_backbones(segments: Segments, small: recipe.Codebook, tmp_path: Path) -> None:
    with pytest.raises(CirfError, match=r"codebook.dimension is 12, the backbone's embeddings are 10"):
        train(segments[0], 10, small.model_copy(update={"dimension": 12}), 1, tmp_path, SILENT)


def test_a_new_rationale_is_centred_on_itself(trained: Trained, segments: Segments) -> None:
    book, _, _, represented = trained
    vectors, _ = segments
    np.testing.assert_array_equal(book.quantise(vectors[8:12]), book.encode(represented[8:12]))
    np.testing.assert_array_equal(book.quantise(vectors[8:12] + np.float32(2)), book.encode(represented[8:12]))
    np.testing.assert_array_equal(book.quantise(vectors[8:9]), book.encode(vectors[8:9] - book.corpus_mean))


def test_a_question_centred_codebook_asks_for_the_question(segments: Segments, small: recipe.Codebook, tmp_path: Path) -> None:
    vectors, groups = segments
    section = small.model_copy(update={"representation": "question_centered"})
    found = represent(vectors, groups, "question_centered", "zero", 1, vectors[::4] * 0.5)
    book = train(found.vectors, 10, section, 1, tmp_path, SILENT)[0].described(found.corpus_mean, EMBEDDER)
    np.testing.assert_array_equal(book.quantise(vectors[4:8], vectors[40]), book.encode(vectors[4:8] - vectors[40]))
    with pytest.raises(CirfError, match="centred on the question, which was not given"):
        book.quantise(vectors[4:8])


def test_what_cannot_be_quantised_is_said(trained: Trained, small: recipe.Codebook, tmp_path: Path) -> None:
    with pytest.raises(CirfError, match="no step"):
        trained[0].quantise(np.zeros((0, 12), np.float32))
    section = small.model_copy(update={"representation": "random", "autoencoder_epochs": 0, "vq_epochs": 0})
    noise = train(trained[3], 10, section, 1, tmp_path, SILENT)[0]
    with pytest.raises(CirfError, match="stand for noise"):
        noise.quantise(trained[3][:2])


def test_usage_of_even_and_of_one_sided_codes() -> None:
    assert usage(np.arange(8) % 4, 4)["perplexity"] == pytest.approx(4)
    one = usage(np.zeros(5, np.int64), 4)
    assert one == {"usage": [5, 0, 0, 0], "used": 1, "perplexity": pytest.approx(1)}
    assert usage(np.zeros(0, np.int64), 2) == {"usage": [0, 0], "used": 0, "perplexity": 0.0}
