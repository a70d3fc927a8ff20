"""A tiny model trained by one process or by several, each a fork of this one.

``together.py FOLDER STEP...``: a step is ``NAME:ADAPTATION:PROCESSES:HOW:KILL``. Its processes train in ``FOLDER/NAME``, each
with the whole model (``plain``) or a part of it (``sharded``). ``KILL`` is as `worker` has it, of the last process, whereupon the
others are ended as a launcher would; ``-``: none. Started by a launcher: ``together.py FOLDER KILL``.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import torch
from worker import run


def main(root: Path, steps: list[str]) -> None:
    """See the module."""
    for step in steps:
        name, adaptation, processes, how, kill = step.split(":", 4)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        children = []
        for rank in range(int(processes)):
            child = os.fork()
            if child == 0:
                if processes != "1":
                    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": processes}
                    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                os.environ["ACCELERATE_USE_FSDP"] = str(how == "sharded").lower()
                last = rank == int(processes) - 1
                _child(root / name, adaptation, kill if last else "-")
            children.append(child)
        ended, status = os.wait()
        if kill != "-":
            assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"{step}: {status}"
        for child in children:
            if child != ended:
                if status:
                    os.kill(child, signal.SIGKILL)
                status |= os.waitpid(child, 0)[1]
        if status and kill == "-":
            sys.exit(f"{step}: failed")


def _child(folder: Path, adaptation: str, kill: str) -> None:
    try:
        run(folder, adaptation, kill, dropout=0.0, bf16=False)  # in bfloat16 one rounding another way is seen
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ["ACCELERATE_USE_CPU"] = "true"
    if "RANK" in os.environ:
        _child(Path(sys.argv[1]), "full", sys.argv[2])
    main(Path(sys.argv[1]), sys.argv[2:])
