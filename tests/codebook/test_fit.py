"""Training: it learns, it is the same every time, and a kill changes nothing. An epoch meets every row once, in the plain order
where the set fits into the buffer, and reads no row by itself.
"""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
import tinyrun
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from watching import Counting, StopAfter, StopError

from cirf.codebook import fit as module
from cirf.codebook import rows
from cirf.codebook.centering import represent
from cirf.codebook.codebook import train
from cirf.codebook.fit import Fit, batches, buffers, code_means, draw_distinct, first_codes, fit
from cirf.codebook.rows import Where
from cirf.codebook.sinkhorn import assign
from cirf.codebook.vqvae import EncodedRows, FeedForward
from cirf.errors import CirfError
from cirf.progress import SILENT
from cirf.recipe import schema

Segments = tuple[np.ndarray, np.ndarray]


def _identity(vectors: torch.Tensor) -> EncodedRows:
    """The vectors as an encoded set: as an encoder gives them that changes nothing."""
    network = FeedForward(vectors.shape[1], 1, vectors.shape[1])
    network.forward = lambda inputs: inputs  # type: ignore[method-assign]
    return EncodedRows(network, vectors.numpy())


def _same(one: Fit, two: Fit) -> bool:
    first, second = one.model.state_dict(), two.model.state_dict()
    return one.losses == two.losses and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(autouse=True)
def _save_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAVE_EVERY", 0.0)


def test_losses_fall_and_are_recorded_for_every_epoch(segments: Segments, small: schema.Codebook, tmp_path: Path) -> None:
    centred = represent(*segments, "mean_centered", "corpus_mean", 1).vectors
    section = small.model_copy(update={"vq_epochs": 8})
    found = fit(centred, 10, section, 1, tmp_path, SILENT).losses
    assert [len(found["autoencoder"]), len(found["vq"])] == [3, 8]
    assert found["autoencoder"][-1]["total"] < found["autoencoder"][0]["total"]
    assert found["vq"][-1]["total"] < found["vq"][0]["total"]
    last = found["vq"][-1]
    assert last["total"] == pytest.approx(last["reconstruction"] + last["codebook"] + small.beta * last["commitment"], rel=1e-6)


def test_gradients_are_clipped(segments: Segments, small: schema.Codebook, tmp_path: Path) -> None:
    """Of gradients far below its epsilon Adam makes no step to speak of."""
    section = small.model_copy(update={"max_grad_norm": 1e-12})
    for losses in fit(segments[0], 10, section, 1, tmp_path, SILENT).losses.values():
        assert [row["total"] for row in losses] == pytest.approx([losses[0]["total"]] * len(losses), rel=1e-4)


@pytest.mark.parametrize("initialiser", ["sinkhorn", "kmeans", "random"])
def test_same_seed_same_bytes(segments: Segments, small: schema.Codebook, tmp_path: Path, initialiser: str) -> None:
    section = small.model_copy(update={"initialiser": initialiser})
    one, two, other = (fit(segments[0], 10, section, seed, tmp_path / str(n), SILENT) for n, seed in enumerate([1, 1, 2]))
    assert _same(one, two) and not _same(one, other)
    assert one.model.codes.shape == (6, 10)


@pytest.mark.parametrize("units", [1, 119, 121, 250, 359, 361, 500, 719])
def test_a_run_broken_off_anywhere_ends_the_same(
    segments: Segments, small: schema.Codebook, tmp_path: Path, units: int, counting: Counting
) -> None:
    whole = fit(segments[0], 10, small, 1, tmp_path / "whole", SILENT)
    with pytest.raises(StopError):
        fit(segments[0], 10, small, 1, tmp_path / "broken", StopAfter(units))
    resumed = fit(segments[0], 10, small, 1, tmp_path / "broken", counting)
    assert _same(whole, resumed)
    assert sum(counting.units.values()) == 720 - units // 120 * 120, "finished epochs are not run again"


def test_a_kill_ends_the_same(segments: Segments, small: schema.Codebook, tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", segments[0])
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "import numpy as np; from pathlib import Path; from watching import KillAfter\n"
        "from cirf.recipe.schema import Codebook; from cirf.codebook import fit; fit.SAVE_EVERY = 0.0; work = Path(sys.argv[3])\n"
        "section = Codebook.model_validate_json(sys.argv[4])\n"
        "fit.fit(np.load(work / 'vectors.npy'), 10, section, 1, work, KillAfter(int(sys.argv[5])))"
    )
    source, here = str(Path(module.__file__).parents[2]), str(Path(__file__).parents[1])
    run = tinyrun.python("-c", code, source, here, tmp_path, small.model_dump_json(), "500")
    assert run.code == -signal.SIGKILL, run.err
    resumed = fit(segments[0], 10, small, 1, tmp_path, SILENT)
    assert _same(resumed, fit(segments[0], 10, small, 1, tmp_path / "whole", SILENT))


def test_the_state_of_another_fit_is_not_gone_on_from(segments: Segments, small: schema.Codebook, tmp_path: Path) -> None:
    fit(segments[0], 10, small, 1, tmp_path / "used", SILENT)
    other = small.model_copy(update={"beta": 0.25})
    used = fit(segments[0], 10, other, 1, tmp_path / "used", SILENT)
    assert _same(used, fit(segments[0], 10, other, 1, tmp_path / "fresh", SILENT))
    (tmp_path / "used" / "scratch" / "vqvae.pt").write_bytes(b"torn")
    assert _same(used, fit(segments[0], 10, other, 1, tmp_path / "used", SILENT))


