"""One process of several: ``together.py FOLDER KILL``, with the launcher's variables in the environment."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from worker import run

if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]), "full", sys.argv[2], batch_size=2, accumulation=1)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
