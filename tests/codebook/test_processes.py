"""Several processes train one codebook, the same to the last bit as one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import processes
import pytest
import tinyrun

from cirf.distributed import ALONE


@pytest.mark.parametrize("initialiser", ["sinkhorn", "kmeans"])
def test_processes_find_the_codes_of_one_which_goes_on_from_theirs(tmp_path: Path, initialiser: str) -> None:
    together = tmp_path / "together"
    together.mkdir()
    done = tinyrun.python(processes.__file__, together, "2", initialiser)
    assert done.code == 0, done.err
    shared = [dict(np.load(together / f"{rank}.npz")) for rank in range(2)]
    for folder in (tmp_path / "alone", together):  # the second reads the finished training of the two
        folder.mkdir(exist_ok=True)
        processes.work(folder, ALONE, initialiser)
        for name, values in np.load(folder / "0.npz").items():
            for found in shared:
                np.testing.assert_array_equal(found[name], values)
    assert len(set(shared[0]["codes"].tolist())) == processes.CODES
