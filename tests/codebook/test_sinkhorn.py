"""The balanced assignment keeps its marginals, agrees with other people's solver, and survives extreme distances."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf.codebook.sinkhorn import assign, nearest, sinkhorn, squared_distances
from cirf.errors import CirfError
from cirf.recipe import schema


def _points(
    rows: int, codes: int, width: int = 5, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    return torch.tensor(random.normal(size=(rows, width)), dtype=dtype), torch.tensor(
        random.normal(size=(codes, width)), dtype=dtype
    )


def _plain_loop(distances: np.ndarray, temperature: float, iterations: int, scale: str) -> np.ndarray:
    """Eq. 6-7 as one would first write it, without logarithms."""
    rows, codes = distances.shape
    affinity = np.exp(-distances / (distances.mean() if scale == "mean" else 1.0) / temperature)
    for _ in range(iterations):
        affinity = affinity * (rows / codes / affinity.sum(axis=0, keepdims=True))
        affinity = affinity / affinity.sum(axis=1, keepdims=True)
    return affinity


@pytest.mark.parametrize("scale", ["mean", "none"])
@pytest.mark.parametrize("iterations", [1, 3, 7])
def test_a_few_rounds_equal_a_plain_loop(scale: str, iterations: int) -> None:
    distances = squared_distances(*_points(60, 7))
    found = sinkhorn(distances, 0.5, iterations, scale, chunk=16).exp()  # type: ignore[arg-type]
    np.testing.assert_allclose(found.numpy(), _plain_loop(distances.numpy(), 0.5, iterations, scale), rtol=1e-9, atol=1e-300)


def test_at_convergence_both_marginals_hold_and_an_independent_solver_agrees() -> None:
    rows, codes = 90, 8
    distances = squared_distances(*_points(rows, codes))
    found = sinkhorn(distances, 0.05, 300, "mean").exp()
    assert (found.sum(dim=1) - 1).abs().max() < 1e-6
    assert (found.sum(dim=0) / (rows / codes) - 1).abs().max() < 1e-6
    scaled = (distances / distances.mean()).numpy()
    plan = ot.sinkhorn(
        np.full(rows, 1 / rows), np.full(codes, 1 / codes), scaled, 0.05, method="sinkhorn_log", numItermax=20_000, stopThr=1e-13
    )
    np.testing.assert_allclose(found.numpy() / rows, plan, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 40),
    codes=st.integers(1, 12),
    iterations=st.integers(1, 5),
    temperature=st.floats(1e-3, 10),
    exponent=st.integers(-30, 30),
    scale=st.sampled_from(["mean", "none"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 99),
)
def test_rows_sum_to_one_whatever_the_distances(
    rows: int, codes: int, iterations: int, temperature: float, exponent: int, scale: str, dtype: torch.dtype, seed: int
) -> None:
    random = np.random.default_rng(seed)
    distances = torch.tensor(random.exponential(size=(rows, codes)) * 10.0**exponent, dtype=dtype)
    before = distances.clone()
    found = sinkhorn(distances, temperature, iterations, scale, chunk=7)  # type: ignore[arg-type]
    assert torch.equal(distances, before), "the input is the caller's"
    assert found.shape == (rows, codes) and not found.isnan().any() and (found <= 1e-5).all()
    assert (found.exp().sum(dim=1) - 1).abs().max() < 1e-4


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 50), codes=st.integers(1, 9), width=st.integers(1, 6), chunk=st.integers(1, 60), seed=st.integers(0, 99)
)
def test_assignment_does_not_depend_on_the_chunks(rows: int, codes: int, width: int, chunk: int, seed: int) -> None:
    x, anchors = _points(rows, codes, width, seed)
    whole, parts = assign(x, anchors, schema.Sinkhorn(), 1000), assign(x, anchors, schema.Sinkhorn(), chunk)
    assert torch.equal(whole.codes, parts.codes) and torch.equal(whole.nearest, parts.nearest)
    assert math.isclose(whole.column_imbalance, parts.column_imbalance, rel_tol=1e-9, abs_tol=1e-9)


def _round_by_round(x: torch.Tensor, anchors: torch.Tensor, section: schema.Sinkhorn, chunk: int) -> tuple[object, ...]:
    """``assign`` without a thought of speed: each step of each round by itself, over the whole matrix, with torch's logsumexp."""
    distances = squared_distances(x, anchors, chunk)
    total = math.fsum(float(block.sum(dtype=torch.float64)) for block in distances.split(chunk))
    logits = distances / (total / distances.numel() if section.scale == "mean" else 1.0) / -section.temperature
    rows, columns = torch.zeros(len(x), dtype=x.dtype), torch.zeros(len(anchors), dtype=x.dtype)
    for _ in range(section.iterations):
        mass = torch.full_like(columns, -math.inf)
        for block, row in zip(logits.split(chunk), rows.split(chunk), strict=True):
            mass = torch.logaddexp(mass, torch.logsumexp(block + row[:, None], dim=0))
        columns = math.log(len(x) / len(anchors)) - mass
        rows = -torch.logsumexp(logits + columns, dim=1)
    codes, mass = [], torch.zeros(len(anchors), dtype=torch.float64)
    for block in logits.split(chunk):
        log_q = torch.log_softmax(block + columns, dim=1)
        codes.append(log_q.argmax(dim=1))
        mass += log_q.exp().sum(dim=0, dtype=torch.float64)
    imbalance = float((mass * (len(anchors) / len(x)) - 1).abs().max())
    return torch.cat(codes).tolist(), distances.argmin(dim=1).tolist(), imbalance


