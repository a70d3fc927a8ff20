"""On Ctrl-C or SIGTERM, fine-tuning stops after the current update and saves a checkpoint of it.

A second signal stops it at once; it then resumes from the previous checkpoint, as after a SIGKILL. With several processes each
would stop after a different update, so signals keep their default behaviour there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

from transformers import TrainerCallback

from cirf.lm.training.trainer import Diverged

_SAID = b"cirf: stopping after this update; its checkpoint is saved first. Press Ctrl-C again to stop at once\n"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_USUAL = (signal.SIG_DFL, signal.default_int_handler)


class Stop(TrainerCallback):
    """Saves after the update in which a signal came, then acts on the signal."""

    def __init__(self) -> None:
        """None has come yet."""
        self._came: int | None = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._came is not None:
            control.should_save = True

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.on_step_end(args, state, control)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._obey()

    def _obey(self) -> None:
        if self._came == signal.SIGINT:
            raise KeyboardInterrupt
        if self._came is not None:
            raise SystemExit(128 + self._came)

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
            self._came = number
            back()
            clear = b"\r\x1b[2K" if os.isatty(2) else b""  # of a bar, which is drawn again below
            with contextlib.suppress(OSError):
                os.write(2, clear + _SAID)

        for number in before:
            signal.signal(number, hear)
        try:
            yield
            self._obey()  # it may have come after the last update
        except Diverged:
            self._obey()
            raise
        finally:
            back()
