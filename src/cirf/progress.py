"""Progress bars: on a terminal a bar with rate and time left, elsewhere silence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Advance(Protocol):
    """Says that so many more units are done, and a few words on how it goes."""

    def __call__(self, count: int, note: str = "", /) -> None:
        """Move on by ``count``; ``note`` replaces the one before."""
        ...


class Progress(Protocol):
    """Something that shows how far a long loop is."""

    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> AbstractContextManager[Advance]:
        """Open a bar of ``total`` units, ``done`` of which were finished by an earlier run."""
        ...


class _Silent:
    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Advance]:
        yield lambda count, note="": None


class _Bars:
    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Advance]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("  {task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]} · {task.fields[rate]}{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Bars(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as bars:
            bar = bars.add_task(name, total=total, completed=done, unit=unit, rate="", note="")

            def advance(count: int, note: str = "", /) -> None:
                bars.advance(bar, count)
                if note:
                    bars.update(bar, note=f" · {note}")
                speed = bars.tasks[0].finished_speed or bars.tasks[0].speed
                if speed:
                    bars.update(bar, rate=f"{speed:,.1f}/s")

            yield advance


SILENT: Progress = _Silent()


def for_terminal(quiet: bool = False) -> Progress:
    """Bars on standard error when it is a terminal and ``quiet`` is off; silence otherwise."""
    return SILENT if quiet or not sys.stderr.isatty() else _Bars()