@pytest.mark.parametrize("iterations", [1, 3, 4])
@pytest.mark.parametrize(("rows", "codes", "chunk"), [(3, 2, 2048), (700, 9, 256), (5000, 33, 2048)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_saved_changes_no_bit(rows: int, codes: int, chunk: int, iterations: int, dtype: torch.dtype) -> None:
    x, anchors = _points(rows, codes, dtype=dtype)
    x[1] = x[0]
    anchors[-1] = anchors[0]  # of two that are equally near, the first
    for scale in ("mean", "none"):
        section = schema.Sinkhorn(iterations=iterations, scale=scale)
        found = assign(x, anchors, section, chunk)
        plain = _round_by_round(x, anchors, section, chunk)
        assert (found.codes.tolist(), found.nearest.tolist(), found.column_imbalance) == plain


def test_assignment_is_the_argmax_of_q_and_reports_its_columns() -> None:
    x, anchors = _points(50, 6)
    found = assign(x, anchors, schema.Sinkhorn())
    log_q = sinkhorn(squared_distances(x, anchors), 0.05, 3)
    assert torch.equal(found.codes, log_q.argmax(dim=1))
    assert found.column_imbalance == pytest.approx(float((log_q.exp().sum(dim=0) * 6 / 50 - 1).abs().max()))
    plain = torch.cdist(x, anchors).argmin(dim=1)
    assert torch.equal(found.nearest, plain) and torch.equal(nearest(x, anchors, 7), plain)
    assert found.disagreement == pytest.approx(float((found.codes != plain).double().mean())) and found.disagreement > 0


def test_distances_far_from_the_origin_keep_their_digits() -> None:
    x, anchors = _points(20, 4)
    far = squared_distances((x + 1000).float(), (anchors + 1000).float())
    torch.testing.assert_close(far.double(), torch.cdist(x, anchors).square(), rtol=5e-3, atol=5e-3)


def test_crowded_points_spread_over_all_codes() -> None:
    random = np.random.default_rng(3)
    x = torch.tensor(np.concatenate([random.normal(size=(180, 4)) * 0.3, random.normal(size=(20, 4)) + 5]), dtype=torch.float32)
    anchors = torch.cat([x[:2], x[180:186]])
    balanced = assign(x, anchors, schema.Sinkhorn(iterations=200))
    even = torch.bincount(balanced.codes, minlength=8)
    crowded = torch.bincount(balanced.nearest, minlength=8)
    assert even.max() < 45 < 80 < crowded.max() and balanced.column_imbalance < 0.05


def test_points_all_alike_are_no_trouble() -> None:
    same = torch.ones(10, 3)
    found = assign(same, torch.ones(2, 3), schema.Sinkhorn())
    assert found.column_imbalance == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_distances_that_are_not_finite_are_refused(bad: float) -> None:
    x, anchors = _points(5, 2)
    x[3, 1] = bad
    with pytest.raises(CirfError, match="not finite"):
        assign(x, anchors, schema.Sinkhorn())


def test_widths_must_agree_and_something_must_be_there() -> None:
    with pytest.raises(CirfError, match="5 wide, codes 4"):
        assign(torch.zeros(3, 5), torch.zeros(2, 4), schema.Sinkhorn())
    with pytest.raises(CirfError, match="at least one"):
        sinkhorn(torch.zeros(0, 4), 0.05, 3)
    assert nearest(torch.zeros(0, 4), torch.zeros(2, 4)).shape == (0,)


@pytest.mark.slow
def test_a_hundred_thousand_segments_fit_in_two_gigabytes() -> None:
    code = (
        "import resource, torch; from cirf.recipe import schema; from cirf.codebook.sinkhorn import assign\n"
        "g = torch.Generator().manual_seed(0); x = torch.randn(100_000, 896, generator=g)\n"
        "assert assign(x, x[:256].clone(), schema.Sinkhorn()).codes.shape == (100_000,)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(run.stdout) * unit < 2e9
