"""Updates of full fine-tuning on the CPU with `cirf`'s settings, against the defaults of transformers and glibc.

    python -m benchmarks.updates [--shape smollm2-135m] [--rows 4] [--tokens 49] [--updates 10] [--repeats 2]

`cirf` uses plain attention for short rows, keeps freed memory and uses large pages. A randomly initialised model makes the same
updates on every side (target loss under bf16 autocast, clipping, AdamW), alternating, each in its own process; the fastest run
counts. ``memory`` is ours without the attention and the large pages. The last line is JSON; a ratio above 1 means ours is faster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import subprocess
import sys
import time
from typing import Any

from cirf.environment import with_large_pages

TURNS = ("ours", "memory", "peer")
SHAPES: dict[str, dict[str, Any]] = {
    "smollm2-135m": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    "qwen2.5-0.5b": {
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
}


def _run(who: str, shape: str, rows: int, tokens: int, updates: int) -> dict[str, Any]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from cirf.cpu.memory import keep_freed_memory
    from cirf.lm.training.attention import for_rows
    from cirf.lm.training.loss import IGNORED, summed, target_logits

    if who != "peer" and not keep_freed_memory():
        raise SystemExit("this C library has no such switch: there is nothing to compare")
    torch.manual_seed(1)
    config = LlamaConfig(**SHAPES[shape], tie_word_embeddings=True)
    model = LlamaForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(0, config.vocab_size, (rows, tokens))
    labels = ids.clone()
    labels[:, : 3 * tokens // 4] = IGNORED
    seconds, faults = [], 0
    with for_rows(model, tokens, "cpu") if who == "ours" else contextlib.nullcontext():
        for update in range(updates + 2):  # two to warm up
            before, started = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
            with torch.autocast("cpu", torch.bfloat16):
                loss = summed(*target_logits(model, ids, labels), None)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if update > 1:
                seconds.append(time.perf_counter() - started)
                faults += resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": sum(seconds) / updates, "faults": faults // updates, "peak_gb": peak / 1e9, "loss": loss.item()}


def main() -> None:
    """Run both in turn, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 4), ("tokens", 49), ("updates", 10), ("repeats", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--shape", choices=list(SHAPES), default="smollm2-135m")
    parser.add_argument("--only", choices=TURNS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(_run(options.only, options.shape, options.rows, options.tokens, options.updates)))
        return
    arguments = [f"--{name}={getattr(options, name)}" for name in ("shape", "rows", "tokens", "updates")]
    best: dict[str, dict[str, Any]] = {}
    plain = {name: value for name, value in os.environ.items() if name not in ("GLIBC_TUNABLES", "CIRF_LARGE_PAGES")}
    print(f"{'':8}{'s an update':>12}{'tokens/s':>10}{'page faults':>13}{'peak GB':>9}")
    for who in TURNS * options.repeats:
        command = [sys.executable, "-m", "benchmarks.updates", f"--only={who}", *arguments]
        environment = (with_large_pages(plain) or plain) if who == "ours" else plain
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        one = json.loads(done.stdout.splitlines()[-1])
        speed = options.rows * options.tokens / one["seconds"]
        print(f"{who:8}{one['seconds']:12.3f}{speed:10.0f}{one['faults']:13,}{one['peak_gb']:9.2f}", flush=True)
        best[who] = min(one, best.get(who, one), key=lambda turn: float(turn["seconds"]))
    ours, peer = best["ours"], best["peer"]
    print(
        json.dumps(
            {
                "benchmark": "updates",
                "ours": round(ours["seconds"], 3),
                "peer": round(peer["seconds"], 3),
                "ratio": round(peer["seconds"] / ours["seconds"], 2),
                "ratio_of_memory_alone": round(peer["seconds"] / best["memory"]["seconds"], 2),
                "unit": "s an update",
                "n": options.updates,
                "shape": options.shape,
                "rows": options.rows,
                "tokens": options.tokens,
                "peer_is": "the same update with transformers' and glibc's defaults",
                "same_loss": math.isclose(ours["loss"], peer["loss"], rel_tol=0.01),
            }
        )
    )


if __name__ == "__main__":
    main()
