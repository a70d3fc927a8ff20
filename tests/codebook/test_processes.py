"""Several processes train one codebook, the same to the last bit as one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import processes
import pytest

from cirf.distributed import ALONE


@pytest.mark.parametrize(("initialiser", "count"), [("sinkhorn", 2), ("kmeans", 2)])
def test_processes_find_the_codes_of_one(tmp_path: Path, initialiser: str, count: int) -> None:
    processes.work(tmp_path, ALONE, initialiser)
    alone = dict(np.load(tmp_path / "0.npz"))
    together = tmp_path / "together"
    together.mkdir()
    command = [sys.executable, processes.__file__, str(together), str(count), initialiser]
    subprocess.run(command, check=True, timeout=300)
    for rank in range(count):
        found = dict(np.load(together / f"{rank}.npz"))
        for name, values in alone.items():
            np.testing.assert_array_equal(found[name], values)
    assert len(set(alone["codes"].tolist())) == processes.CODES


def test_another_number_of_processes_goes_on(tmp_path: Path) -> None:
    """A finished training of two processes is read by one."""
    subprocess.run([sys.executable, processes.__file__, str(tmp_path), "2", "sinkhorn"], check=True, timeout=300)
    shared = dict(np.load(tmp_path / "1.npz"))
    processes.work(tmp_path, ALONE, "sinkhorn")
    alone = dict(np.load(tmp_path / "0.npz"))
    for name, values in shared.items():
        np.testing.assert_array_equal(alone[name], values)
