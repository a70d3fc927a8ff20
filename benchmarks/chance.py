"""Unrelated text must not score: rationales of other questions, read by each benchmark's parser, against chance.

    python -m benchmarks.chance --data DIR [--per-task N] [--draws 10000] [--seed 1] [--tasks NAME ...]

DIR is a folder of mirrored data sets with ``rationales/TASK.TEACHER.jsonl``. Every test question (at most N of a task, and of
each subset of BBH) is given a rationale of another question of its task, or of other tasks where it has none. The table shows how
often an answer is read, how often it is right, what chance is (see ``cirf.evaluation.chance``), p before and after Holm's
correction over all rows, and what a loose rule (the right letter or number anywhere) scores on the same text. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from cirf.evaluation.chance import DRAWS, Text, find
from cirf.recipe.schema import Problems
from cirf.records import Problem
from cirf.statistics import mean
from cirf.store.jsonl import read_rows
from cirf.tasks import get
from cirf.tasks.loading.load import load_problems

NINE = ("gsm8k", "svamp", "multiarith", "coin_flip", "commonsense_qa", "math500", "bbh", "strategyqa", "scienceqa")


def first(problems: list[Problem], most: int | None) -> list[Problem]:
    """At most so many of each subset that has answers of its own kind, or of the task."""
    kept: dict[str, int] = {}
    chosen = []
    for problem in problems:
        part = problem.subset or "" if problem.task == "bbh" else ""
        kept[part] = kept.get(part, 0) + 1
        if most is None or kept[part] <= most:
            chosen.append(problem)
    return chosen


def main() -> None:
    """Print the table and the line of JSON."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    given.add_argument("--data", required=True, type=Path, help="folder of mirrored data sets")
    given.add_argument(
        "--per-task", type=int, default=None, metavar="N", help="most questions of a task or subset (default: all)"
    )
    given.add_argument("--draws", type=int, default=DRAWS, help="deals of the permutation test")
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--tasks", nargs="+", default=list(NINE), choices=NINE, metavar="NAME")
    asked = given.parse_args()
    tasks, texts = {}, {}
    for name in NINE:
        section = Problems.model_validate({"tasks": [{"task": name}], "data": str(asked.data), "validation": 0})
        loaded = load_problems(section, asked.seed)
        if name in asked.tasks:
            tasks[name] = (get(name), first(loaded.test[name], asked.per_task))
        found = [Text(each.question, each.rationale) for each in (*loaded.train, *loaded.test[name]) if each.rationale]
        for path in sorted((asked.data / "rationales").glob(f"{name}.*.jsonl")):
            found += [Text(row["question"], row["rationale"]) for row in read_rows(path)]
        texts[name] = found
    findings = find(tasks, texts, asked.seed, asked.draws)
    print(f"{'task':45} {'n':>5} {'read':>7} {'right':>7} {'chance':>7} {'p':>7} {'Holm':>7}  {'':8} {'loose':>6}")
    for row in findings:
        label = f"  {row.subset}" if row.subset else row.task
        verdict = "within" if row.within_chance else "OUTSIDE"
        shares = f"{row.parsed:7.1%} {row.accuracy:7.2%} {row.chance:7.2%} {row.p:7.4f} {row.adjusted:7.4f}"
        print(f"{label:45} {row.n:5} {shares}  {verdict:8} {row.loose:6.1%}")
    whole = [row for row in findings if row.subset is None]
    ours, loose = mean([row.accuracy for row in whole]), mean([row.loose for row in whole])
    summary = {
        "benchmark": "chance",
        "ours": round(ours, 4),
        "peer": round(loose, 4),
        "ratio": round(loose / ours, 2) if ours else None,
        "unit": "mean accuracy of unrelated text; the peer is the loose rule",
        "n": sum(row.n for row in whole),
        "tests": len(findings),
        "smallest_adjusted_p": round(min(row.adjusted for row in findings), 4),
        "outside": [row.subset or row.task for row in findings if not row.within_chance],
        "within_chance": all(row.within_chance for row in findings),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
