"""Which signals a training hears, and what it does where none of its updates is left."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from cirf.lm.stopping import Stop


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    """Signals as a program in the foreground has them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, heard in before.items():
        signal.signal(number, heard)


def test_the_second_signal_is_as_it_was_before() -> None:
    before, stop = signal.getsignal(signal.SIGTERM), Stop()
    control = SimpleNamespace(should_save=False)
    with pytest.raises(SystemExit) as ended, stop.listening():
        assert signal.getsignal(signal.SIGTERM) != before
        stop.on_step_end(None, None, control)
        stop.on_save(None, None, control)
        assert not control.should_save
        signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == before
        stop.on_step_end(None, None, control)
        assert control.should_save
        stop.on_save(None, None, control)
        raise AssertionError("went on")
    assert ended.value.code == 143


def test_one_that_comes_behind_the_last_update_is_not_forgotten() -> None:
    stop = Stop()
    with pytest.raises(KeyboardInterrupt), stop.listening():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_signals_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def heard() -> list[object]:
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    before = heard()
    with Stop().listening(processes=2):
        assert heard() == before
    found: list[object] = []

    def elsewhere() -> None:
        with Stop().listening():
            found.extend(heard())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == before
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
    with Stop().listening():
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN and signal.getsignal(signal.SIGTERM) != before[1]
