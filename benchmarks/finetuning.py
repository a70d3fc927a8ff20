"""Fine-tuning on a run's rows with cirf and with TRL's `SFTTrainer`, alternating, each in its own process.

    python -m benchmarks.finetuning --peer-python VENV/bin/python [--model bundled:smollm2-135m-instruct --training full|lora]
        [--run RUN] [--method cirf_full] [--rows 80] [--rounds 5] [--settings NAME ...] [--threads N]

    python3.11 -m venv VENV && VENV/bin/pip install torch==2.13.0   # alone, from an index of CPU builds
    VENV/bin/pip install transformers==5.23.0 trl==1.16.0 peft==0.21.2 datasets==5.2.0 accelerate==1.15.0

Rows are those of ``--run``, otherwise of the quickstart, whose stages up to the traces are then run first. Both sides get the
same weights, including rows for new tokens, and the same training rows in the same length-grouped order. Update size, optimiser,
schedule and number format are equal: bfloat16, or float32 where the processor is faster with it. TRL is first tried with every
setting for a few updates, and the fastest one is used. The differences of losses between TRL's own settings are printed next to
those to ours.

*Useful tokens* exclude padding; the first updates are not timed. ``floor`` is 6 x parameters x useful tokens (4 with adapters,
since frozen weights need no gradient) over the measured speed of a large matrix product. Both wall and CPU time are printed; on a
busy machine CPU time is fairer. The last line is JSON; a ratio above 1 means ours is faster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

SETTINGS: dict[str, dict[str, Any]] = {
    "padded": {},
    "padded eager": {"attention": "eager"},
    "padding_free": {"padding_free": True},
    "padding_free eager": {"padding_free": True, "attention": "eager"},
    "packing": {"packing": True},
    "packing eager": {"packing": True, "attention": "eager"},
    "padded compiled": {"compile": True},
}
TRIED = tuple(name for name in SETTINGS if "compiled" not in name)  # compiling takes minutes
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_TOP_PAD_": str(64 * 2**20)}
WARM = 3
"""Updates before the clock starts."""


def prepare(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Write model, rows and settings for both sides; returns the settings."""
    from cirf.cpu import number_formats
    from cirf.lm import backbone, vocabulary
    from cirf.lm.prompt import end_token
    from cirf.lm.training.batches import LengthSampler, Row, sft_rows, tokenise
    from cirf.lm.training.spec import plan_updates
    from cirf.methods import get
    from cirf.recipe.load import load, open_run
    from cirf.stages.context import Context
    from cirf.store.run_folder import RunFolder

    run: Path = options.run or folder / "run"
    if options.run is None:
        command = [sys.executable, "-m", "cirf", "run", "quickstart", "--until", "traces", "--out", str(run), "--quiet"]
        subprocess.run(command, check=True, stdout=sys.stderr)
    open_run(run)
    recipe = load(str(run / "recipe.yaml"), [f"backbone.model={options.model}", f"finetune.adaptation={options.training}"])
    context, method = Context(recipe, RunFolder(run)), get(options.method, recipe)
    section = recipe.finetune.resolved(method.name, method.training)
    lora = section.lora.model_copy(update={"rank": options.rank, "dropout": 0.0})
    section = section.model_copy(
        update={"epochs": 1.0, "new_token_lr_multiplier": 1.0, "lora": lora}
    )  # the peer has one rate for all
    tokenizer = backbone.load_tokenizer(options.model, recipe.backbone)
    model = backbone.load_model(options.model, recipe.backbone.model_copy(update={"device": "cpu"}), section.adaptation)
    if options.layers:
        model.model.layers = model.model.layers[: options.layers]
        model.config.num_hidden_layers = options.layers
    new_ids: list[int] = []
    if method.functional:
        new_ids = vocabulary.extend(model, tokenizer, None, recipe.vocabulary, recipe.codebook.codes, recipe.seed)
    method.settle(tokenizer, training=True)
    examples = context.examples(method)[0]
    random.Random("rows of the benchmark").shuffle(examples)
    size = section.batch_size * section.gradient_accumulation_steps
    rows = [
        Row(backbone.prompt_text(tokenizer, method.training_prompt(one, context.tasks[one.problem.task])), method.target(one))
        for one in examples[: options.rows - options.rows % size]
    ]
    features, _ = tokenise(rows, tokenizer, section.max_length, new_ids)
    lengths = [len(feature.ids) for feature in features]
    order = list(LengthSampler(lengths, section.batch_size, recipe.seed, section.group_by_length))
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    text = sft_rows(rows, tokenizer, new_ids)
    for name, chosen in (("ours.jsonl", range(len(text))), ("rows.jsonl", order)):
        (folder / name).write_text("".join(json.dumps(text[i]) + "\n" for i in chosen), encoding="utf-8")
    plan = plan_updates(len(rows), section, 1.0)
    cosine = {"min_lr_rate": section.min_lr_ratio} if section.lr_scheduler_type == "cosine" else {}
    schedule = {"cosine": "cosine_with_min_lr", "linear": "linear", "constant": "constant_with_warmup"}[section.lr_scheduler_type]
    summary = {
        "training": options.training,
        "parameters": sum(value.numel() for value in model.parameters()),
        "new_ids": new_ids,
        "end": end_token(tokenizer),
        "seed": recipe.seed,
        "batch_size": section.batch_size,
        "gradient_accumulation_steps": section.gradient_accumulation_steps,
        "dtype": number_formats.computed_in("bfloat16" if section.bf16 else "float32", "cpu"),  # of products
        "weights": number_formats.computed_in(recipe.backbone.dtype, "cpu"),  # frozen under adapters
        "lora": None if options.training == "full" else {"rank": section.lora.rank, "alpha": section.lora.alpha},
        "section": section.model_dump(mode="json"),
        "backbone": recipe.backbone.model_dump(mode="json"),
        "lengths": [sum(lengths[i] for i in order[start : start + size]) for start in range(0, len(order), size)],
        "pack": max(max(lengths), math.ceil(sum(lengths) * section.batch_size / len(lengths)) + min(lengths) // 4),
        "optimiser": {
            "learning_rate": section.learning_rate,
            "weight_decay": section.weight_decay,
            "adam_beta1": section.adam_beta1,
            "adam_beta2": section.adam_beta2,
            "adam_epsilon": section.adam_epsilon,
            "max_grad_norm": section.max_grad_norm,
            "warmup_steps": plan.warmup,
            "lr_scheduler_type": schedule,
            "lr_scheduler_kwargs": cosine,
        },
    }
    (folder / "settings.json").write_text(json.dumps(summary))
    return summary


class Stamps:
    """A progress bar that notes the time at the end of each update."""

    def __init__(self) -> None:
        self.found: list[tuple[float, float]] = []

    @contextlib.contextmanager
    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Any]:
        yield lambda count, note="": self.found.append((time.perf_counter(), time.process_time()))


