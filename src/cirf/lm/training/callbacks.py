"""What ends a training early: a look at a model that has learned nothing yet, and signals.

On Ctrl-C or SIGTERM, fine-tuning stops after the current update and saves a checkpoint of it.

A second signal stops it at once; it then resumes from the previous checkpoint, as after a SIGKILL. With several processes each
would stop after a different update, so signals keep their default behaviour there.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback

from cirf.lm.training.spec import EarlyLook
from cirf.lm.training.trainer import AlreadyTrained, DivergedError


def check_update(epoch: int, total: int) -> int | None:
    """The update after which to look: the end of the first epoch by which a third of the training is done. ``None`` if that is
    the last."""
    at = epoch * max(1, math.ceil(total / 3 / epoch))
    return at if at < total else None


class EarlyCheck(TrainerCallback):
    """Shows the model, ready to answer, to ``look`` once, and ends the training where that says so. ``ended`` is the reason, on
    every process the main one's; ``None``: it was not ended."""

    def __init__(self, look: EarlyLook, model: Any, at: int, autocast: Callable[[], AbstractContextManager[None]]) -> None:
        """``model`` is the backbone with its adapters, ``at`` from `check_update`, ``autocast`` the trainer's number format."""
        self._look, self._model, self._at, self._autocast = look, model, at, autocast
        self._kernel = getattr(model.config, "_attn_implementation", None)
        self.ended: str | None = None

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """``at`` is the end of an epoch, so a training resumed from a checkpoint of that update is checked, too."""
        if state.global_step != self._at:
            return
        found = [self._looked(state.max_steps) if state.is_world_process_zero else None]
        self.ended = broadcast_object_list(found)[0]
        if self.ended is not None:
            raise AlreadyTrained

    def _looked(self, updates: int) -> str | None:
        """Answers are written with the kernel that the model came with: those of trainings keep no cache."""
        model, kernel = self._model, getattr(self._model.config, "_attn_implementation", None)
        cache = model.config.use_cache
        model.eval()
        try:
            if kernel is not None:
                model.set_attn_implementation(self._kernel)
            model.config.use_cache = True
            with torch.no_grad(), self._autocast():
                return self._look(model, self._at, updates)
        finally:
            if kernel is not None:
                model.set_attn_implementation(kernel)
            model.config.use_cache = cache
            model.train()


_SAID = b"cirf: stopping after this update at the latest; a checkpoint is saved first. Press Ctrl-C again to stop at once\n"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_USUAL = (signal.SIG_DFL, signal.default_int_handler)


class StopOnSignal(TrainerCallback):
    """Saves after the update in which a signal came, then acts on the signal."""

    def __init__(self) -> None:
        self.came: int | None = None
        """The signal's number, once one came."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.came is not None:
            control.should_save = True

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.on_step_end(args, state, control)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._obey()

    def _obey(self) -> None:
        if self.came == signal.SIGINT:
            raise KeyboardInterrupt
        if self.came is not None:
            raise SystemExit(128 + self.came)

    @contextlib.contextmanager
    def listening(self, processes: int = 1) -> Iterator[None]:
        """Hear both signals, but none that is ignored or that somebody else hears, nor any where ``processes`` are several or
        this is not the main thread."""
        before = {}
        if processes == 1 and threading.current_thread() is threading.main_thread():
            before = {number: heard for number in _SIGNALS if (heard := signal.getsignal(number)) in _USUAL}

        def back() -> None:
            for number, heard in before.items():
                signal.signal(number, heard)

        def hear(number: int, frame: Any) -> None:
            self.came = number
            back()
            clear = b"\r\x1b[2K" if os.isatty(2) else b""  # of a bar, which is drawn again below
            with contextlib.suppress(OSError):
                os.write(2, clear + _SAID)

        for number in before:
            signal.signal(number, hear)
        try:
            yield
            self._obey()  # it may have come after the last update
        except DivergedError:
            self._obey()
            raise
        finally:
            back()
