"""Training and decoding speed of a model of a known shape, compared with what the device can reach.

    python -m benchmarks.shape [--shape qwen3-8b|tiny] [--device auto] [--part train-lora|train-full|decode|latency] [--out FILE]

Weights, rows and prompts are random, since speed does not depend on their values. Their lengths are those of the paper's tables
for Qwen3-8B (`shape_model.paper_lengths`). Nothing is downloaded. The parts (default: all):

* ``train-lora``, ``train-full``: cirf's own fine-tuning, with adapters of rank 128 and new rows, or of all weights with and
  without gradient checkpointing. An update has 32 rows as in the paper, in passes of several sizes. Shows tokens a second, peak
  memory, and the required operations (`shape_model.training_flops`) as a share of the measured speed of matrix products.
* ``decode``: milliseconds a step, at batch 1 and 32, of cirf's functions, of ``generate`` with a static cache (compiled on a
  GPU), and of a static cache with a CUDA graph. The floor is the time to read weights, keys and values at the measured bandwidth.
  The tokens of all engines are compared.
* ``latency``: seconds from the prompt's text to the last token of CIRF Full, Fast, Faster and chain-of-thought.

A cell that does not fit into memory, or that an engine cannot run, is a line of the table. On an H200 each part takes some
minutes. The last line is JSON. ``ours`` and ``peer`` are the milliseconds of a step of cirf's functions and of the fastest other
engine; ``ratio`` is below 1 if that one is faster.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import shape_decode, shape_model
from benchmarks.shape_model import Lengths, synchronise

PARTS = ("train-lora", "train-full", "decode", "latency")
ROWS_AN_UPDATE = 32
_GIB = 2**30


class Clock:
    """A progress bar that records when each update ended (see `cirf.progress.Progress`)."""

    def __init__(self, device: str) -> None:
        """``device`` is synchronised before the clock is read."""
        self.device, self.times = device, list[float]()

    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Callable[..., None]]:
        """A bar whose steps are recorded."""

        def advance(count: int, note: str = "", /) -> None:
            synchronise(self.device)
            self.times.append(time.perf_counter())

        yield advance


class Memory:
    """Peak GPU memory since its creation; ``None`` on other devices."""

    def __init__(self, device: str) -> None:
        """Reset the peak."""
        import torch

        gc.collect()
        self.cuda = torch.device(device).type == "cuda"
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def most(self) -> float | None:
        """GiB."""
        import torch

        return round(torch.cuda.max_memory_allocated() / _GIB, 2) if self.cuda else None


def no_room(error: BaseException) -> bool:
    """Whether an error or its cause is a lack of memory."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or isinstance(error.__context__, torch.OutOfMemoryError)


