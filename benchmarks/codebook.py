"""The codebook at scale: a million segments of width 1,024 streamed from disk, how cost grows, and Sinkhorn against POT.

    python -m benchmarks.codebook [--rows 1000000] [--width 1024] [--codes 256] [--folder /tmp] [--memory 6] [--parts scale ...]

``scale`` writes random embeddings to ``--folder``, which needs space for two float32 copies. A separate process centres,
quantises and labels them as the codebook stage does. It reports peak memory: total (``ru_maxrss``) and anonymous (``RssAnon``).
The floor of each step is its operations at the measured speed of matrix products and exponentials, or its reads at the measured
speed of that file, whichever takes longer.

``sweep`` measures processor seconds of an epoch of updates, of a balanced assignment with encoding, and of its rounds alone. It
varies the number of segments (M), codes (K) and the width (d, of embeddings and codes), on one thread and in memory. Exponents
are log-log slopes with 95 % intervals.

``solver`` compares with POT's log-domain solver on the same distances, at the largest size that POT can handle in ``--memory`` GB
(default: half of the free memory); see ``sinkhorn.py``.

The last line is JSON; its ratio is the solver's, above 1 if ours is faster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import sinkhorn

PARTS = ("scale", "sweep", "solver")
STEPS = 5
"""Segments a rationale."""
BASE = {"M": 16_384, "K": 64, "d": 256}
SIZES = {"M": (8_192, 16_384, 32_768, 65_536), "K": (32, 64, 128, 256, 512), "d": (128, 256, 512, 1024)}


def _make(options: argparse.Namespace, path: Path) -> None:
    """Embeddings [M x d] around 64 centres, on disk."""
    import numpy as np

    from cirf.codebook.rows import save_rows

    centres = np.random.default_rng(0).standard_normal((64, options.width), dtype=np.float32)

    class Drawn:
        shape = (options.rows, options.width)

        def __len__(self) -> int:
            return int(options.rows)

        def __getitem__(self, where: Any, /) -> Any:
            random = np.random.default_rng([1, where.start])
            count = where.stop - where.start
            return centres[random.integers(0, 64, count)] + random.standard_normal((count, options.width), dtype=np.float32)

    save_rows(path, {"segments": Drawn()}, "float32")


@contextlib.contextmanager
def _own_memory(found: dict[str, float]) -> Iterator[None]:
    """Sample the process's anonymous memory every 20 ms."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            with contextlib.suppress(OSError, StopIteration):
                lines = Path("/proc/self/status").read_text().splitlines()
                own = int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) * 1024 / 1e9
                found["own_gb"] = max(found.get("own_gb", 0.0), own)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


def _timed(holder: Any, name: str, label: str, seconds: dict[str, float]) -> None:
    """Replace a function by one that adds its seconds to ``seconds[label]``."""
    work = getattr(holder, name)

    def timed(*arguments: Any, **named: Any) -> Any:
        started = time.perf_counter()
        found = work(*arguments, **named)
        seconds[label] = seconds.get(label, 0.0) + time.perf_counter() - started
        return found

    setattr(holder, name, timed)


