"""A set on disk ends as the same set in memory, to the last bit, and so does one larger than the buffers; memory stays small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinyrun
import torch
from watching import Counting, StopAfter, StopError

from cirf.codebook import fit as module
from cirf.codebook import rows, vqvae
from cirf.codebook.centering import Kind, SingleStep, mean_of, represent
from cirf.codebook.codebook import train
from cirf.codebook.fit import Fit, first_codes, fit
from cirf.codebook.rows import FileRows, Picked
from cirf.codebook.sinkhorn import assign
from cirf.codebook.vqvae import VQVAE, EncodedRows
from cirf.progress import SILENT
from cirf.recipe import schema

Segments = tuple[np.ndarray, np.ndarray]


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers that a set of 120 does not fit into."""
    monkeypatch.setattr(rows, "HELD", 40 * 12 * 4)
    monkeypatch.setattr(rows, "CHUNK", 7 * 12 * 4)
    monkeypatch.setattr(vqvae, "PIECE", 32)
    monkeypatch.setattr(module, "SAVE_EVERY", 0.0)


def _on_disk(vectors: np.ndarray, path: Path) -> FileRows:
    found = FileRows.made(path, vectors.shape)
    found[:] = vectors
    return found


def _all_at_once(vectors: np.ndarray, groups: np.ndarray, kind: str, single_step: str, questions: np.ndarray) -> np.ndarray:
    """Eq. 5 and the other kinds with everything in memory, as one would first write it."""
    names, inverse, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    if kind == "raw":
        return vectors
    if kind == "question_centered":
        return vectors - questions[groups]
    if kind == "random":
        noise = np.random.default_rng(3).standard_normal(vectors.shape, dtype=np.float32)
        return noise * (np.linalg.norm(vectors, axis=1) / np.linalg.norm(noise, axis=1))[:, None]
    exact = vectors.astype(np.float64)
    found = (exact - (np.add.reduceat(exact[order], starts, axis=0) / sizes[:, None])[inverse]).astype(np.float32)
    alone = np.array([(vectors[groups == name] == vectors[groups == name][0]).all() for name in names])[inverse]
    mean = vectors[::2].mean(axis=0, dtype=np.float64).astype(np.float32)
    found[alone] = vectors[alone] - mean if single_step == "corpus_mean" else 0
    return found


@pytest.mark.parametrize("kind", ["mean_centered", "raw", "question_centered", "random"])
@pytest.mark.parametrize("single_step", ["corpus_mean", "zero"])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("chunk", [1, 7 * 12 * 4, 2**23])
def test_representations_are_those_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, single_step: SingleStep, ordered: bool, chunk: int
) -> None:
    random = np.random.default_rng(8)
    groups = np.repeat(np.arange(50), random.integers(1, 6, 50))
    vectors = random.standard_normal((len(groups), 12)).astype(np.float32)
    questions = random.standard_normal((50, 12)).astype(np.float32)
    vectors[groups == 17] = 0.5  # steps that all read alike
    if not ordered:
        shuffle = random.permutation(len(groups))
        vectors, groups = vectors[shuffle], groups[shuffle]
    monkeypatch.setattr(rows, "CHUNK", chunk)
    monkeypatch.setattr(rows, "HELD", 1)
    stored, asked = _on_disk(vectors, tmp_path / "z"), _on_disk(questions, tmp_path / "questions")
    chosen = np.arange(0, len(vectors), 2)
    mean = mean_of(Picked(stored, chosen))
    found = represent(stored, groups, kind, single_step, 3, asked, corpus_mean=mean, scratch=tmp_path / "represented")
    assert isinstance(found.vectors, FileRows)
    wanted = _all_at_once(vectors, groups, kind, single_step, questions)
    np.testing.assert_array_equal(found.vectors[:], wanted)
    np.testing.assert_array_equal(found.corpus_mean, vectors[chosen].mean(axis=0, dtype=np.float64).astype(np.float32))
    sizes = np.bincount(groups)
    assert found.single_steps == (sizes == 1).sum() + (sizes[17] > 1)


def _all_in_memory(vectors: np.ndarray, section: schema.Codebook, seed: int) -> dict[str, torch.Tensor]:
    """The course of a fit with the whole set and all of x as tensors: weights and codes at its end."""
    data = torch.from_numpy(vectors)

    def mixed(purpose: int, epoch: int) -> int:
        return int(np.random.SeedSequence([seed, purpose, epoch]).generate_state(1)[0])

    model = VQVAE(data.shape[1], section.hidden, 10, section.size, torch.Generator().manual_seed(mixed(0, 0)))
    for number, epochs in enumerate((section.autoencoder_epochs, section.vq_epochs)):
        if number:
            with torch.no_grad():
                model.codes.copy_(first_codes(EncodedRows(model.encoder, vectors), vectors, section, mixed(1, 0)))
        trained = [*model.encoder.parameters(), *model.decoder.parameters(), *([model.codes] if number else [])]
        adam = torch.optim.Adam(trained, lr=section.learning_rate, fused=True)
        for epoch in range(epochs):
            with torch.no_grad():
                codes = assign(model.encoder(data), model.codes.detach(), section.sinkhorn).codes if number else None
            for batch in torch.from_numpy(np.random.default_rng(mixed(2 + number, epoch)).permutation(len(data))).split(32):
                if codes is None:
                    loss = model.reconstruction(data[batch])
                else:
                    loss = model.losses(data[batch], codes[batch], section.gradient).total(section.beta)
                adam.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(trained, section.max_grad_norm)
                adam.step()
    return model.state_dict()


