"""Several processes under ``accelerate launch``: which writes, and which wait. With one process every call is free."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


def world_size() -> int:
    """How many processes share the run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def sharded(processes: int | None = None) -> bool:
    """Whether the launch asks for weights sharded over its processes (or over so many) while they train: ``ACCELERATE_USE_FSDP``,
    which accelerate sets for ``--use_fsdp`` and `distributed_type: FSDP`."""
    return (processes or world_size()) > 1 and os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true", "yes")


def is_main() -> bool:
    """Whether this process is the one that writes."""
    return int(os.environ.get("RANK", "0")) == 0


def _state() -> Any:
    import torch
    from accelerate import PartialState

    # Without `cpu`, processes on a machine without an accelerator would each be alone. The long timeout: the others wait while
    # the main process embeds or evaluates.
    cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes") or not torch.accelerator.is_available()
    return PartialState(cpu=cpu, timeout=timedelta(days=2))


def barrier() -> None:
    if world_size() > 1:
        _state().wait_for_everyone()


def settled(look: Callable[[], T]) -> T:
    """The result of reading the disk while no process writes, so that all get the same."""
    barrier()
    found = look()
    barrier()
    return found


@dataclass(frozen=True, slots=True)
class Share:
    """One process's share of work in numbered pieces: every ``of``-th piece, from number ``rank`` on.

    A piece must not depend on the process. Then any number of processes gives the same result, also if another number began. Each
    writes only its own files, and reads those of the others only while none writes (``settled``).
    """

    rank: int = 0
    of: int = 1

    @classmethod
    def of_launch(cls) -> Share:
        """This process's share among those of the launch; without a launcher all of it."""
        return cls(int(os.environ.get("RANK", "0")), world_size())

    @property
    def main(self) -> bool:
        """Whether this process combines the pieces."""
        return self.rank == 0

    def mine(self, pieces: Sequence[T]) -> list[T]:
        """The pieces that this process does, of those that are to be done."""
        return list(pieces[self.rank :: self.of])

    def gathered(self, value: T) -> list[T]:
        """Every process's value, in order of rank; all must call this."""
        if self.of == 1:
            return [value]
        import torch.distributed

        _state()
        found: list[Any] = [None] * self.of
        torch.distributed.all_gather_object(found, value)
        return found

    def merged(self, values: Sequence[T], run: int = 1) -> list[T]:
        """The values of all processes in one order, in which they take turns, each with ``run`` values; all must call this."""
        if self.of == 1:
            return list(values)
        parts = self.gathered(list(values))
        each = [iter(part) for part in parts]
        return [next(each[index // run % self.of]) for index in range(sum(map(len, parts)))]

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes; all must call this."""
        self._exchange(tensors, "all_reduce")

    def from_main(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by that of the main process; all must call this."""
        self._exchange(tensors, "broadcast", 0)

    def _exchange(self, tensors: Sequence[Tensor], how: str, *given: int) -> None:
        if self.of == 1:
            return
        import torch.distributed

        device = _state().device  # where the processes' backend exchanges tensors
        with torch.no_grad():
            for tensor in tensors:
                part = tensor.detach().to(device)
                getattr(torch.distributed, how)(part, *given)
                tensor.copy_(part)

    def settled(self, look: Callable[[], T]) -> T:
        """The result of reading the disk once every process has done its part, while none writes."""
        return settled(look) if self.of > 1 else look()

    def path(self, path: Path) -> Path:
        """This process's version of ``path``: the path itself for the main one, a folder next to it for every other one."""
        return path if self.main else path.parent / f"process-{self.rank}" / path.name

    @staticmethod
    def paths(path: Path) -> list[Path]:
        """All processes' versions of ``path``, also of earlier launches."""
        folders = sorted(path.parent.glob("process-*"))  # a name may contain pattern characters
        return [found for found in (path, *(folder / path.name for folder in folders)) if found.exists()]


ALONE = Share()
"""All of it."""


@contextmanager
def first_on_main() -> Iterator[None]:
    """Run a block on the main process first and on the others after it is done."""
    if world_size() == 1:
        yield
        return
    with _state().main_process_first():
        yield