def ours(folder: Path) -> dict[str, Any]:
    """Train as a run would, without the final checkpoint."""
    from cirf.lm import backbone
    from cirf.lm.training.batches import Row
    from cirf.lm.training.finetune import finetune
    from cirf.lm.training.spec import TrainingSpec
    from cirf.lm.training.trainer import TargetTrainer
    from cirf.recipe import schema as recipe

    summary = json.loads((folder / "settings.json").read_text())
    section = recipe.Finetune.model_validate(summary["section"] | {"save_steps": 10**6, "eval_steps": 10**6})
    settings = recipe.Backbone.model_validate(summary["backbone"])
    tokenizer = backbone.load_tokenizer(folder / "model", settings)
    model = backbone.load_model(folder / "model", settings.model_copy(update={"device": "cpu"}), summary["training"])
    rows = [Row(row["prompt"], row["completion"]) for row in map(json.loads, (folder / "ours.jsonl").open(encoding="utf-8"))]
    stamps = Stamps()
    with tempfile.TemporaryDirectory() as work, mock.patch.object(TargetTrainer, "_save_checkpoint", lambda *_: None):
        _, history, _ = finetune(
            model,
            tokenizer,
            rows,
            [],
            TrainingSpec(section, "benchmark", summary["new_ids"], Path(work), summary["seed"], device="cpu"),
            stamps,
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    losses = [update["loss"] for update in history.losses]
    return {"stamps": stamps.found, "losses": losses, "tokens": history.tokens, "updates": history.updates, "peak_gb": peak}


def peak(dtype: str) -> dict[str, Any]:
    """Operations a second of a product of 2048 x 2048 matrices, by wall and by CPU time."""
    import torch

    a, b = (torch.randn(2048, 2048, dtype=getattr(torch, dtype)) for _ in range(2))
    best = [math.inf, math.inf]
    for turn in range(7):
        started = time.perf_counter(), time.process_time()
        for _ in range(4):
            a @ b
        spent = (time.perf_counter() - started[0]) / 4, (time.process_time() - started[1]) / 4
        best = [min(pair) for pair in zip(best, spent, strict=True)] if turn else best
    return {"wall": 2 * 2048**3 / best[0], "cpu": 2 * 2048**3 / best[1]}


def run_child(command: Sequence[str], threads: int | None, more: dict[str, str] | None = None) -> Any:
    """What a process printed as its last line, JSON."""
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", **(more or {})}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    done = subprocess.run(list(command), capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)[:300]}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _speeds(one: dict[str, Any], lengths: Sequence[int]) -> dict[str, float]:
    """Useful tokens a second by both clocks, over the updates after the first ones."""
    stamps = one["stamps"]
    same = one["updates"] == len(lengths)  # packs hold other rows than batches do, though of the same length on average
    tokens = sum(lengths[WARM : len(stamps)]) if same else one["tokens"] / one["updates"] * (len(stamps) - WARM)
    wall, cpu = (stamps[-1][clock] - stamps[WARM - 1][clock] for clock in (0, 1))
    return {"wall": tokens / wall, "cpu": tokens / cpu}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(4000))
    return medians[100], medians[-101]


