"""What a log file says of a long loop."""

from __future__ import annotations

import pytest

from cirf.progress import LogLines, for_terminal, printable


class Clock:
    """Seconds that a test moves on."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_every_half_minute_with_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with LogLines(clock=clock).task("fine-tuning cirf_full", 1160, "updates", done=40) as advance:
        for _ in range(100):
            clock.now += 0.5
            advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["  fine-tuning cirf_full: 100/1,160 updates, 2.0/s, 0:08:50 left"]


def test_slow_units_are_named_by_their_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with LogLines(clock=clock).task("asking", 3, "questions") as advance:
        clock.now += 45
        advance(1, "2 servers")
        clock.now += 45
        advance(0)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "  asking: 1/3 questions, 45.0 s each, 0:01:30 left · 2 servers",
        "  asking: 1/3 questions, 90.0 s each, 0:03:00 left",
    ]


def test_an_unknown_total_and_nothing_done_yet(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with LogLines(clock=clock).task("reading", None) as advance:
        clock.now += 31
        advance(0)
        clock.now += 31
        advance(2_000)
    assert capsys.readouterr().err.splitlines() == ["  reading: 0 rows", "  reading: 2,000 rows, 32.3/s"]


def test_short_loops_and_quiet_runs_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for progress in (LogLines(), for_terminal(quiet=True), for_terminal()):
        with progress.task("quick", 10) as advance:
            advance(10)
    assert capsys.readouterr().err == ""


def test_control_characters_reach_no_terminal() -> None:
    assert printable("a\x1b]0;title\x07 \x9b2J\tb\nc \u202ed é 数") == "a\\x1b]0;title\\x07 \\x9b2J\tb\nc \\u202ed é 数"
