"""Which signals a training hears, and what it does where none of its updates is left."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cirf.lm.prompt import prompt_text
from cirf.lm.training.batches import Row
from cirf.lm.training.callbacks import StopOnSignal
from cirf.lm.training.finetune import finetune
from cirf.lm.training.spec import TrainingSpec
from cirf.lm.training.trainer import DivergedError
from cirf.recipe import schema


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    """Signals as a program in the foreground has them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, heard in before.items():
        signal.signal(number, heard)


def heard() -> list[object]:
    """What hears Ctrl-C and SIGTERM."""
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_the_second_signal_is_as_it_was_before(capfd: pytest.CaptureFixture[str]) -> None:
    before, stop = heard(), StopOnSignal()
    control = SimpleNamespace(should_save=False)
    with pytest.raises(SystemExit) as ended, stop.listening():
        assert not set(heard()) & set(before)
        for event in (stop.on_step_end, stop.on_evaluate, stop.on_save):
            event(None, None, control)
        assert not control.should_save
        signal.raise_signal(signal.SIGTERM)
        assert heard() == before
        for event in (stop.on_step_end, stop.on_evaluate):
            control.should_save = False
            event(None, None, control)
            assert control.should_save
        stop.on_save(None, None, control)
        raise AssertionError("went on")
    assert ended.value.code == 143
    assert capfd.readouterr().err.count("stopping after this update") == 1


def test_one_that_comes_behind_the_last_update_is_not_forgotten() -> None:
    before, reached = heard(), False
    with pytest.raises(KeyboardInterrupt), StopOnSignal().listening():
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached and heard() == before


class _Told:
    """A progress bar at whose opening a SIGTERM comes."""

    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Callable[..., None]]:
        signal.raise_signal(signal.SIGTERM)
        yield lambda count, note="": None


def test_nor_is_one_where_no_update_is_left(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    rows = [Row(prompt_text(tokenizer, f"What is {i} plus {i}?"), f"{2 * i}") for i in range(4)]
    section = schema.Finetune(
        adaptation="full", epochs=1.5, batch_size=2, gradient_accumulation_steps=1, bf16=False
    )  # ends within an epoch
    finetune(tiny.build_model(), tokenizer, rows, [], TrainingSpec(section, "x", [], tmp_path, 0))
    with pytest.raises(SystemExit):
        finetune(tiny.build_model(), tokenizer, rows, [], TrainingSpec(section, "x", [], tmp_path, 0), _Told())


def test_nor_is_one_in_an_update_whose_loss_is_no_number() -> None:
    with pytest.raises(SystemExit), StopOnSignal().listening():
        signal.raise_signal(signal.SIGTERM)
        raise DivergedError("the loss is no number")
    with pytest.raises(DivergedError), StopOnSignal().listening():
        raise DivergedError("the loss is no number")


def test_without_a_signal_all_is_as_before() -> None:
    before = heard()
    with StopOnSignal().listening():
        pass
    assert heard() == before


def test_signals_of_others_are_left_alone() -> None:
    before = heard()
    with StopOnSignal().listening(processes=2):
        assert heard() == before
    found: list[object] = []

    def own(*args: object) -> None:
        pass

    def elsewhere() -> None:
        with StopOnSignal().listening():
            found.extend(heard())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == before
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
    signal.signal(signal.SIGTERM, own)
    with StopOnSignal().listening():
        assert heard() == [signal.SIG_IGN, own]
