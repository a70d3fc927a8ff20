"""Runs of a sweep made up in a moment: what `Run` reads, with answers and codes as a test wants them, and no model."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.analysis.source import Run
from cirf.store.files import write_rows

RECIPE: dict[str, Any] = {
    "name": "made",
    "seed": 1,
    "methods": ["cirf_full"],
    "variants": {},
    "models": {},
    "backbone": {"model": "tiny-135m"},
    "codebook": {"size": 4, "sizes": [], "representation": "mean_centered", "initialiser": "sinkhorn"},
    "vocabulary": {"init": "codebook"},
    "compression": {"fast": 0.1, "faster": 0.2},
    "finetune": {"learning_rate": 0.001},
}
TASKS = ("sums", "coins")
OF_SWEEPS = (
    "codebook_size",
    "geometry",
    "clustering",
    "representation",
    "initialisation",
    "scaling",
    "variants",
    "scaling_law",
)
"""The analyses that compare runs."""


def run(
    folder: Path,
    shares: Mapping[str, Mapping[str, float]],
    *,
    questions: int = 40,
    out: Sequence[str] = (),
    seconds: Mapping[str, float] | None = None,
    tokens: Mapping[str, int] | None = None,
    codes: Mapping[str, Sequence[Sequence[int]]] | None = None,
    part: str = "",
    draw: int = 0,
    **settings: Any,
) -> Run:
    """A run whose methods solve these shares of each task's questions; ``out``: tasks that nothing was trained on.

    ``codes``: of each task's training rationales, one a question. ``settings``: keys with ``__`` for the dots.
    """
    recipe = copy.deepcopy(RECIPE) | {"methods": list(shares)}
    dotted = {key.replace("__", "."): value for key, value in settings.items()}
    for key, value in dotted.items():
        *path, last = key.split(".")
        place = recipe
        for name in path:
            place = place[name]
        place[last] = value
    dice = random.Random(draw)
    methods = {}
    for method, by_task in shares.items():
        summary = {}
        for task, share in by_task.items():
            length = (tokens or {}).get(method, 10)
            rows = [
                {
                    "id": f"{task}-{number}",
                    "run": 0,
                    "output": f"<cirf><cirf_{number % 3:03d}>1</cirf>1",
                    "correct": dice.random() < share,
                    "tokens": length + number % 3,
                }
                for number in range(questions)
            ]
            write_rows(folder / "evaluation" / method / f"{task}.jsonl", rows)
            row = {"accuracy": sum(one["correct"] for one in rows) / questions, "n": questions}
            row["tokens"] = sum(one["tokens"] for one in rows) / questions
            summary[task] = row | ({"latency_mean_s": seconds[method]} if seconds else {})
        methods[method] = {"tasks": summary}
    trained = [task for task in dict.fromkeys([*next(iter(shares.values()), {}), *(codes or {})]) if task not in out]
    problems, coded, steps, texts, traces = [], [], [], [], []
    for task, rationales in (codes or {}).items():
        for number, one in enumerate(rationales):
            name = f"{task}-train-{number:03d}"
            problems.append({"id": name, "task": task, "question": name, "answer": "1"})
            place = {"problem": name, "sample": 0}
            coded.append(place | {"codes": list(one)})
            segments = [f"{name} step {number}" for number in range(len(one))]
            steps.append(place | {"segments": segments})
            texts.append(place | {"text": " ".join(segments)})
            traces.append(place | {"codes": list(one), "results": [""] * len(one), "answer": "1"})
    write_rows(folder / "problems" / "train.jsonl", problems)
    write_rows(folder / f"codebook-{recipe['codebook']['size']}" / "codes.jsonl", coded)
    write_rows(folder / "segments" / "segments.jsonl", steps)
    write_rows(folder / "rationales" / "rationales.jsonl", texts)
    write_rows(folder / "traces" / "traces.jsonl", traces)
    data = {"recipe": recipe, "methods": methods, "data": {"train": dict.fromkeys(trained, 1)}, "codebook": None}
    return Run(folder, lambda: data, name=folder.name, part=part, settings=dotted)
