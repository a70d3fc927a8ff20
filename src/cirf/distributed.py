"""Several processes under ``accelerate launch``: who writes, and who waits. With one process every call is free."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

T = TypeVar("T")


def world_size() -> int:
    """How many processes share the run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    """Whether this process is the one that writes."""
    return int(os.environ.get("RANK", "0")) == 0


def _state() -> Any:
    import torch
    from accelerate import PartialState

    # Without `cpu` processes on a machine that has no accelerator would each be alone. The long time: the others wait
    # while the main process embeds or evaluates.
    cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes") or not torch.accelerator.is_available()
    return PartialState(cpu=cpu, timeout=timedelta(days=2))


def barrier() -> None:
    """Wait for all processes."""
    if world_size() > 1:
        _state().wait_for_everyone()


def settled(look: Callable[[], T]) -> T:
    """What a look at the disk finds while no process writes, so that all find the same."""
    barrier()
    found = look()
    barrier()
    return found


@contextmanager
def first_on_main() -> Iterator[None]:
    """Run a block on the main process first and on the others after it is done."""
    if world_size() == 1:
        yield
        return
    with _state().main_process_first():
        yield