def test_sinkhorn_uses_codes_more_evenly_than_kmeans() -> None:
    sizes = [300, 60, 20, 10, 5, 5]
    spread = {"sinkhorn": 0.0, "kmeans": 0.0}
    for seed in range(4):
        random = np.random.default_rng(seed)
        data = np.concatenate([random.normal(size=8) * 4 + random.normal(size=(n, 8)) for n in sizes]).astype(np.float32)
        vectors = torch.from_numpy(data)
        for initialiser in spread:
            section = schema.Codebook(size=8, initialiser=initialiser)
            codes = first_codes(_identity(vectors), data, section, 1)
            nearest = assign(vectors, codes, section.sinkhorn).nearest  # of both, for balancing would even out any codes
            spread[initialiser] += float(torch.bincount(nearest, minlength=8).double().std())
    assert spread["sinkhorn"] < 0.6 * spread["kmeans"]


@pytest.mark.parametrize("initialiser", ["kmeans", "random"])
def test_codes_that_are_never_balanced_stay_uneven(tmp_path: Path, initialiser: str) -> None:
    random = np.random.default_rng(0)
    sizes = [200, 20, 10, 5, 5]
    vectors = np.concatenate([4 * random.normal(size=8) + random.normal(size=(n, 8)) for n in sizes]).astype(np.float32)
    found = {}
    for how in ("sinkhorn", "nearest"):
        section = schema.Codebook(size=6, hidden=16, autoencoder_epochs=3, vq_epochs=6, learning_rate=1e-2)
        section = section.model_copy(update={"initialiser": initialiser, "reassign": how, "assign": how})
        found[how] = train(vectors, 8, section, 1, tmp_path / how, SILENT)[2]
    assert found["nearest"]["perplexity"] < 0.8 * found["sinkhorn"]["perplexity"]
    assert found["nearest"]["losses"]["vq"][0]["total"] != found["sinkhorn"]["losses"]["vq"][0]["total"]


def test_first_codes_are_means_of_balanced_clusters_of_distinct_anchors() -> None:
    vectors = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    section = schema.Codebook(size=5)
    anchors = vectors[torch.from_numpy(draw_distinct(vectors.numpy(), 5, 9))]
    codes = assign(vectors, anchors, section.sinkhorn).codes
    wanted = torch.stack([vectors[codes == k].mean(dim=0) for k in range(5)])
    torch.testing.assert_close(first_codes(_identity(vectors), vectors.numpy(), section, 9), wanted)


def test_a_code_without_segments_keeps_its_anchor() -> None:
    found = code_means([torch.tensor([[1.0], [3.0]])], torch.tensor([2, 2]), torch.tensor([[7.0], [8.0], [9.0]]))
    assert found.tolist() == [[7.0], [8.0], [2.0]]


def test_random_codes_have_the_size_of_the_data() -> None:
    vectors = 5 * torch.randn(400, 16, generator=torch.Generator().manual_seed(0))
    codes = first_codes(_identity(vectors), vectors.numpy(), schema.Codebook(size=256, initialiser="random"), 1)
    assert float(codes.square().mean().sqrt()) == pytest.approx(5, rel=0.05)


def test_anchors_are_never_two_of_a_kind() -> None:
    vectors = torch.arange(4.0).repeat_interleave(10)[:, None]
    drawn = draw_distinct(vectors.numpy(), 4, 3)
    assert sorted(vectors[torch.from_numpy(drawn)].flatten().tolist()) == [0, 1, 2, 3]
    assert len(draw_distinct(vectors.numpy(), 9, 3)) == 4


@pytest.mark.parametrize(("rows", "kinds"), [(5, 5), (60, 4)])
def test_too_few_segments_for_the_codes(small: schema.Codebook, tmp_path: Path, rows: int, kinds: int) -> None:
    data = np.eye(kinds, 8, dtype=np.float32)[np.arange(rows) % kinds]
    with pytest.raises(CirfError, match=f"codebook.size is 6, but only {kinds} segments are distinct; .* to {kinds} or fewer"):
        fit(data, 10, small, 1, tmp_path, SILENT)


def test_a_loss_that_explodes_is_named(segments: Segments, small: schema.Codebook, tmp_path: Path) -> None:
    data = segments[0].copy()
    data[3] = 1e30
    with pytest.raises(CirfError, match=r"loss is not finite in epoch 1; lower codebook.learning_rate"):
        fit(data, 10, small, 1, tmp_path, SILENT)


def test_no_epochs_at_all_still_give_codes(segments: Segments, small: schema.Codebook, tmp_path: Path) -> None:
    section = small.model_copy(update={"autoencoder_epochs": 0, "vq_epochs": 0})
    found = fit(segments[0], 10, section, 1, tmp_path, SILENT)
    assert found.losses == {"autoencoder": [], "vq": []} and found.model.codes.detach().abs().sum() > 0


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


@settings(max_examples=30, deadline=None)
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
        patch.setattr(module, "BLOCKS", blocks)
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


@settings(max_examples=20, deadline=None)
@given(count=st.integers(1, 2000), most=st.integers(1, 900), seed=st.integers(0, 9))
def test_no_buffer_is_too_large(count: int, most: int, seed: int) -> None:
    for spans, permutation in buffers(count, most, seed):
        filled = sum(span.stop - span.start for span in spans)
        assert filled <= most and sorted(permutation.tolist()) == list(range(filled))


def test_seeds_shuffle_blocks_and_rows_otherwise() -> None:
    first, second = ([spans for spans, _ in buffers(10_000, 1000, seed)] for seed in (1, 2))
    assert first != second
    assert len({span.start // 1000 for span in first[0]}) > 5, "a buffer has rows from all over the set"
