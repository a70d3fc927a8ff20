"""Steering in vLLM: the logits processors that steer the answers of transformers, applied to vLLM's batches in the process of its
engine, which imports this module by name (see `cirf.evaluation.engines.engine`)."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class Steered(LogitsProcessor):  # type: ignore[misc]
    """Steers the requests that name a file of pickled processors, all of them the same one."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, tuple[int, Sequence[int]]] = {}
        self._processors: list[Any] = []

    def is_argmax_invariant(self) -> bool:
        """Greedy answers change too."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Requests come, go and move in the batch."""
        process_dict_updates(self._rows, batch_update, self._begin)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """``logits`` [rows x vocabulary] with minus infinity for what may not come next."""
        if self._rows:
            rows = list(self._rows)
            last, written = zip(*self._rows.values(), strict=True)
            scores = logits[rows]
            for processor in self._processors:
                scores = processor.ragged(last, written, scores)
            logits[rows] = scores
        return logits

    def _begin(self, params: Any, prompt: Sequence[int], written: Sequence[int]) -> tuple[int, Sequence[int]] | None:
        """The last id of a request's prompt, and the list that its ids are added to."""
        path = (params.extra_args or {}).get("cirf_steering")
        if path is None:
            return None
        # A pickle, but one that `engine` has just written: no request of others reaches an engine with this processor.
        self._processors = self._processors or pickle.loads(Path(path).read_bytes())
        return prompt[-1], written
