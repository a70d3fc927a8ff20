"""Sampled answers: top-p equals that of transformers except for ties, draws follow the softmax, and rows are independent."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TopPLogitsWarper

from cirf.lm.decoding.sampling import drawing, nucleus

IDS = torch.zeros(1, 1, dtype=torch.long)


def _scores(seed: int, sizes: list[float], words: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(len(sizes), words, dtype=torch.float64) * torch.tensor(sizes, dtype=torch.float64)[:, None]


SIZES = st.lists(st.sampled_from([0.01, 0.5, 2.0, 8.0, 50.0]), min_size=1, max_size=4)  # from flat rows to peaked ones


def _nucleus(scores: torch.Tensor, top_p: float, count: int) -> torch.Tensor:
    """``scores`` of the rows whose whole nucleus is found, minus infinity outside of it; not a number in the others."""
    values, tokens, everything = nucleus(scores, top_p, count)
    assert bool((tokens.diff(dim=1) > 0).all())
    found = torch.full_like(scores, -torch.inf).scatter(1, tokens, values)
    return found.masked_fill(~everything[:, None], torch.nan)


@settings(deadline=None)
@given(st.integers(0, 10**6), SIZES, st.integers(1, 700), st.floats(0.05, 0.99), st.booleans())
def test_it_is_transformers_own(seed: int, sizes: list[float], words: int, top_p: float, few: bool) -> None:
    scores = _scores(seed, sizes, words)  # in 32 bits rounding gives now one, now the other a token more
    if few:
        scores[:, 3:] = -torch.inf  # as a steered row has them
    assert torch.equal(_nucleus(scores, top_p, words), TopPLogitsWarper(top_p)(IDS, scores))


@settings(deadline=None)
@given(st.integers(0, 10**6), SIZES, st.integers(1, 700), st.floats(0.05, 0.99), st.integers(1, 100))
def test_a_row_hangs_on_no_other_and_equally_likely_tokens_share_a_fate(
    seed: int, sizes: list[float], words: int, top_p: float, count: int
) -> None:
    scores = _scores(seed, sizes, words).bfloat16().float()  # many alike
    whole, some = _nucleus(scores, top_p, words), _nucleus(scores, top_p, count)
    for row, alone, part in zip(scores, whole, some, strict=True):
        assert torch.equal(_nucleus(row[None], top_p, words)[0], alone)
        inside = alone.isfinite()
        assert torch.equal(alone[inside], row[inside]) and inside.any()
        assert inside.all() or row[inside].min() > row[~inside].max()
        assert torch.equal(part, alone) if inside.sum() < min(count, words) else part.isnan().all() or torch.equal(part, alone)


def test_only_rows_with_a_large_nucleus_are_sorted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_: list[tuple[int, int]] = []
    real = nucleus

    def seen(scores: torch.Tensor, top_p: float, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        sorted_.append((len(scores), count))
        return real(scores, top_p, count)

    monkeypatch.setattr("cirf.lm.decoding.sampling.nucleus", seen)
    scores = torch.arange(5000.0).repeat(3, 1) / 1e6
    scores[0, 70] = scores[2, 71] = 30.0
    (drawn,) = _drawn(scores, 1, ["a", "b", "c"], 0.9)
    assert sorted_ == [(3, 64), (1, 2048), (1, 65536)]
    assert drawn[0] == 70 and drawn[2] == 71 and drawn[1] >= 499  # the unlikeliest tenth is outside
    sorted_.clear()
    scores[1, :100] = 20.0
    assert _drawn(scores, 1, ["a", "b", "c"], 0.9)[0][1] < 100 and sorted_ == [(3, 64), (1, 2048)]


def _drawn(scores: torch.Tensor, times: int, seeds: list[str], top_p: float = 1.0) -> list[list[int]]:
    """Ids drawn one after the other, [times][rows]."""
    steps = drawing(SimpleNamespace(device="cpu"), 1.0, top_p, seeds)

    def once() -> list[int]:
        left = scores
        for step in steps:
            left = step(IDS, left)
        assert torch.equal(left.isfinite().sum(dim=1), torch.ones(len(left), dtype=torch.long))
        return left.argmax(dim=1).tolist()

    return [once() for _ in range(times)]


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_tokens_are_drawn_as_often_as_they_are_likely(top_p: float) -> None:
    scores = torch.tensor([[2.0, -torch.inf, 1.0, 0.0, -1.0, -9.0], [0.0, 0.0, 0.0, -torch.inf, 0.0, -torch.inf]])
    likely = (_nucleus(scores, top_p, 6) if top_p < 1 else scores).softmax(dim=1)
    drawn = torch.tensor(_drawn(scores, 1500, ["one", "two"], top_p))
    for row in range(2):
        shares = torch.bincount(drawn[:, row], minlength=6) / 1500
        assert (shares - likely[row]).abs().max() < 0.05  # four standard deviations
        assert not shares[likely[row] == 0].any()


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), SIZES, st.integers(1, 700), st.sampled_from([1.0, 0.9]))
def test_a_draw_hangs_on_its_own_row_alone(seed: int, sizes: list[float], words: int, top_p: float) -> None:
    scores = _scores(seed, sizes, words)
    seeds = [f"row {row}" for row in range(len(sizes))]
    together = _drawn(scores, 5, seeds, top_p)
    for row, seeded in enumerate(seeds):
        assert _drawn(scores[row : row + 1], 5, [seeded], top_p) == [[ids[row]] for ids in together]


def test_a_number_at_the_very_end_still_draws_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda *_, dtype, **__: torch.ones(1, dtype=dtype))
    scores = torch.full((1, 50), -torch.inf).index_fill(1, torch.tensor([3, 7]), 0.0)
    assert _drawn(scores, 1, ["a"]) == [[7]]
    assert _drawn(torch.cat([scores, torch.zeros(1, 50)]), 1, ["a", "b"]) == [[7, 49]]


def test_the_number_nought_draws_no_token_that_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda *_, dtype, **__: torch.zeros(1, dtype=dtype))
    scores = torch.full((1, 50), -torch.inf).index_fill(1, torch.tensor([3, 7]), 0.0)
    assert _drawn(scores, 1, ["a"]) == _drawn(scores, 1, ["a"], 0.9) == [[3]]


@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("words", [5, 300])
def test_a_row_that_is_not_numbers_does_not_end_the_others(top_p: float, words: int) -> None:
    scores = torch.zeros(4, words)
    scores[0], scores[1, 2], scores[2] = torch.nan, torch.inf, -torch.inf
    scores[3, 1] = 90.0
    (drawn,) = _drawn(scores, 1, ["a", "b", "c", "d"], top_p)
    assert drawn[1] == 2 and drawn[3] == 1 and all(0 <= token < words for token in drawn)


def test_next_to_no_temperature_draws_the_likeliest() -> None:
    left = torch.tensor([[-3.0, 20.0, 19.9, 1e4]])
    for step in drawing(SimpleNamespace(device="cpu"), 1e-40, 0.95, ["a"]):
        left = step(IDS, left)
    assert left.argmax() == 3