def attempt(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The measurement of a cell, or the reason for its failure."""
    try:
        return work()
    except Exception as error:  # a failed cell is a line of the table; the others continue
        why = "out of memory" if no_room(error) else f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
        return {"failed": why}


def train(options: argparse.Namespace, adaptation: str, batch: int, recomputed: bool, method: str) -> dict[str, Any]:
    """Some updates of the project's fine-tuning; the first ``options.warmup`` of them are not counted."""
    from cirf.lm.training.batches import LengthSampler, tokenise
    from cirf.lm.training.finetune import finetune
    from cirf.lm.training.spec import TrainingSpec
    from cirf.lm.training.trainer import TargetTrainer
    from cirf.recipe.schema import Finetune, Lora

    summary = shape_model.paper_lengths(options.task)[method]
    lora = Lora(rank=options.rank, alpha=32)
    section = Finetune(
        lora=lora, epochs=1, batch_size=batch, gradient_accumulation_steps=max(1, ROWS_AN_UPDATE // batch), save_steps=10**6
    ).model_copy(update={"adaptation": adaptation, "gradient_checkpointing": recomputed})
    memory, clock = Memory(options.device), Clock(options.device)
    dtype = "float32" if adaptation == "full" else options.dtype
    model, tokenizer = shape_model.build_model(options.shape, options.device, dtype), shape_model.build_tokenizer()
    new = shape_model.new_tokens(model, tokenizer)
    an_update = batch * section.gradient_accumulation_steps
    rows = shape_model.rows((options.warmup + options.updates) * an_update, summary, options.prompt)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(TargetTrainer, "_save_checkpoint"):
        # Nothing is saved: a checkpoint of 8B with its optimiser's state is 98 GB.
        model, history, _ = finetune(
            model, tokenizer, rows, [], TrainingSpec(section, method, new, Path(folder), 0, device=options.device), clock
        )
    features, _ = tokenise(rows, tokenizer, section.max_length, new)
    order = list(LengthSampler([len(feature.ids) for feature in features], batch, 0, section.group_by_length))
    counted = [features[row] for row in order[options.warmup * an_update :]]
    seconds = clock.times[-1] - clock.times[options.warmup - 1]
    tokens, targets = (sum(found) for found in zip(*((len(f.ids), len(f.ids) - f.start) for f in counted), strict=True))
    passes = [[len(feature.ids) for feature in counted[start : start + batch]] for start in range(0, len(counted), batch)]
    filled = sum(max(lengths) * len(lengths) for lengths in passes)
    trained = history.trainable_parameters if adaptation == "lora" else None
    flops = shape_model.training_flops(model, [(len(f.ids), len(f.ids) - f.start) for f in counted], trained)
    return {
        "tokens_per_s": round(tokens / seconds, 1),
        "rows_per_s": round(len(counted) / seconds, 2),
        "update_s": round(seconds / options.updates, 4),
        "tflops": round(flops / seconds / 1e12, 4),
        "share_of_peak": round(flops / seconds / options.peak, 4),
        "padding": round(1 - tokens / filled, 3),
        "target_share": round(targets / tokens, 3),
        "trained_parameters": history.trainable_parameters,
        "computed_in": history.computed_in,
        "loss": [round(history.losses[0]["loss"], 3), round(history.losses[-1]["loss"], 3)],
        "memory_gib": memory.most(),
    }


def trainings(options: argparse.Namespace, adaptation: str) -> list[dict[str, Any]]:
    """All cells of a way of training, each printed as it is done."""
    made = []
    for recomputed in (True, False) if adaptation == "full" else (False,):
        for method in options.methods:
            for batch in options.batches_trained:
                cell = {"adaptation": adaptation, "method": method, "batch": batch, "recomputed": recomputed}
                cell |= attempt(lambda b=batch, r=recomputed, m=method: train(options, adaptation, b, r, m))  # type: ignore[misc]
                made.append(cell)
                print(f"{adaptation:5}{method:12}{batch:6}{'yes' if recomputed else 'no':>11}{_trained(cell)}", flush=True)
    return made


def _trained(cell: dict[str, Any]) -> str:
    if "failed" in cell:
        return f"  {cell['failed']}"
    memory = "-" if cell["memory_gib"] is None else f"{cell['memory_gib']:.1f}"
    return f"{cell['tokens_per_s']:12,.0f}{cell['tflops']:9.3f}{cell['share_of_peak']:8.1%}{cell['padding']:9.1%}{memory:>8}"


def engines(model: Any, tokenizer: Any, batch: int, room: int) -> list[shape_decode.Engine]:
    """All engines for a batch; cirf's own comes first."""
    return [
        shape_decode.Own(model, tokenizer),
        shape_decode.Static(model, tokenizer, room, compiled=model.device.type == "cuda"),
        shape_decode.Replayed(model, tokenizer, batch, room),
    ]


def answering(options: argparse.Namespace) -> tuple[Any, Any]:
    """A model for decoding, and its tokenizer."""
    model, tokenizer = shape_model.build_model(options.shape, options.device, options.dtype), shape_model.build_tokenizer()
    shape_model.never_end(model, tokenizer)
    return model, tokenizer


def stepped(options: argparse.Namespace, engine: shape_decode.Engine, prompts: list[str]) -> dict[str, Any]:
    """Milliseconds a step: the time of a long answer less that of a short one, divided by the steps between them."""
    few, many = options.steps // 8 + 1, options.steps + options.steps // 8 + 1
    memory = Memory(options.device)
    short = shape_model.fastest(options.device, lambda: engine.write(prompts, few), options.repeats)
    long = shape_model.fastest(options.device, lambda: engine.write(prompts, many), options.repeats)
    step = (long - short) / (many - few)
    return {"ms_a_step": round(step * 1000, 4), "tokens_per_s": round(len(prompts) / step, 1), "memory_gib": memory.most()}


def decode(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Decoding steps of every engine at every batch size, and the floor."""
    made: list[dict[str, Any]] = []
    model, tokenizer = answering(options)
    few, many = options.steps // 8 + 1, options.steps + options.steps // 8 + 1
    for batch in options.batches:
        prompts = shape_model.prompts(batch, options.prompt)
        floor = shape_model.decode_bytes(model, batch, options.prompt + (few + many) // 2) / options.bandwidth * 1000
        first: list[tuple[int, ...]] | None = None
        for engine in engines(model, tokenizer, batch, options.prompt + many + 1):
            cell: dict[str, Any] = {"engine": engine.name, "batch": batch, "floor_ms": round(floor, 4)}
            cell |= attempt(lambda e=engine, p=prompts: stepped(options, e, p))  # type: ignore[misc]
            if "failed" not in cell:
                cell["times_the_floor"] = round(cell["ms_a_step"] / floor, 2)
                written = engine.write(prompts, many)
                first = written if first is None else first
                cell |= attempt(lambda o=first, w=written, p=prompts: shape_decode.apart(model, tokenizer, p, o, w))  # type: ignore[misc]
            made.append(cell)
            engine.forget()
            print(f"{engine.name:34}{batch:6}{_stepped(cell)}", flush=True)
    return made


def _stepped(cell: dict[str, Any]) -> str:
    if "failed" in cell:
        return f"  {cell['failed']}"
    times = f"{cell['ms_a_step']:12.3f}{cell['floor_ms']:10.3f}{cell['times_the_floor']:8.2f}{cell['tokens_per_s']:12,.0f}"
    return f"{times}{cell['same']:7} of {cell['of']}, {cell['largest_lead']:.3f}"


def latency(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds a question, or a batch of them, of four methods."""
    made = []
    model, tokenizer = answering(options)
    lengths = shape_model.paper_lengths(options.task)
    room = options.prompt + max(summary.written for summary in lengths.values()) + 1
    for batch in options.batches:
        prompts = shape_model.prompts(batch, options.prompt)
        for engine in engines(model, tokenizer, batch, room):
            for method, summary in lengths.items():
                cell: dict[str, Any] = {"engine": engine.name, "batch": batch, "method": method, "tokens": summary.written}
                cell |= attempt(lambda e=engine, p=prompts, t=summary: answered(options, e, p, t))  # type: ignore[misc]
                made.append(cell)
                seconds = f"  {cell['failed']}" if "failed" in cell else f"{cell['seconds']:12.3f}{cell['questions_per_s']:14.2f}"
                print(f"{engine.name:34}{batch:6}  {method:12}{summary.written:7}{seconds}", flush=True)
            engine.forget()
    return made


def answered(options: argparse.Namespace, engine: shape_decode.Engine, prompts: list[str], summary: Lengths) -> dict[str, Any]:
    """Seconds from the text of some prompts to the last token of their answers, the fastest of some calls."""
    seconds = shape_model.fastest(options.device, lambda: engine.write(prompts, summary.written), options.repeats)
    return {"seconds": round(seconds, 5), "questions_per_s": round(len(prompts) / seconds, 3)}


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """The options, with what follows from shape and device filled in."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=sorted(shape_model.SHAPES), default="qwen3-8b")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or another torch device")
    parser.add_argument(
        "--dtype", help="of the weights that answer and of the frozen ones under adapters; default: bfloat16, on a CPU float32"
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="repeatable; default: all")
    parser.add_argument("--task", default="gsm8k", help="the paper's task whose lengths are taken")
    parser.add_argument("--prompt", type=int, default=shape_model.PROMPT, help="tokens of a prompt")
    parser.add_argument("--methods", nargs="+", default=["cirf_full", "cot"], help="whose rows are trained on")
    parser.add_argument("--rank", type=int, default=128, help="of the adapters")
    parser.add_argument("--batches-trained", type=int, nargs="+", default=[4, 32], help="rows a pass")
    parser.add_argument("--updates", type=int, default=8, help="that are timed")
    parser.add_argument("--warmup", type=int, default=3, help="updates before these")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32], help="answers at once")
    parser.add_argument("--steps", type=int, default=128, help="of decoding that are timed")
    parser.add_argument("--repeats", type=int, default=3, help="calls of which the fastest counts")
    parser.add_argument("--threads", type=int, help="of torch on a CPU")
    parser.add_argument("--out", type=Path, help="JSON file with all that was measured")
    options = parser.parse_args(arguments)
    if options.warmup < 1 or options.updates < 1:
        parser.error("--warmup and --updates: one at least")

    import torch

    from cirf.lm.backbone import pick_device

    if options.threads:
        torch.set_num_threads(options.threads)
    options.device = pick_device(options.device)
    cuda = torch.device(options.device).type == "cuda"
    options.dtype = options.dtype or ("bfloat16" if cuda else "float32")
    options.name = torch.cuda.get_device_name(options.device) if cuda else f"CPU, {torch.get_num_threads()} threads"
    return options


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measure the limits of the device, then the parts; print the tables and the line of JSON."""
    options = parsed(arguments)
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    memory = Memory(options.device)
    options.peak = shape_model.matmul_peak(options.device, options.dtype)
    options.bandwidth = shape_model.bandwidth(options.device, options.dtype)
    del memory
    Memory(options.device)  # frees the memory of these two
    print(
        f"{options.shape} on {options.name}, torch {torch.__version__}, transformers {transformers.__version__}, {options.dtype}"
    )
    print(f"matrix products {options.peak / 1e12:,.2f} TFLOPS, memory {options.bandwidth / 1e9:,.1f} GB/s, both measured now")
    summary: dict[str, Any] = {"benchmark": "shape", "shape": options.shape, "device": options.name, "dtype": options.dtype}
    summary |= {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "task": options.task,
        "prompt": options.prompt,
    }
    summary |= {"peak_tflops": round(options.peak / 1e12, 3), "bandwidth_gb_s": round(options.bandwidth / 1e9, 2)}
    parts = options.part or PARTS
    if "train-lora" in parts or "train-full" in parts:
        print(f"\n{'':5}{'rows of':12}{'batch':>6}{'recomputed':>11}{'tokens/s':>12}{'TFLOPS':>9}", end="")
        print(f"{'share':>8}{'padding':>9}{'GiB':>8}")
        summary["training"] = [row for kind in ("lora", "full") if f"train-{kind}" in parts for row in trainings(options, kind)]
    if "decode" in parts:
        print(
            f"\n{'engine':34}{'batch':>6}{'ms a step':>12}{'floor':>10}{'times':>8}{'tokens/s':>12}   same tokens, largest lead"
        )
        summary["decoding"] = (found := attempt(lambda: {"cells": decode(options)})).get("cells", found)
    if "latency" in parts:
        print(f"\n{'engine':34}{'batch':>6}  {'method':12}{'tokens':>7}{'seconds':>12}{'questions/s':>14}")
        summary["latency"] = (found := attempt(lambda: {"cells": latency(options)})).get("cells", found)
    steps = [row for row in summary.get("decoding", ()) if isinstance(row, dict) and row.get("batch") == 1 and "ms_a_step" in row]
    if len(steps) > 1:
        ours, peer = steps[0]["ms_a_step"], min(row["ms_a_step"] for row in steps[1:])
        summary |= {
            "ours": ours,
            "peer": peer,
            "ratio": round(peer / ours, 3),
            "unit": "ms a step at batch 1",
            "n": options.steps,
        }
    if options.out:
        options.out.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary))
    return summary


if __name__ == "__main__":
    main(sys.argv[1:])
