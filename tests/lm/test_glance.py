"""When a training is looked at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cirf.lm.glance import look_at


@given(st.integers(1, 500), st.integers(1, 5000))
def test_a_training_is_looked_at_behind_an_epoch_and_a_third_of_it(epoch: int, total: int) -> None:
    at = look_at(epoch, total)
    ends = [update for update in range(epoch, total, epoch) if update >= total / 3]
    assert at == (ends[0] if ends else None)
