"""Several processes train one codebook, the same to the last bit as one process.

``test_processes.py FOLDER PROCESSES INITIALISER`` trains one by forks of itself; each writes its codes to ``FOLDER/RANK.npz``.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import tinyrun
import torch

from cirf.codebook import fit
from cirf.codebook.codebook import train
from cirf.codebook.sinkhorn import assign
from cirf.distributed import ALONE, Share
from cirf.progress import SILENT
from cirf.recipe import schema

ROWS, WIDTH, CODES = 6_000, 6, 8


def segments() -> np.ndarray:
    """Clusters with one row more than processes share evenly."""
    random = np.random.default_rng(3)
    centres = 4 * random.standard_normal((CODES, WIDTH))
    noise = random.standard_normal((ROWS + 1, WIDTH))
    return (centres[random.integers(CODES, size=ROWS + 1)] + noise).astype(np.float32)


def section(initialiser: str) -> schema.Codebook:
    """A short training."""
    keys = {"size": CODES, "hidden": 8, "autoencoder_epochs": 1, "vq_epochs": 2, "batch_size": 500, "initialiser": initialiser}
    return schema.Codebook.model_validate(keys)


def work(folder: Path, share: Share, initialiser: str) -> None:
    """Train, and assign the segments themselves to the first of them."""
    fit.SAVE_EVERY = 0.0
    vectors = segments()
    _, codes, report = train(vectors, WIDTH, section(initialiser), 1, folder / "work", SILENT, "cpu", share)
    points = torch.from_numpy(vectors)
    alone = assign(points, points[:CODES], schema.Sinkhorn(), share=share)
    losses = [row["total"] for phase in ("autoencoder", "vq") for row in report["losses"][phase]]
    found = {"codes": codes, "losses": np.array(losses), "assigned": alone.codes.numpy(), "nearest": alone.nearest.numpy()}
    np.savez(folder / f"{share.rank}.npz", **found, imbalance=alone.column_imbalance)


def launch(folder: Path, processes: int, initialiser: str) -> None:
    """Train by as many forks."""
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
                work(folder, Share.of_launch(), initialiser)
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
    for folder in (tmp_path / "alone", together):  # the second reads the finished training of the two
        folder.mkdir(exist_ok=True)
        work(folder, ALONE, initialiser)
        for name, values in np.load(folder / "0.npz").items():
            for found in shared:
                np.testing.assert_array_equal(found[name], values)
    assert len(set(shared[0]["codes"].tolist())) == CODES


if __name__ == "__main__":
    torch.set_num_threads(1)
    launch(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
