"""Updates of full fine-tuning on the CPU: with the memory that is freed kept, as we train, against glibc's default.

    python -m benchmarks.updates [--rows 4] [--tokens 49] [--updates 10] [--repeats 2]

A randomly initialised model of SmolLM2-135M's shape makes the same updates in both (target loss under bf16 autocast,
clip, AdamW), each in a process of its own, turn about; the fastest turn counts. The last line is JSON; a ratio above 1
means ours is faster.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any


def _run(who: str, rows: int, tokens: int, updates: int) -> dict[str, Any]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from cirf.lm.loss import IGNORED, target_loss
    from cirf.lm.memory import keep_freed_memory

    if who == "ours" and not keep_freed_memory():
        raise SystemExit("this C library has no such switch: there is nothing to compare")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(0, config.vocab_size, (rows, tokens))
    labels = ids.clone()
    labels[:, : 3 * tokens // 4] = IGNORED
    seconds, faults = [], 0
    for update in range(updates + 2):  # two to warm up
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16):
            loss = target_loss(model, ids, labels)
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
    parser.add_argument("--only", choices=("ours", "peer"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(_run(options.only, options.rows, options.tokens, options.updates)))
        return
    arguments = [f"--{name}={getattr(options, name)}" for name in ("rows", "tokens", "updates")]
    best: dict[str, dict[str, Any]] = {}
    print(f"{'':8}{'s an update':>12}{'tokens/s':>10}{'page faults':>13}{'peak GB':>9}")
    for who in ("ours", "peer") * options.repeats:
        command = [sys.executable, "-m", "benchmarks.updates", f"--only={who}", *arguments]
        one = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])
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
                "unit": "s an update",
                "n": options.updates,
                "rows": options.rows,
                "tokens": options.tokens,
                "peer_is": "the same update under glibc's default settings",
                "same_loss": ours["loss"] == peer["loss"],
            }
        )
    )


if __name__ == "__main__":
    main()
