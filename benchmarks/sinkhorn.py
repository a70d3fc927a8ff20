"""Balanced assignment to K codes: ours against POT's log-domain Sinkhorn, alternating.

    python -m benchmarks.sinkhorn [--rows 100000] [--codes 256] [--width 896] [--pairs 5] [--begin vectors]
    python -m benchmarks.sinkhorn --begin distances --memory 6 [--most 1000000]

With ``--begin vectors`` both get the same float32 vectors and do the same work: squared distances divided by their mean, three
rounds of columns and rows, argmax of each row. With ``--begin distances`` only the solvers run, from the same matrix of distances
to the plan and its argmax. ``--memory`` replaces ``--rows`` by the most rows that POT can handle in that many GB, estimated from
its peaks at two small sizes.

Each run is a separate process, so that its peak memory can be measured, on one thread. Times are processor seconds, so other work
on the machine does not count. ``floor`` is the lower bound of the work on this machine: its operations, exponentials and bytes at
measured speeds. The sums of the plans' rows and columns are compared. The last line is JSON; a ratio above 1 means ours is
faster: the median over pairs, with the smallest and largest.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TEMPERATURE, ROUNDS = 0.05, 3
_PROBES = (20_000, 60_000)
_CHUNK = 20_000


def _distances(x: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """Squared distances [M x K] over their mean, computed in chunks to keep the peak memory low."""
    found = np.empty((len(x), len(anchors)), np.float32)
    norms = (anchors * anchors).sum(axis=1)
    for start in range(0, len(x), _CHUNK):
        block = x[start : start + _CHUNK]
        found[start : start + _CHUNK] = norms + (block * block).sum(axis=1)[:, None] - 2 * block @ anchors.T
    np.maximum(found, 0, out=found)
    found /= found.mean(dtype=np.float64)
    return found


def _ours(begin: str, x: np.ndarray, anchors: np.ndarray) -> Callable[[], Any]:
    import torch

    from cirf.codebook.sinkhorn import assign, sinkhorn
    from cirf.recipe import schema

    if begin == "vectors":
        return lambda: (assign(torch.from_numpy(x), torch.from_numpy(anchors), schema.Sinkhorn()).codes.numpy(), None)
    distances = torch.from_numpy(_distances(x, anchors))

    def work() -> Any:
        log_q = sinkhorn(distances, TEMPERATURE, ROUNDS, "none").numpy()
        return log_q.argmax(axis=1), log_q

    return work


def _peer(begin: str, x: np.ndarray, anchors: np.ndarray) -> Callable[[], Any]:
    from importlib import import_module

    ot = import_module("ot")  # it has no type hints
    given = _distances(x, anchors) if begin == "distances" else None

    def work() -> Any:
        distances = given
        if distances is None:
            distances = ot.dist(x, anchors)
            distances /= distances.mean()
        row, column = np.full(len(x), 1 / len(x), np.float32), np.full(len(anchors), 1 / len(anchors), np.float32)
        settings = {"method": "sinkhorn_log", "numItermax": ROUNDS, "stopThr": 0, "warn": False}
        plan = ot.sinkhorn(row, column, distances, TEMPERATURE, **settings)
        return plan.argmax(axis=1), plan

    return work


def _run(who: str, options: argparse.Namespace) -> dict[str, Any]:
    """One turn: seconds, peak, codes and, from distances, the sums of the plan's rows and columns, scaled to 1 and M/K."""
    random = np.random.default_rng(1)
    width = options.width if options.begin == "vectors" else 16
    x = random.standard_normal((options.rows, width), dtype=np.float32)
    anchors = x[random.choice(options.rows, options.codes, replace=False)].copy()
    work = (_ours if who == "ours" else _peer)(options.begin, x, anchors)
    started, begun = time.process_time(), time.perf_counter()
    codes, plan = work()
    seconds, wall = time.process_time() - started, time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    columns, rows = np.zeros(options.codes), 0.0
    for start in range(0, options.rows if plan is not None else 0, _CHUNK):
        part = plan[start : start + _CHUNK].astype(np.float64)
        part = np.exp(part) if who == "ours" else part * options.rows
        columns += part.sum(axis=0)
        rows = max(rows, float(np.abs(part.sum(axis=1) - 1).max()))
    np.savez(options.to, codes=codes, columns=columns * options.codes / options.rows)
    usage = np.bincount(codes, minlength=options.codes)
    return {
        "seconds": seconds,
        "wall": wall,
        "peak_gb": peak / 1e9,
        "largest_code": int(usage.max()),
        "smallest_code": int(usage.min()),
        "rows_off": rows,
    }


