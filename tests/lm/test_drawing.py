"""The nucleus of a sampled answer: transformers' own but for equally likely tokens, whatever other rows are beside it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TopPLogitsWarper

from cirf.lm.drawing import Nucleus

IDS = torch.zeros(1, 1, dtype=torch.long)


def _scores(seed: int, sizes: list[float], words: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(len(sizes), words, dtype=torch.float64) * torch.tensor(sizes, dtype=torch.float64)[:, None]


SIZES = st.lists(st.sampled_from([0.01, 0.5, 2.0, 8.0, 50.0]), min_size=1, max_size=4)  # from flat rows to peaked ones


@settings(deadline=None)
@given(st.integers(0, 10**6), SIZES, st.integers(1, 700), st.floats(0.05, 0.99), st.booleans())
def test_it_is_transformers_own(seed: int, sizes: list[float], words: int, top_p: float, few: bool) -> None:
    scores = _scores(seed, sizes, words)  # in 32 bits rounding gives now one, now the other a token more
    if few:
        scores[:, 3:] = -torch.inf  # as a steered row has them
    assert torch.equal(Nucleus(top_p)(IDS, scores), TopPLogitsWarper(top_p)(IDS, scores))


@settings(deadline=None)
@given(st.integers(0, 10**6), SIZES, st.integers(1, 700), st.floats(0.05, 0.99))
def test_a_row_hangs_on_no_other_and_equally_likely_tokens_share_a_fate(
    seed: int, sizes: list[float], words: int, top_p: float
) -> None:
    scores = _scores(seed, sizes, words).bfloat16().float()  # many alike
    together = Nucleus(top_p)(IDS, scores)
    for row, alone in zip(scores, together, strict=True):
        assert torch.equal(Nucleus(top_p)(IDS, row[None])[0], alone)
        inside = alone.isfinite()
        assert torch.equal(alone[inside], row[inside]) and inside.any()
        assert inside.all() or row[inside].min() > row[~inside].max()


def test_only_rows_with_a_large_nucleus_are_sorted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_: list[tuple[int, int]] = []
    least = Nucleus._least
    monkeypatch.setattr(Nucleus, "_least", lambda self, rows, k: sorted_.append((len(rows), k)) or least(self, rows, k))
    scores = torch.arange(5000.0).repeat(3, 1) / 1e6
    scores[0, 70] = scores[2, 70] = 30.0
    found = Nucleus(0.9)(IDS, scores).isfinite().sum(dim=1).tolist()
    assert sorted_ == [(3, 64), (1, 5000)]
    assert found[0] == found[2] == 1 and abs(found[1] - 4500) < 10
