"""Several processes train one codebook, which has the codes of one process.

``test_processes.py FOLDER PROCESSES INITIALISER [UNITS]`` trains one by forks of itself, which stop once so many segments are
done; else each writes its codes to ``FOLDER/RANK.npz``.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import tinyrun
import torch
from watching import Counting, StopAfter, StopError

from cirf.codebook import fit
from cirf.codebook.codebook import train
from cirf.codebook.sinkhorn import assign
from cirf.distributed import ALONE, Share
from cirf.progress import SILENT, Progress
from cirf.recipe import schema

ROWS, WIDTH, CODES = 9_984, 6, 8


def segments() -> np.ndarray:
    """Clusters of more than one piece; the last shared batch has one row, fewer than there are processes."""
    random = np.random.default_rng(3)
    centres = 4 * random.standard_normal((CODES, WIDTH))
    noise = random.standard_normal((ROWS + 1, WIDTH))
    return (centres[random.integers(CODES, size=ROWS + 1)] + noise).astype(np.float32)


def section(initialiser: str) -> schema.Codebook:
    """A short training. Two processes share its batches, except those of k-means, which are too small."""
    keys = {"size": CODES, "hidden": 8, "autoencoder_epochs": 1, "vq_epochs": 2, "initialiser": initialiser}
    return schema.Codebook.model_validate(keys | {"batch_size": 2 * fit.MIN_ROWS_PER_PROCESS - (initialiser == "kmeans")})


def work(folder: Path, share: Share, initialiser: str, progress: Progress = SILENT) -> None:
    """Train, and assign the segments themselves to the first of them."""
    fit.SAVE_EVERY = 0.0
    vectors = segments()
    book, codes, report = train(vectors, WIDTH, section(initialiser), 1, folder / "work", progress, "cpu", share)
    points = torch.from_numpy(vectors)
    alone = assign(points, points[:CODES], schema.Sinkhorn(), share=share)
    losses = [row["total"] for phase in ("autoencoder", "vq") for row in report["losses"][phase]]
    trained = {"codes": codes, "losses": np.array(losses), "weights": book.codes.numpy()}
    found = {"assigned": alone.codes.numpy(), "nearest": alone.nearest.numpy(), "imbalance": np.array(alone.column_imbalance)}
    np.savez(folder / f"{share.rank}.npz", **trained, **found)


def launch(folder: Path, processes: int, initialiser: str, units: float = math.inf) -> None:
    """Train by as many forks, which stop once so many segments are done."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(processes):
        children.append(os.fork())
        if children[-1] == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
            status = 1
            try:
                with contextlib.suppress(StopError):
                    work(folder, Share.of_launch(), initialiser, StopAfter(units))
                torch.distributed.destroy_process_group()
                status = 0
            finally:
                os._exit(status)
    if any([os.waitpid(child, 0)[1] for child in children]):
        sys.exit("a process failed")


@pytest.mark.parametrize("initialiser", ["sinkhorn", pytest.param("kmeans", marks=pytest.mark.slow)])
def test_processes_find_the_codes_of_one_which_goes_on_from_theirs(tmp_path: Path, initialiser: str) -> None:
    together = tmp_path / "together"
    together.mkdir()
    done = tinyrun.python(__file__, together, "2", initialiser)
    assert done.code == 0, done.err
    shared = [dict(np.load(together / f"{rank}.npz")) for rank in range(2)]
    for name, values in shared[0].items():
        np.testing.assert_array_equal(shared[1][name], values)
    for folder in (tmp_path / "alone", together):  # the second reads the finished training of the two
        folder.mkdir(exist_ok=True)
        work(folder, ALONE, initialiser)
        for name, values in np.load(folder / "0.npz").items():
            if folder == together or initialiser == "kmeans" or name not in ("losses", "weights"):
                np.testing.assert_array_equal(shared[0][name], values)
            else:
                np.testing.assert_allclose(shared[0][name], values, rtol=1e-5, atol=1e-6)
    assert len(set(shared[0]["codes"].tolist())) == CODES


def test_one_process_goes_on_where_two_were_stopped(tmp_path: Path, counting: Counting) -> None:
    epoch = ROWS + 1
    done = tinyrun.python(__file__, tmp_path, "2", "sinkhorn", str(2 * epoch + 1000))  # in the last VQ epoch
    assert done.code == 0 and not (tmp_path / "0.npz").exists(), done.err
    (tmp_path / "alone").mkdir()
    work(tmp_path / "alone", ALONE, "sinkhorn")
    work(tmp_path, ALONE, "sinkhorn", counting)
    assert list(counting.before.values()) == [epoch]
    whole, resumed = (dict(np.load(folder / "0.npz")) for folder in (tmp_path / "alone", tmp_path))
    np.testing.assert_array_equal(resumed["codes"], whole["codes"])
    np.testing.assert_allclose(resumed["losses"], whole["losses"], rtol=1e-5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    launch(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], *map(float, sys.argv[4:]))
