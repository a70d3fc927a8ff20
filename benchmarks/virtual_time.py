"""Hours of an asyncio program in seconds: an event loop whose clock jumps to what is due next instead of waiting for it.

A program is run as it is. It must wait by asyncio alone and read no other clock than the one it is given here.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Callable, Coroutine, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock


class Clock:
    """Seconds since the program began."""

    def __init__(self) -> None:
        """At none."""
        self.now = 0.0

    def __call__(self) -> float:
        """The seconds."""
        return self.now


class _Jumping(selectors.DefaultSelector):
    """A selector that lets the time pass that it should have waited."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("everything waits for something that will never be")
        if not ready and timeout is not None:
            self._clock.now += timeout
        return ready


class Loop(asyncio.SelectorEventLoop):
    """An event loop on a clock."""

    def __init__(self, clock: Clock) -> None:
        """Of a program that has just begun."""
        super().__init__(_Jumping(clock))
        self._clock = clock

    def time(self) -> float:
        """Seconds."""
        return self._clock.now


@contextlib.contextmanager
def jumping(clock: Clock, *modules: ModuleType) -> Iterator[None]:
    """Within, ``asyncio.run`` runs on ``clock``, and so does ``time.monotonic`` of the modules given, which read nothing else of
    ``time``."""

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        make: Callable[[], asyncio.AbstractEventLoop] = lambda: Loop(clock)  # noqa: E731
        with asyncio.Runner(loop_factory=make) as runner:
            return runner.run(main)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(asyncio, "run", run))
        for module in modules:
            stack.enter_context(mock.patch.object(module, "time", SimpleNamespace(monotonic=clock)))
        yield
