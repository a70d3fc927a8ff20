"""Training on cores that other processes use too: the remaining speed, by number of threads and how long they spin.

    python -m benchmarks.shared_cores [--model ID] [--updates 8] [--repeats 2] [--settings default,cirf,passive,10000]

Threads that wait at a barrier spin for a while and then sleep. Spinning is fast on idle cores and wastes time on shared ones.
Each setting trains the same rows alone, next to one busy process, and next to as many as there are cores, in separate processes.
``default`` is what torch does, ``cirf`` what the command sets (`cirf.environment`), a number how often threads spin. The last
line is JSON: ``ours`` is the speed of ``cirf`` alone as a share of ``default`` alone, ``shared`` the same next to busy processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median

from cirf.environment import limit_spinning, limit_threads

BUSY = [sys.executable, "-c", "while True: pass"]


def environment(setting: str) -> dict[str, str]:
    """The variables of a setting, at the present load."""
    ours = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    if setting == "cirf":
        limit_spinning(kept)
        limit_threads(kept)
    elif setting == "passive":
        kept["OMP_WAIT_POLICY"] = "passive"
    elif setting != "default":
        kept["GOMP_SPINCOUNT"] = setting
    return kept


def train(model: str, updates: int) -> float:
    """Seconds an update of LoRA training on rows of about a hundred tokens; the first two are not counted."""
    import torch

    from cirf.assets import resolve
    from cirf.cpu.number_formats import computed_in
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
        with torch.autocast("cpu", torch.bfloat16, enabled=computed_in("bfloat16", "cpu") == "bfloat16"):
            loss = net(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        taken.append(time.perf_counter() - begun)
    return median(taken[2:])


def measured(setting: str, busy: int, model: str, updates: int) -> float:
    """Updates a second of a process of its own, next to so many that are always busy."""
    others = [subprocess.Popen(BUSY) for _ in range(busy)]
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
    parser.add_argument("--settings", default="default,cirf,passive")
    parser.add_argument("--only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(train(options.model, options.updates))
        return
    settings = list(dict.fromkeys(["default", "cirf", *options.settings.split(",")]))
    loads = sorted({0, 1, os.cpu_count() or 1})
    speeds: dict[tuple[str, int], list[float]] = {}
    for _ in range(options.repeats):
        for setting in settings:
            for busy in loads:
                speeds.setdefault((setting, busy), []).append(measured(setting, busy, options.model, options.updates))
    idle = max(speeds["default", 0])
    print("share of the speed of default alone, next to busy processes: " + ", ".join(map(str, loads)))
    shares = {setting: [round(max(speeds[setting, busy]) / idle, 3) for busy in loads] for setting in settings}
    for setting in settings:
        print(f"{setting}: {', '.join(f'{share:.2f}' for share in shares[setting])}")
    ours, *shared = shares["cirf"]
    summary = {"benchmark": "shared_cores", "ours": ours, "peer": 1.0, "ratio": ours, "shared": shared}
    print(json.dumps(summary | {"unit": "share of the idle speed", "n": options.repeats}))


if __name__ == "__main__":
    main()
