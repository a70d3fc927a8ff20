"""Progress of long loops: on a terminal a bar with rate and time left, in a log file a line every half minute."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Protocol

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text safe for a terminal: control characters, which could hide or forge output, as escapes. Tabs and line ends stay."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def write_line(text: str) -> None:
    """A line on standard output, of texts that may be from elsewhere."""
    print(printable(text))


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str] | None], texts: int = 1) -> None:
    """A table on standard output; the first ``texts`` columns are texts, the others numbers. ``None`` is a line. Its width is
    fixed: in a narrow window wrapped lines are better than truncated cells."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False, collapse_padding=True)
    for place, title in enumerate(titles):
        table.add_column(title, justify="left" if place < texts else "right", no_wrap=True)
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*(escape(printable(cell)) for cell in row))
    Console(width=200).print(table)


class Advance(Protocol):
    """Reports that ``count`` more units are done, with a short note."""

    def __call__(self, count: int, note: str = "", /) -> None:
        """Move on by ``count``; ``note`` replaces the one before."""


class Progress(Protocol):
    """Shows the progress of a long loop."""

    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> AbstractContextManager[Advance]:
        """Open a bar of ``total`` units, ``done`` of which were finished by an earlier run."""


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


class LogLines:
    """A line on standard error every ``every`` seconds: ``name: 40/160 updates, 0.3/s, 0:06:40 left``."""

    def __init__(self, every: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` counts seconds."""
        self._every, self._clock = every, clock

    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Advance]:
        """A loop that is reported only if it takes longer than ``every``."""
        begun = printed = self._clock()
        now_done = done

        def advance(count: int, note: str = "", /) -> None:
            nonlocal printed, now_done
            now_done += count
            now = self._clock()
            if now - printed < self._every:
                return
            printed = now
            rate = (now_done - done) / (now - begun)
            parts = [f"{now_done:,}/{total:,} {unit}" if total is not None else f"{now_done:,} {unit}"]
            if rate:
                parts.append(f"{rate:,.1f}/s" if rate >= 1 else f"{1 / rate:,.1f} s each")
            if rate and total is not None:
                parts.append(f"{timedelta(seconds=round((total - now_done) / rate))} left")
            print(f"  {name}: {', '.join(parts)}{f' · {note}' if note else ''}", file=sys.stderr, flush=True)

        yield advance


def for_terminal(quiet: bool = False) -> Progress:
    """Bars on standard error when it is a terminal, lines when it is not; silence with ``quiet``."""
    if quiet:
        return SILENT
    return _Bars() if sys.stderr.isatty() else LogLines()
