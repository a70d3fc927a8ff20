"""Balanced assignment of 100,000 segments to 256 codes at d = 896: ours against POT's log-domain Sinkhorn.

    python -m benchmarks.sinkhorn [--rows 100000] [--codes 256] [--width 896] [--repeats 2]

Both get the same float32 vectors and do the same work: squared distances divided by their mean, three rounds of columns
and rows, argmax of each row. Each runs in a process of its own, so that its peak memory is its own, on one thread and
in processor seconds, so that other work on the machine does not count. The last line is JSON; a ratio above 1 means ours
is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def _ours(x: np.ndarray, anchors: np.ndarray) -> Callable[[], np.ndarray]:
    import torch

    from cirf import recipe
    from cirf.codebook.sinkhorn import assign

    return lambda: assign(torch.from_numpy(x), torch.from_numpy(anchors), recipe.Sinkhorn()).codes.numpy()


def _peer(x: np.ndarray, anchors: np.ndarray) -> Callable[[], np.ndarray]:
    import ot

    def work() -> np.ndarray:
        distances = ot.dist(x, anchors)
        distances /= distances.mean()
        row, column = np.full(len(x), 1 / len(x), x.dtype), np.full(len(anchors), 1 / len(anchors), x.dtype)
        plan = ot.sinkhorn(row, column, distances, 0.05, method="sinkhorn_log", numItermax=3, stopThr=0, warn=False)
        return np.asarray(plan.argmax(axis=1))

    return work


def _run(who: str, rows: int, codes: int, width: int, repeats: int, codes_file: Path) -> dict[str, Any]:
    random = np.random.default_rng(1)
    x = random.standard_normal((rows, width), dtype=np.float32)
    anchors = x[random.choice(rows, codes, replace=False)].copy()
    work = (_ours if who == "ours" else _peer)(x, anchors)
    seconds = []
    for _ in range(repeats):
        started = time.process_time()
        found = work()
        seconds.append(time.process_time() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    usage = np.bincount(found, minlength=codes)
    np.save(codes_file, found)
    return {
        "seconds": min(seconds),
        "peak_gb": peak / 1e9,
        "largest_code": int(usage.max()),
        "smallest_code": int(usage.min()),
    }


def main() -> None:
    """Run both, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 100_000), ("codes", 256), ("width", 896), ("repeats", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--codes-file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=("ours", "peer"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [options.rows, options.codes, options.width, options.repeats]
    if options.only:
        print(json.dumps(_run(options.only, *sizes, options.codes_file)))
        return
    arguments = [f"--{name}={size}" for name, size in zip(("rows", "codes", "width", "repeats"), sizes, strict=True)]
    environment = os.environ | {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    found = {}
    print(f"{'':8}{'processor s':>12}{'peak GB':>10}{'smallest code':>16}{'largest code':>14}")
    with tempfile.TemporaryDirectory() as folder:
        files = {who: Path(folder) / f"{who}.npy" for who in ("ours", "peer")}
        for who, file in files.items():
            command = [sys.executable, "-m", "benchmarks.sinkhorn", f"--only={who}", f"--codes-file={file}", *arguments]
            output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
            found[who] = one = json.loads(output.splitlines()[-1])
            print(
                f"{who:8}{one['seconds']:12.2f}{one['peak_gb']:10.2f}{one['smallest_code']:16}{one['largest_code']:14}",
                flush=True,
            )
        same = float((np.load(files["ours"]) == np.load(files["peer"])).mean())
    ours, peer = found["ours"], found["peer"]
    print(
        json.dumps(
            {
                "benchmark": "sinkhorn",
                "ours": round(ours["seconds"], 3),
                "peer": round(peer["seconds"], 3),
                "ratio": round(peer["seconds"] / ours["seconds"], 2),
                "unit": "processor s",
                "n": options.rows,
                "codes": options.codes,
                "width": options.width,
                "peer_is": "POT ot.dist + ot.sinkhorn(method=sinkhorn_log)",
                "ours_peak_gb": round(ours["peak_gb"], 3),
                "peer_peak_gb": round(peer["peak_gb"], 3),
                "same_codes": round(same, 6),
            }
        )
    )


if __name__ == "__main__":
    main()