def main() -> None:
    """Prepare, try the peer's settings, run both in turns, print the tables and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="the interpreter of an environment with TRL (see above)")
    parser.add_argument("--model", default="bundled:smollm2-135m-instruct")
    parser.add_argument("--training", choices=("full", "lora"), default="full")
    parser.add_argument("--rank", type=int, default=64, help="of the adapters")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--method", default="cirf_full")
    parser.add_argument("--rows", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(TRIED))
    parser.add_argument(
        "--trial", type=int, default=8, help=f"updates to try each of the peer's settings for, {WARM} of them not timed"
    )
    parser.add_argument("--threads", type=int)
    parser.add_argument("--layers", type=int, help="leave the model so many, for a first look or where memory is short")
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.trial < WARM + 2:
        parser.error(f"--trial: at least {WARM + 2}, as the first {WARM} updates are not timed and a single one is too few")
    if options.only:
        side, where = options.only
        print(json.dumps(peak(where) if side == "peak" else ours(Path(where))))
        return
    with tempfile.TemporaryDirectory() as temporary:
        compare(options, Path(temporary))


def compare(options: argparse.Namespace, folder: Path) -> None:
    """The whole comparison, with ``folder`` to work in."""
    summary = prepare(options, folder)
    lengths, script = summary["lengths"], str(Path(__file__).with_name("finetuning_peer.py"))
    whole = len(lengths) + 1000

    def our_turn() -> dict[str, Any]:
        command = [sys.executable, "-m", "benchmarks.finetuning", "--only", "ours", str(folder)]
        made: dict[str, Any] = run_child(command, options.threads)
        return made

    def peer_turn(name: str, last: int, more: dict[str, str] | None = None) -> dict[str, Any]:
        command = [options.peer_python, script, str(folder), json.dumps(SETTINGS[name]), str(last)]
        made: dict[str, Any] = run_child(command, options.threads, {"PYTHONPATH": ""} | (more or {}))
        return made

    def line(name: str, one: dict[str, Any]) -> dict[str, float]:
        speeds = _speeds(one, lengths)
        print(f"{name:28}{speeds['wall']:12.0f}{speeds['cpu']:14.0f}{one['peak_gb']:9.2f}", flush=True)
        return speeds

    fastest = run_child([sys.executable, "-m", "benchmarks.finetuning", "--only", "peak", summary["dtype"]], options.threads)
    operations = (6 if summary["training"] == "full" else 4) * summary["parameters"]
    floor = {clock: fastest[clock] / operations for clock in ("wall", "cpu")}
    cut = f" of {options.layers} layers" if options.layers else ""
    print(
        f"{options.model}{cut}, {summary['training']}, {len(lengths)} updates of {sum(lengths) / len(lengths):.0f} useful tokens"
    )
    speeds = f"{fastest['wall'] / 1e9:.0f} GFLOP/s by the wall clock, {fastest['cpu'] / 1e9:.0f} a CPU second"
    print(f"largest product in {summary['dtype']}: {speeds}")
    print(f"\n{'useful tokens a second':28}{'wall':>12}{'CPU':>14}{'peak GB':>9}")
    print(f"{'floor':28}{floor['wall']:12.0f}{floor['cpu']:14.0f}")
    if options.peer_python is None:
        line("ours", our_turn())
        raise SystemExit("without --peer-python there is nothing to compare with: see --help for how to make one")
    tried = {}
    for name in options.settings:
        one = peer_turn(name, options.trial)
        tried[name] = (line(f"TRL {name}", one), one)
    best = max(tried, key=lambda name: tried[name][0]["cpu"])
    line(f"TRL {best}, tuned malloc", peer_turn(best, options.trial, KEPT))
    print(f"\nrounds against TRL {best!r}")
    pairs: list[dict[str, dict[str, float]]] = []
    losses: dict[str, list[float]] = {}
    for turn in range(options.rounds):
        found = {}
        for side in ("ours", "TRL")[:: -1 if turn % 2 else 1]:
            one = our_turn() if side == "ours" else peer_turn(best, whole)
            found[side] = line(side, one)
            losses.setdefault(side, one["losses"])
        pairs.append(found)
    _report(options, summary, best, pairs, losses, tried, floor)


def _apart(losses: Sequence[float], others: Sequence[float]) -> list[float]:
    return [abs(one - other) / max(other, 1e-9) for one, other in zip(losses, others, strict=False)]


def _report(
    options: argparse.Namespace,
    summary: dict[str, Any],
    best: str,
    pairs: list[dict[str, dict[str, float]]],
    losses: dict[str, list[float]],
    tried: dict[str, tuple[dict[str, float], dict[str, Any]]],
    floor: dict[str, float],
) -> None:
    rowwise = next((name for name in (best, *tried) if "packing" not in name), None)
    same = losses["TRL"] if rowwise == best else tried[rowwise][1]["losses"] if rowwise else []
    print(f"\nloss of every update\nours {' '.join(f'{loss:.3f}' for loss in losses['ours'])}")
    print(f"TRL  {' '.join(f'{loss:.3f}' for loss in losses['TRL'])}")
    apart = _apart(losses["ours"], same)
    begun, among = _apart(losses["ours"][: options.trial], same), 0.0
    if apart:
        print(f"of the same rows (TRL {rowwise}): apart by {statistics.mean(apart):.2%} on average, {max(apart):.2%} at most")
        others = {name: one["losses"] for name, (_, one) in tried.items() if "packing" not in name and name != rowwise}
        between = [difference for other in others.values() for difference in _apart(other, same)]
        if between:
            among = statistics.mean(between)
            print(f"in the first {len(begun)} updates: ours by {statistics.mean(begun):.2%}, TRL's other settings by {among:.2%}")
    ratios = {clock: [pair["ours"][clock] / pair["TRL"][clock] for pair in pairs] for clock in ("wall", "cpu")}
    middle = {clock: statistics.median(found) for clock, found in ratios.items()}
    bounds = {clock: [round(bound, 3) for bound in interval(found)] for clock, found in ratios.items()}
    for clock in ("wall", "cpu"):
        low, high, found = *bounds[clock], ratios[clock]
        print(f"ratio by {clock} time: {middle[clock]:.2f} (95 % {low:.2f}-{high:.2f}; {min(found):.2f}-{max(found):.2f})")
    speed = {side: {c: statistics.median(pair[side][c] for pair in pairs) for c in ("wall", "cpu")} for side in ("ours", "TRL")}
    print(
        json.dumps(
            {
                "benchmark": "finetuning",
                "ours": round(speed["ours"]["wall"], 1),
                "peer": round(speed["TRL"]["wall"], 1),
                "ratio": round(middle["wall"], 3),
                "interval": bounds["wall"],
                "ratio_cpu": round(middle["cpu"], 3),
                "interval_cpu": bounds["cpu"],
                "unit": "useful tokens a second",
                "n": len(pairs),
                "model": options.model,
                "layers": options.layers,
                "training": summary["training"],
                "dtype": summary["dtype"],
                "method": options.method,
                "updates": len(summary["lengths"]),
                "peer_is": f"TRL {next(iter(tried.values()))[1]['trl']}, {best}",
                "share_of_floor_cpu": round(speed["ours"]["cpu"] / floor["cpu"], 3),
                "losses_apart": round(statistics.mean(apart), 5) if apart else None,
                "losses_apart_at_first": round(statistics.mean(begun), 5) if begun else None,
                "peer_settings_apart_at_first": round(among, 5) if among else None,
            }
        )
    )


if __name__ == "__main__":
    main()