# Limits of this machine. Each is the best of several tries in this process, with its number of threads.


def matmul_peak(size: int = 1536, tries: int = 6) -> float:
    """Operations a second of a product of float32 matrices."""
    import torch

    one, two = torch.randn(size, size), torch.randn(size, size)
    found = torch.empty(size, size)
    return 2 * size**3 / _best(lambda: torch.mm(one, two, out=found), tries)


def memory_bandwidth(megabytes: int = 256, tries: int = 4) -> float:
    """Bytes a second that a copy reads and writes, for arrays larger than caches."""
    import torch

    one = torch.ones(megabytes * 2**18)
    two = torch.empty_like(one)
    return 2 * one.nbytes / _best(lambda: two.copy_(one), tries)


def exponentials(tries: int = 20) -> float:
    """Exponentials of float32 numbers a second, of a block that stays in the cache."""
    import torch

    block = -torch.rand(2**16)
    found = torch.empty_like(block)

    def some() -> None:
        for _ in range(16):
            torch.exp(block, out=found)

    return 16 * len(block) / _best(some, tries)


def read_bandwidth(path: Path, megabytes: int = 256) -> float:
    """Bytes a second of plain reads from the start of a file, from the disk or the page cache."""
    room = bytearray(2**20)
    done, started = 0, time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while done < megabytes * 2**20 and (count := file.readinto(room)):
            done += count
    return done / (time.perf_counter() - started)


def available_memory() -> int:
    """Bytes that a new process can use without swapping."""
    try:
        text = Path("/proc/meminfo").read_text()
        return int(next(line for line in text.splitlines() if line.startswith("MemAvailable")).split()[1]) * 1024
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _best(work: Callable[[], object], tries: int) -> float:
    """Processor seconds a thread of the fastest try: other work on the machine does not count."""
    import torch

    seconds = []
    for _ in range(tries):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds) / torch.get_num_threads()


def _floor(options: argparse.Namespace) -> dict[str, Any]:
    """The lower bound in seconds: the product for the distances, the exponentials, and a read of the matrix each round."""
    entries = options.rows * options.codes
    speeds = {"matmul": matmul_peak(), "bytes": memory_bandwidth(), "exponentials": exponentials()}
    product = 2 * entries * options.width if options.begin == "vectors" else 0
    read = 4 * entries * (ROUNDS + 1) + (4 * options.rows * options.width if options.begin == "vectors" else 0)
    parts = {
        "matmul": product / speeds["matmul"],
        "exponentials": 2 * ROUNDS * entries / speeds["exponentials"],
        "bytes": read / speeds["bytes"],
    }
    return {"seconds": parts["matmul"] + max(parts["exponentials"], parts["bytes"]), "parts": parts, "speeds": speeds}