@pytest.mark.parametrize("initialiser", ["sinkhorn", "kmeans", "random"])
def test_a_set_that_fits_is_trained_on_as_if_all_were_in_memory(
    segments: Segments, small: schema.Codebook, tmp_path: Path, initialiser: str
) -> None:
    section = small.model_copy(update={"initialiser": initialiser})
    found = fit(_on_disk(segments[0], tmp_path / "z"), 10, section, 1, tmp_path, SILENT).model.state_dict()
    wanted = _all_in_memory(segments[0], section, 1)
    assert set(found) == set(wanted) and all(torch.equal(found[name], wanted[name]) for name in wanted)


def _bytes(vectors: rows.Rows, section: schema.Codebook, work: Path) -> tuple[bytes, bytes, bytes]:
    book, codes, report = train(vectors, 10, section, 1, work, SILENT)
    book.save(work / "book", report)
    return (
        (work / "book" / "codebook.safetensors").read_bytes(),
        (work / "book" / "codebook.json").read_bytes(),
        codes.tobytes() + book.encode(vectors).tobytes(),
    )


@pytest.mark.parametrize(("initialiser", "fits"), [("sinkhorn", False), ("kmeans", True), ("kmeans", False), ("random", True)])
def test_a_codebook_of_vectors_on_disk_has_the_bytes_of_one_in_memory(
    segments: Segments, small: schema.Codebook, tmp_path: Path, request: pytest.FixtureRequest, initialiser: str, fits: bool
) -> None:
    if not fits:
        request.getfixturevalue("tight")
    section = small.model_copy(update={"initialiser": initialiser})
    in_memory = _bytes(segments[0], section, tmp_path / "a")
    assert in_memory == _bytes(_on_disk(segments[0], tmp_path / "z"), section, tmp_path / "b")
    spread = np.zeros((240, 12), np.float32)
    spread[::2] = segments[0]
    assert in_memory == _bytes(Picked(_on_disk(spread, tmp_path / "y"), np.arange(0, 240, 2)), section, tmp_path / "c")


def _state(found: Fit) -> dict[str, Any]:
    return {name: tensor.tolist() for name, tensor in found.model.state_dict().items()} | {"losses": found.losses}


@pytest.mark.parametrize("units", [50, 121, 361, 500])
def test_a_shuffled_fit_broken_off_ends_the_same(
    segments: Segments, small: schema.Codebook, tmp_path: Path, tight: None, units: int
) -> None:
    stored = _on_disk(segments[0], tmp_path / "z")
    whole = fit(stored, 10, small, 1, tmp_path / "whole", SILENT)
    with pytest.raises(StopError):
        fit(stored, 10, small, 1, tmp_path / "broken", StopAfter(units))
    counting = Counting()
    assert _state(fit(stored, 10, small, 1, tmp_path / "broken", counting)) == _state(whole)
    assert sum(counting.units.values()) == 720 - units // 120 * 120, "finished epochs are not run again"


def test_a_fit_with_another_buffer_is_not_gone_on_from(
    segments: Segments, small: schema.Codebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tight: None
) -> None:
    fit(segments[0], 10, small, 1, tmp_path, SILENT)
    monkeypatch.setattr(rows, "HELD", 50 * 12 * 4)
    counting = Counting()
    fit(segments[0], 10, small, 1, tmp_path, counting)
    assert not any(counting.before.values()) and sum(counting.units.values()) == 720


def test_memory_holds_a_part_of_the_vectors() -> None:
    """Embeddings of 51 MB, represented and trained on beside buffers of 4 MB: the process grows by less than half of them."""
    code = """
import json, sys, tempfile
from pathlib import Path
import numpy as np, torch
from cirf.recipe import schema
from cirf.codebook import rows
from cirf.codebook.centering import represent
from cirf.codebook.codebook import train
from cirf.codebook.rows import FileRows
from cirf.progress import SILENT

def kilobytes(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1])

torch.set_num_threads(1)
rows.HELD, rows.CHUNK = 2**22, 2**20
section = schema.Codebook(size=4, hidden=8, autoencoder_epochs=1, vq_epochs=1, batch_size=2048)

def run(count, work):
    stored, random = FileRows.made(work / "z", (count, 128)), np.random.default_rng(0)
    for piece in rows.chunks(count, 128):
        stored[piece] = random.standard_normal((piece.stop - piece.start, 128), dtype=np.float32)
    found = represent(stored, np.arange(count) // 5, "mean_centered", "zero", 1, scratch=work / "represented")
    assert isinstance(found.vectors, FileRows)
    book, codes, report = train(found.vectors, 8, section, 1, work, SILENT)
    return codes, book.encode(found.vectors)

with tempfile.TemporaryDirectory() as folder:
    run(10_000, Path(folder) / "first")  # whatever is loaded or kept for later is there now
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak
    before = kilobytes("VmRSS")
    run(100_000, Path(folder) / "second")
    print(json.dumps({"grown": 1024 * (kilobytes("VmHWM") - before)}))
"""
    run = tinyrun.python("-c", code)
    assert run.code == 0, run.err
    assert json.loads(run.out)["grown"] < 25e6
