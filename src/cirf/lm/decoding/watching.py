"""Callbacks for every token of every row of a batch, and early ends of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

OnStep = Callable[[Sequence[int], Sequence[int]], Sequence[bool]]
"""Called with the rows that still go on, by their place in the first batch, and each one's new token; returns for each whether it
is finished."""


class Watch:
    """A stopping criterion in the sense of ``transformers`` for one batch of ``count`` rows.

    ``over``: for each row still in the batch, whether it has ended.
    """

    def __init__(self, count: int, on_step: OnStep) -> None:
        self.over = [False] * count
        self._rows, self._on_step = list(range(count)), on_step

    def select(self, rows: Sequence[int]) -> None:
        """Only these rows go on."""
        self._rows, self.over = [self._rows[row] for row in rows], [self.over[row] for row in rows]

    def __call__(self, input_ids: torch.Tensor, scores: Any, **more: Any) -> torch.Tensor:
        """Which rows [rows] are to end; the last column of ``input_ids`` [rows x so far] is new."""
        last = input_ids[:, -1].tolist()
        going = [place for place, over in enumerate(self.over) if not over]
        ended = self._on_step([self._rows[place] for place in going], [last[place] for place in going])
        for place, over in zip(going, ended, strict=True):
            self.over[place] = over
        return torch.tensor(self.over, dtype=torch.bool, device=input_ids.device)