def _child(who: str, options: argparse.Namespace, rows: int, to: Path) -> dict[str, Any]:
    given = {"rows": rows, "codes": options.codes, "width": options.width, "begin": options.begin, "only": who, "to": to}
    command = [sys.executable, "-m", "benchmarks.sinkhorn", *(f"--{name}={value}" for name, value in given.items())]
    single = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | single).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def largest(options: argparse.Namespace, folder: Path) -> int:
    """How many rows POT can do in ``options.memory`` GB, at most ``options.most``: its peak grows by the row."""
    small, more = (_child("peer", options, rows, folder / "probe.npz")["peak_gb"] for rows in _PROBES)
    each = (more - small) / (_PROBES[1] - _PROBES[0])
    fits = int((options.memory - small) / each) + _PROBES[0]
    print(f"POT takes {each * 1e9:,.0f} bytes a row: {fits:,} rows in {options.memory:.1f} GB", flush=True)
    return max(min(fits // 1000 * 1000, int(options.most)), _PROBES[0])


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Run both in turn, print the table, and give the line of JSON."""
    turns: dict[str, list[dict[str, Any]]] = {"ours": [], "peer": []}
    with tempfile.TemporaryDirectory() as folder:
        files = {who: Path(folder) / f"{who}.npz" for who in turns}
        if options.memory:
            options.rows = largest(options, Path(folder))
        print(f"{options.rows:,} rows, {options.codes} codes, from {options.begin}")
        print(f"{'':8}{'processor s':>12}{'wall s':>10}{'peak GB':>10}{'smallest code':>16}{'largest code':>14}")
        floor = _child("floor", options, options.rows, Path(folder) / "none")
        print(f"{'floor':8}{floor['seconds']:12.2f}", flush=True)
        for _ in range(options.pairs):
            for who, file in files.items():
                one = _child(who, options, options.rows, file)
                turns[who].append(one)
                numbers = f"{one['seconds']:12.2f}{one['wall']:10.2f}{one['peak_gb']:10.2f}"
                print(f"{who:8}{numbers}{one['smallest_code']:16}{one['largest_code']:14}", flush=True)
        ours, peer = (dict(np.load(file)) for file in files.values())
    ratios = sorted(b["seconds"] / a["seconds"] for a, b in zip(turns["ours"], turns["peer"], strict=True))
    seconds = {who: statistics.median(one["seconds"] for one in found) for who, found in turns.items()}
    apart = float(np.abs(ours["columns"] - peer["columns"]).max()) if options.begin == "distances" else None
    if apart is not None:
        off = {who: max(one["rows_off"] for one in found) for who, found in turns.items()}
        print(
            f"sums of rows are off 1 by at most {off['ours']:.1e} (POT's {off['peer']:.1e}), "
            f"those of columns differ by {apart:.1e} of M/K"
        )
        if max(off["ours"], apart) > 1e-3:
            raise SystemExit("the plans have different marginals")
    print(f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} pairs)")
    return {
        "benchmark": "sinkhorn",
        "begin": options.begin,
        "ours": round(seconds["ours"], 3),
        "peer": round(seconds["peer"], 3),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_low": round(ratios[0], 2),
        "ratio_high": round(ratios[-1], 2),
        "pairs": len(ratios),
        "unit": "processor s",
        "n": options.rows,
        "codes": options.codes,
        "width": options.width if options.begin == "vectors" else None,
        "peer_is": f"POT {'ot.dist + ' if options.begin == 'vectors' else ''}ot.sinkhorn(method=sinkhorn_log)",
        "floor": round(floor["seconds"], 3),
        "ours_of_floor": round(seconds["ours"] / floor["seconds"], 2),
        "ours_peak_gb": round(max(one["peak_gb"] for one in turns["ours"]), 3),
        "peer_peak_gb": round(max(one["peak_gb"] for one in turns["peer"]), 3),
        "same_codes": round(float((ours["codes"] == peer["codes"]).mean()), 6),
        "columns_apart": apart,
    }


def parser() -> argparse.ArgumentParser:
    """The options; ``codebook.py`` takes its own from here."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 100_000), ("codes", 256), ("width", 896), ("pairs", 5), ("most", 1_000_000)):
        found.add_argument(f"--{name}", type=int, default=default)
    found.add_argument("--begin", choices=("vectors", "distances"), default="vectors")
    found.add_argument("--memory", type=float, help="GB for POT; its largest size in that is compared")
    found.add_argument("--only", choices=("ours", "peer", "floor"), help=argparse.SUPPRESS)
    found.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    return found


def main() -> None:
    """Run both, print the table and the line of JSON."""
    options = parser().parse_args()
    if options.only:
        print(json.dumps(_floor(options) if options.only == "floor" else _run(options.only, options)))
        return
    print(json.dumps(compare(options)))


if __name__ == "__main__":
    main()