def _scale(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """The codebook stage on the file: seconds of its steps and its peaks."""
    import numpy as np
    import torch

    from cirf.codebook import centering, codebook, fit
    from cirf.codebook import sinkhorn as assignment
    from cirf.codebook.rows import open_rows
    from cirf.progress import SILENT
    from cirf.recipe import schema

    seconds: dict[str, float] = {}
    for holder, name, label in (
        (fit, "check_size", "reading for distinct segments"),
        (fit, "_fingerprint", "fingerprint"),
        (fit, "first_codes", "first codes"),
        (fit, "_epoch", "epochs"),
        (fit, "assign", "assignments of epochs"),
        (assignment, "assign", "last assignment"),
    ):
        _timed(holder, name, label, seconds)
    section = schema.Codebook(
        size=options.codes, hidden=options.hidden, autoencoder_epochs=options.autoencoder_epochs, vq_epochs=options.vq_epochs
    )
    found: dict[str, float] = {}
    begun = time.perf_counter(), time.process_time()
    with _own_memory(found):
        vectors, groups = open_rows(path)[0]["segments"], np.arange(options.rows) // STEPS
        started = time.perf_counter()
        scratch = path.with_name("represented")
        z = centering.represent(vectors, groups, "mean_centered", "corpus_mean", 1, scratch=scratch).vectors
        seconds["centring"] = time.perf_counter() - started
        book, _, report = codebook.train(z, options.code_width, section, 1, path.parent, SILENT)
        started = time.perf_counter()
        book.encode(z)
        seconds["nearest codes"] = time.perf_counter() - started
    wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    seconds["updates of epochs"] = seconds.pop("epochs", 0.0) - seconds.get("assignments of epochs", 0.0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9
    return {
        "seconds": seconds,
        "wall": wall,
        "cpu": cpu,
        "threads": torch.get_num_threads(),
        "peak_gb": peak,
        **found,
        "perplexity": report["perplexity"],
        "column_imbalance": report["column_imbalance"],
        "floor": _floors(options, path),
    }


def _floors(options: argparse.Namespace, path: Path) -> dict[str, float]:
    """The least seconds of each step."""
    peak, reads = sinkhorn.matmul_peak(), sinkhorn.read_bandwidth(path)
    rows, hidden, codes, width = options.rows, options.hidden, options.codes, options.code_width
    network = hidden * (options.width + width)  # multiplications of the encoder a segment; the decoder has as many
    encoding, distances = 2 * rows * network, 2 * rows * codes * width
    rounds = 2 * sinkhorn.ROUNDS * rows * codes / sinkhorn.exponentials()
    assignment = (encoding + distances) / peak + rounds
    updates = rows * (12 * network - 2 * options.width * hidden)  # backward is twice forward, but no input has a gradient
    once = 4 * rows * options.width / reads
    return {
        "centring": 2 * once,
        "fingerprint": once,
        "first codes": max(3 * once, 2 * encoding / peak + assignment),
        "updates of epochs": (options.autoencoder_epochs + options.vq_epochs) * max(once, updates / peak),
        "assignments of epochs": options.vq_epochs * max(once, assignment),
        "last assignment": max(once, assignment),
        "nearest codes": max(once, (encoding + distances) / peak),
        "gigaflops": peak / 1e9,
        "reads_gb": reads / 1e9,
    }


def _sweep(options: argparse.Namespace) -> dict[str, Any]:
    """Exponents of cost: what is timed, by what varies, the slope and its interval."""
    import numpy as np
    from scipy import stats

    found: dict[str, Any] = {}
    _point(options, M=256, K=16, d=64)  # imports at first use must not count for the first size
    for letter, sizes in SIZES.items():
        points: dict[str, list[tuple[float, float]]] = {}
        for size in sizes:
            size = max(size // options.shrink, 2)
            point = {name: max(value // options.shrink, 2) for name, value in BASE.items()} | {letter: size}
            for _ in range(options.repeats):
                for what, seconds in _point(options, **point).items():
                    points.setdefault(what, []).append((size, seconds))
        for what, pairs in points.items():
            x, y = np.log(np.array(pairs)).T
            line = stats.linregress(x, y)
            half = float(line.stderr * stats.t.ppf(0.975, len(pairs) - 2))
            slope = float(line.slope)
            found.setdefault(what, {})[letter] = {"exponent": slope, "low": slope - half, "high": slope + half, "n": len(pairs)}
    return found


def _point(options: argparse.Namespace, M: int, K: int, d: int) -> dict[str, float]:
    """Processor seconds of the three parts at one size."""
    import numpy as np
    import torch

    from cirf.codebook import fit
    from cirf.codebook.sinkhorn import assign, sinkhorn, squared_distances
    from cirf.codebook.vqvae import VQVAE, EncodedRows
    from cirf.distributed import ALONE
    from cirf.recipe import schema

    vectors = np.random.default_rng(0).standard_normal((M, d), dtype=np.float32)
    section = schema.Codebook(size=K, hidden=options.hidden)
    model = VQVAE(d, options.hidden, d, K, torch.Generator().manual_seed(0))
    state = fit.Fit(model, fit._adam(model, "autoencoder", section))
    encoded = EncodedRows(model.encoder, vectors)
    anchors = encoded.take(np.arange(K))
    distances = squared_distances(encoded, anchors)
    drawn = fit.batches(vectors, section.batch_size, 1)
    parts: dict[str, Callable[[], object]] = {
        "updates": lambda: fit._epoch(state, vectors, drawn, section, 0, lambda count, note="": None, ALONE),
        "assignment": lambda: assign(encoded, anchors, section.sinkhorn),
        "rounds": lambda: sinkhorn(distances, section.sinkhorn.temperature, section.sinkhorn.iterations),
    }
    seconds = {}
    for what, work in parts.items():
        started = time.process_time()
        work()
        seconds[what] = time.process_time() - started
    return seconds


def _child(part: str, options: argparse.Namespace, path: Path | None = None, threads: int | None = None) -> dict[str, Any]:
    names = ("rows", "width", "codes", "code_width", "hidden", "autoencoder_epochs", "vq_epochs", "repeats", "shrink")
    given = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in names]
    command = [sys.executable, "-m", "benchmarks.codebook", f"--only={part}", f"--path={path}", *given]
    few = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")} if threads else {}
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | few).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def scale(options: argparse.Namespace) -> dict[str, Any]:
    """Make the embeddings, train on them, print steps and peaks."""
    size = 4 * options.rows * options.width
    free = shutil.disk_usage(options.folder or tempfile.gettempdir()).free
    if free < 2.05 * size:
        raise SystemExit(f"--folder: {2.05 * size / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free; name another")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "embeddings.safetensors"
        _child("make", options, path)
        found = _child("scale", options, path)
    print(f"{options.rows:,} segments of width {options.width}, K = {options.codes}, codes {options.code_width} wide, ", end="")
    print(f"{size / 1e9:.2f} GB on disk, {found['threads']} threads")
    print(f"{'':34}{'wall s':>10}{'floor s':>10}")
    for label, seconds in found["seconds"].items():
        floor = found["floor"].get(label)
        print(f"{label:34}{seconds:10.2f}" + (f"{floor:10.2f}" if floor is not None else ""))
    print(f"{'the rest':34}{found['wall'] - sum(found['seconds'].values()):10.2f}")
    print(f"{'all':34}{found['wall']:10.2f}  ({found['cpu']:.1f} processor s)")
    print(f"peak memory {found['peak_gb']:.2f} GB, {found.get('own_gb', 0.0):.2f} GB of it no file's", flush=True)
    return found


def main() -> None:
    """Run the parts, print their tables and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"rows": 1_000_000, "width": 1024, "codes": 256, "code-width": 1024, "hidden": 1024, "pairs": 5, "most": 1_000_000}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--autoencoder-epochs", type=int, default=0, help="a VQ epoch is one of these after an assignment")
    parser.add_argument("--vq-epochs", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3, help="of each size of the sweep")
    parser.add_argument("--shrink", type=int, default=1, help="divide the sizes of the sweep, to try the benchmark")
    parser.add_argument("--folder", type=Path, help="where the embeddings are written and removed again")
    parser.add_argument("--memory", type=float, help="GB for POT; half of what is free, unless given")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--only", choices=("make", "scale", "sweep"), help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only == "make":
        _make(options, options.path)
        print("{}")
        return
    if options.only:
        print(json.dumps(_scale(options, options.path) if options.only == "scale" else _sweep(options)))
        return
    line: dict[str, Any] = {"benchmark": "codebook"}
    if "scale" in options.parts:
        line["scale"] = {"n": options.rows, "width": options.width, "codes": options.codes, **scale(options)}
    if "sweep" in options.parts:
        line["exponents"] = exponents = _child("sweep", options, threads=1)
        print(f"\n{'exponent of cost in':20}" + "".join(f"{letter:>24}" for letter in SIZES))
        for what, by in exponents.items():
            print(
                f"{what:20}" + "".join(f"{one['exponent']:10.2f} [{one['low']:5.2f},{one['high']:5.2f}]" for one in by.values())
            )
    if "solver" in options.parts:
        given = ["--begin=distances", f"--codes={options.codes}", f"--pairs={options.pairs}", f"--most={options.most}"]
        memory = options.memory or sinkhorn.available_memory() / 2e9
        print(flush=True)
        solved = sinkhorn.compare(sinkhorn.parser().parse_args([*given, f"--memory={memory}"]))
        line |= {key: solved[key] for key in ("ours", "peer", "ratio", "unit", "n")} | {"solver": solved}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
