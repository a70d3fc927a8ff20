"""Progresses that watch a stage at work: one counts what was done, one pulls the plug, one breaks off."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class KillAfter:
    """A progress that ends its own process by SIGKILL, as a pulled plug would, once so many units are done."""

    def __init__(self, units: int) -> None:
        self.left = units

    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Callable[[int], None]]:
        def advance(count: int) -> None:
            self.left -= count
            if self.left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

        yield advance


class StopError(Exception):
    """What ``StopAfter`` raises."""


class StopAfter:
    """A progress that breaks off by an exception after so many units."""

    def __init__(self, units: float) -> None:
        self.left = units

    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Callable[[int], None]]:
        def advance(count: int) -> None:
            self.left -= count
            if self.left < 0:
                raise StopError

        yield advance


class Counting:
    """A progress that counts each task's finished units, and those reported as finished before."""

    def __init__(self) -> None:
        self.units: dict[str, int] = {}
        self.before: dict[str, int] = {}

    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Callable[[int], None]]:
        self.before[name] = done
        self.units[name] = 0

        def advance(count: int) -> None:
            self.units[name] += count

        yield advance
