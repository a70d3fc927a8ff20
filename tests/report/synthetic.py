"""A run's folder as a finished run leaves it, made up in a moment: real files, no model."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from cirf.evaluation.harness import scores_from_rows
from cirf.recipe.load import dump
from cirf.recipe.schema import Backbone, Evaluate, Finetune, Problems, Recipe, TaskEntry
from cirf.recipe.schema import Codebook as CodebookSection
from cirf.records import Problem
from cirf.store.files import to_json, write_atomic, write_rows

SIZE = 24
WIDTH = 8
METHODS = {
    "cirf_full": (True, 0.8, 15, 0.31),
    "direct_sft": (True, 0.35, 3, 0.09),
    "cot": (False, 0.78, 130, 2.4),
    "sft_cot": (True, 0.84, 60, 1.15),
}


def recipe() -> Recipe:
    """The recipe of the made-up run."""
    return Recipe(
        name="made-up",
        notes="A made-up run.\nIts numbers mean nothing.",
        methods=tuple(METHODS),
        backbone=Backbone(model="bundled:smollm2-135m-instruct"),
        problems=Problems(tasks=(TaskEntry(task="coin_flip"), TaskEntry(task="svamp"))),
        codebook=CodebookSection(size=SIZE),
        finetune=Finetune(learning_rate=1e-3, warmup_steps=5),
        evaluate=Evaluate(),
    )


def _sum(draw: random.Random) -> tuple[str, list[str], list[tuple[int, str]], str]:
    bags, each, more = draw.randint(2, 9), draw.randint(2, 12), draw.randint(3, 30)
    question = f"Ann has {bags} bags with {each} apples each and buys {more} more. How many apples has she got?"
    steps = [
        f"There are {bags} bags × {each} apples = {bags * each} apples in bags.",
        f"In total she has {bags * each} + {more} = {bags * each + more}.",
    ]
    codes = [(draw.choice((3, 3, 4)), str(bags * each)), (draw.choice((7, 7, 8)), str(bags * each + more))]
    return question, steps, codes, str(bags * each + more)


def _coin(draw: random.Random) -> tuple[str, list[str], list[tuple[int, str]], str]:
    names = draw.sample(["Kim", "Lee", "Sam", "Alex", "Jo", "Max", "Bo"], draw.randint(2, 4))
    heads, steps, codes, summary = True, ["The coin starts heads up."], [(0, "heads")], []
    for name in names:
        flips = draw.random() < 0.5
        heads ^= flips
        side = "heads" if heads else "tails"
        summary.append(f"{name} {'flips' if flips else 'does not flip'} the coin.")
        steps.append(
            f"{name} flips the coin: it is {side} up now." if flips else f"{name} does not flip the coin: it stays {side} up."
        )
        codes.append((draw.choice((11, 12)) if flips else 15, side))
    return f"A coin is heads up. {' '.join(summary)} Is it still heads up?", steps, codes, "yes" if heads else "no"


def build(root: Path, train: int = 60, test: int = 40, seed: int = 3) -> Path:
    """Fill ``root`` with a run of ``train`` training and ``test`` test problems a task."""
    draw = random.Random(seed)
    write_atomic(root / "recipe.yaml", dump(recipe()))
    makers = {"coin_flip": _coin, "svamp": _sum}
    made: dict[str, list[Any]] = {part: [] for part in ("train", "validation", "steps", "codes", "traces", "rationales")}
    tests: dict[str, list[tuple[Problem, list[str], list[tuple[int, str]]]]] = {}
    for task, make in makers.items():
        for index in range(train + test):
            question, steps, codes, answer = make(draw)
            where = "test" if index >= train else "train" if index % 10 else "validation"
            worked = "\n".join(steps) if task == "svamp" else None
            problem = Problem(f"{task}-{where}-{index}", task, question, answer, None, worked)
            if where == "test":
                tests.setdefault(task, []).append((problem, steps, codes))
                continue
            made[where].append(problem)
            key = {"problem": problem.id, "sample": 0}
            made["rationales"].append(key | {"text": "\n".join(steps), "source": "made", "agrees": True})
            made["steps"].append(key | {"rule": "line", "segments": steps})
            made["codes"].append(key | {"codes": [code for code, _ in codes]})
            made["traces"].append(key | {"codes": [c for c, _ in codes], "results": [r for _, r in codes], "answer": answer})
    _data(root, made, tests)
    _codebook(root, made)
    for name in METHODS:
        _model(root, name)
        _evaluation(root, name, tests, draw)
    _latency(root, list(tests))
    return root


def _data(root: Path, made: dict[str, list[Any]], tests: dict[str, Any]) -> None:
    for part in ("train", "validation"):
        write_rows(root / "problems" / f"{part}.jsonl", made[part])
    for task, rows in tests.items():
        write_rows(root / "problems" / "test" / f"{task}.jsonl", [problem for problem, _, _ in rows])
    unused = Problem("svamp-train-99", "svamp", "a question that was not drawn", "1")  # a recipe with `rows` uses a part
    write_rows(root / "problems" / "train.jsonl", [*made["train"], unused])
    leaks = [
        {"problem": f"y{i}", "sample": None, "stage": "problems", "reason": "question is also in the test"} for i in range(2)
    ]
    write_rows(root / "problems" / "dropped.jsonl", leaks)
    summary: dict[str, Any] = {
        "train": len(made["train"]),
        "leaks": {"svamp": 2},
        "warnings": ["svamp: 50 test rows were requested, 40 exist"],
    }
    words = "the coin lee does not flip the coin is it still heads up"
    pair = {"test": "coin_flip-test-60", "train": "coin_flip-train-3", "share": 0.3, "words": words}
    row = {"test": 40, "exact": 2, "short": 0, "near": 0, "largest_share": 0.0, "examples": []}
    near = {"svamp": row, "coin_flip": row | {"near": 37, "largest_share": 0.3, "examples": [pair]}}
    summary["overlap"] = {"words": 13, "near": "report", "tasks": near}
    write_atomic(root / "problems" / "problems.json", to_json(summary))
    write_rows(root / "rationales" / "rationales.jsonl", made["rationales"])
    dropped = [{"problem": f"x{i}", "sample": 0, "stage": "rationales", "reason": "another answer"} for i in range(3)]
    write_rows(root / "rationales" / "dropped.jsonl", dropped)
    write_atomic(root / "rationales" / "report.json", to_json({"kept": len(made["rationales"]), "sources": {"made": 108}}))
    write_rows(root / "segments" / "segments.jsonl", made["steps"])
    write_rows(
        root / "segments" / "dropped.jsonl", [{"problem": "x9", "sample": 0, "stage": "segments", "reason": "no step found"}]
    )
    write_atomic(root / "segments" / "report.json", to_json({"rules": {"line": 108}, "rows": 250, "kept": 248}))
    results = [{key: row[key] for key in ("problem", "sample", "results")} for row in made["traces"]]
    write_rows(root / "results" / "results.jsonl", results)
    write_atomic(root / "results" / "report.json", to_json({"empty": 0}))
    write_rows(root / "traces" / "traces.jsonl", made["traces"])


def _codebook(root: Path, made: dict[str, list[Any]]) -> None:
    folder = root / f"codebook-{SIZE}"
    write_rows(folder / "codes.jsonl", made["codes"])
    vectors = np.random.default_rng(SIZE).normal(size=(SIZE, WIDTH)).astype(np.float32)
    save_file({"codes": vectors}, folder / "codebook.safetensors")
    phases = {
        "autoencoder": [{"total": 1 / (i + 1), "reconstruction": 1 / (i + 1)} for i in range(30)],
        "vq": [
            {"total": 0.9 / (i + 2), "reconstruction": 0.5 / (i + 2), "codebook": 0.2, "commitment": 0.2 / (i + 1)}
            for i in range(10)
        ],
    }
    report = {
        "losses": phases,
        "usage": [0] * SIZE,
        "used": 7,
        "perplexity": 5.2,
        "column_imbalance": 0.013,
        "disagreement": 0.21,
    }
    write_atomic(folder / "codebook.json", to_json({"version": 1, "size": SIZE, "width": WIDTH, "report": report}))


def _model(root: Path, name: str) -> None:
    trained, share, *_ = METHODS[name]
    if not trained:
        return
    losses = [
        {"update": i, "loss": (1.2 - share / 2) * math.exp(-i / 40) + 0.1 + 0.03 * math.sin(7 * i), "learning_rate": 1e-3}
        for i in range(1, 121)
    ]
    moved = (
        [{"matrix": "input", "cosine": 0.42, "geometry": 0.7, "norm_before": 0.01, "norm_after": 0.6}]
        if name == "cirf_full"
        else []
    )
    history = {"method": name, "adaptation": "full", "rows": 108, "updates": 120, "target_tokens": 1404, "losses": losses}
    history |= {
        "validation": [{"update": 60, "loss": 0.5 - share / 4}, {"update": 120, "loss": 0.36 - share / 4}],
        "functional_rows": moved,
    }
    write_atomic(root / "models" / name / "history.json", to_json(history))
    write_atomic(root / "models" / name / "timings.json", to_json({"seconds": 214.7, "tokens_per_second": 421.3}))


def _evaluation(root: Path, name: str, tests: dict[str, Any], draw: random.Random) -> None:
    trained, share, tokens, _ = METHODS[name]
    tables: dict[str, list[dict[str, Any]]] = {}
    for task, rows in tests.items():
        table = []
        for problem, steps, codes in rows:
            right = draw.random() < share
            answer = problem.answer if right else {"yes": "no", "no": "yes"}.get(problem.answer) or str(int(problem.answer) + 1)
            if name == "cirf_full":
                output = f"<cirf>{''.join(f'<cirf_{code:03d}>{result}' for code, result in codes)}</cirf>{answer}"
            else:
                output = "\n".join([*steps, f"#### {answer}"]) if "cot" in name else answer
            cut = name == "cot" and draw.random() < 0.05
            table.append(
                {
                    "id": problem.id,
                    "run": 0,
                    "prompt": problem.question,
                    "output": output[:60] if cut else output,
                    "trace": "",
                    "answer": answer,
                    "parsed": None if cut else answer,
                    "gold": problem.answer,
                    "correct": right and not cut,
                    "tokens": max(2, round(draw.gauss(tokens, tokens / 6))),
                    "truncated": cut,
                    "unparsed": cut,
                }
            )
        tables[task] = table
        write_rows(root / "evaluation" / name / f"{task}.jsonl", table)
    scores = {"method": name, "trained": trained, **scores_from_rows(tables).to_dict()}
    write_atomic(root / "evaluation" / name / "scores.json", to_json(scores))


FACTS = {"engine": "transformers 5.23.0, torch 2.13.0", "device": "cpu (a CPU)", "threads": 2, "dtype": "bfloat16"}
LOADS = [{"together": True, "models": 4, "weights_bytes": 271_000_000, "free_bytes": 8 * 10**9}]


def _latency(root: Path, tasks: list[str]) -> None:
    methods = {}
    for name, (_, _, tokens, seconds) in METHODS.items():
        summary = {"n": 20, "mean_s": seconds, "mean_s_interval": [seconds * 0.9, seconds * 1.2], "p50_s": seconds * 0.95}
        summary |= {"p95_s": seconds * 1.4, "tokens": tokens, "first_token_s": 0.05, "decode_s": seconds - 0.05}
        summary["decode_tokens_per_s"] = (tokens - 1) / (seconds - 0.05)
        memory = {"weights_bytes": 271_000_000, "growth_bytes": None, "peak_bytes": None}
        methods[name] = {"overall": summary | {"n": 40}, "tasks": dict.fromkeys(tasks, summary), **memory}
    timings = {**FACTS, "batch_size": 1, "warmup": 2, "loads": LOADS, "methods": methods, "rows": [], "seconds": 99.0}
    write_atomic(root / "latency" / "timings.json", json.dumps(timings))
