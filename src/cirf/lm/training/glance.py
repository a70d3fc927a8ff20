"""A look at a training while it goes on, so that one that teaches nothing ends before hours are spent."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback

from cirf.lm.training.trainer import Trained

Look = Callable[[Any, int, int], str | None]
"""Given the model, the updates made and all updates: why the training is to end, or ``None``."""


def look_at(epoch: int, total: int) -> int | None:
    """The update after which to look: the end of the first epoch by which a third of the training is done. ``None`` if that is
    the last."""
    at = epoch * max(1, math.ceil(total / 3 / epoch))
    return at if at < total else None


class Glance(TrainerCallback):
    """Shows the model, ready to answer, to ``look`` once, and ends the training where that says so.

    ``ended`` is the reason, on every process the main one's; ``None``: it was not ended.
    """

    def __init__(self, look: Look, model: Any, at: int, autocast: Callable[[], AbstractContextManager[None]]) -> None:
        """``model`` is the backbone with its adapters, ``at`` from `look_at`, ``autocast`` the trainer's number format."""
        self._look, self._model, self._at, self._autocast = look, model, at, autocast
        self.ended: str | None = None

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """``at`` is the end of an epoch, so a training resumed from a checkpoint of that update is checked, too."""
        if state.global_step != self._at:
            return
        found = [self._looked(state.max_steps) if state.is_world_process_zero else None]
        self.ended = broadcast_object_list(found)[0]
        if self.ended is not None:
            raise Trained

    def _looked(self, updates: int) -> str | None:
        """Answers are written with the kernel that the model came with: those of trainings keep no cache."""
        model, kernel = self._model, getattr(self._model.config, "_attn_implementation", None)
        cache = model.config.use_cache
        model.eval()
        try:
            if kernel is not None:
                model.set_attn_implementation("sdpa" if model._supports_sdpa else "eager")
            model.config.use_cache = True
            with torch.no_grad(), self._autocast():
                return self._look(model, self._at, updates)
        finally:
            if kernel is not None:
                model.set_attn_implementation(kernel)
            model.config.use_cache = cache
            model.train()
