"""Training on cores that another process uses too: the remaining speed, by how long OpenMP's threads spin.

    python -m benchmarks.shared_cores [--model ID] [--updates 8] [--repeats 2] [--spins default,1000,10000,passive]

Threads that wait at a barrier spin for a while and then sleep. Spinning is fast on idle cores and wastes time on shared ones.
Each setting trains the same rows alone, and with as many busy processes as there are cores, in turn and in separate processes.
``cirf`` is the setting that the command uses unless the user sets one (`cirf.distributed`). The last line is JSON: ``ours`` is
the speed of ``cirf`` alone as a share of ``default`` alone, ``shared`` its share with busy processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median

from cirf.environment import limit_spinning

BUSY = [sys.executable, "-c", "while True: pass"]


def environment(setting: str) -> dict[str, str]:
    """The variables of a setting."""
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    if setting == "default":
        return kept
    if setting == "cirf":
        limit_spinning(kept)
        return kept
    return kept | ({"OMP_WAIT_POLICY": "passive"} if setting == "passive" else {"GOMP_SPINCOUNT": setting})


def train(model: str, updates: int) -> float:
    """Seconds an update of LoRA training on rows of about a hundred tokens; the first two are not counted."""
    import torch

    from cirf.assets import resolve
    from cirf.lm import backbone
    from cirf.lm.adapters import put_adapters
    from cirf.recipe.schema import Backbone, Lora

    torch.manual_seed(0)
    net = put_adapters(backbone.load_model(resolve(model), Backbone(), training="lora"), Lora(rank=16))
    ids = torch.randint(0, 1000, (4, 96))
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-4)
    taken = []
    for _ in range(updates + 2):
        begun = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        taken.append(time.perf_counter() - begun)
    return median(taken[2:])


def measured(setting: str, busy: bool, model: str, updates: int) -> float:
    """Updates a second of a process of its own."""
    others = [subprocess.Popen(BUSY) for _ in range(os.cpu_count() or 1)] if busy else []
    try:
        command = [sys.executable, "-m", "benchmarks.shared_cores", "--only", "--model", model, "--updates", str(updates)]
        done = subprocess.run(command, env=environment(setting), capture_output=True, text=True, check=True)
    finally:
        for other in others:
            other.kill()
            other.wait()
    return 1 / float(done.stdout.split()[-1])


def main() -> None:
    """Measure every setting, print a table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bundled:smollm2-135m-instruct")
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--spins", default="default,cirf,passive")
    parser.add_argument("--only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(train(options.model, options.updates))
        return
    settings = list(dict.fromkeys(["default", "cirf", *options.spins.split(",")]))
    speeds: dict[tuple[str, bool], list[float]] = {}
    for _ in range(options.repeats):
        for setting in settings:
            for busy in (False, True):
                speeds.setdefault((setting, busy), []).append(measured(setting, busy, options.model, options.updates))
    idle = max(speeds["default", False])
    print("setting: updates/s alone, share of default alone; with busy processes, share")
    for setting in settings:
        alone, shared = max(speeds[setting, False]), max(speeds[setting, True])
        print(f"{setting}: {alone:.3f}, {alone / idle:.2f}; {shared:.3f}, {shared / idle:.2f}")
    ours, shared = max(speeds["cirf", False]) / idle, max(speeds["cirf", True]) / idle
    summary = {
        "benchmark": "shared_cores",
        "ours": round(ours, 3),
        "peer": 1.0,
        "ratio": round(ours, 3),
        "shared": round(shared, 3),
    }
    print(json.dumps(summary | {"unit": "share of the idle speed", "n": options.repeats}))


if __name__ == "__main__":
    main()
