"""Accuracy on test questions that share no 13 consecutive words with a question that was trained on.

    python -m docs.research.near RUN --methods cirf_full sft_cot --tasks svamp multiarith [--verdicts ARCHIVE]

RUN is a run, not an archive, since questions are needed. Only training and held-out questions with a rationale in ``segments``
count as trained on. These are fewer than the training split, for which the report gives the overlap. ``--verdicts`` names where
the methods were evaluated, if not in RUN; it must have been trained on the same rationales.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from docs.research.over_runs import over

from cirf.errors import CirfError
from cirf.export.archive import find
from cirf.records import Problem
from cirf.statistics import mean, wilson
from cirf.store.jsonl import read_rows
from cirf.store.run_folder import RunFolder
from cirf.tasks.loading.leaks import near


def learned_from(run: Path) -> list[Problem]:
    """The training and held-out questions with a rationale in a run."""
    used = {row["problem"] for row in read_rows(run / "segments" / "segments.jsonl")}
    split = [row for part in ("train", "validation") for row in read_rows(run / "problems" / f"{part}.jsonl")]
    return [Problem.from_dict(row) for row in split if row["id"] in used]


def rationales(folder: Path) -> str:
    """The hash of the segmented rationales of a run or its archive. ``CirfError`` if it has none."""
    found = find(folder)
    return found.segments_hash or "" if found else RunFolder(folder).content("segments", ("segments.jsonl",))


def clear(run: Path, task: str, learned: Sequence[Problem]) -> set[str]:
    """The ids of test questions that are not near a learned one. ``CirfError`` if there are none."""
    asked = [Problem.from_dict(row) for row in read_rows(run / "problems" / "test" / f"{task}.jsonl")]
    kept = {problem.id for problem in asked} - {pair.test for pair in near(learned, asked)}
    if not kept:
        raise CirfError(f"{task}: every test question is near one that was learned from")
    return kept


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--methods", nargs="+", required=True)
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--verdicts", type=Path, default=None)
    asked = parser.parse_args(arguments)
    if asked.verdicts is not None and rationales(asked.verdicts) != rationales(asked.run):
        raise CirfError(f"{asked.verdicts} learned from other rationales than {asked.run}; take the run that it is of")
    learned = learned_from(asked.run)
    kept = {task: clear(asked.run, task, learned) for task in asked.tasks}
    print(", ".join(f"{task} {len(items)}" for task, items in kept.items()), "questions are not near")
    document = {}
    for method in asked.methods:
        by_task = {task: over([asked.verdicts or asked.run], method, task) for task in asked.tasks}
        for task, shares in by_task.items():
            if not kept[task] <= shares.keys():
                raise CirfError(f"{task}: {method} was asked other questions than those of {asked.run}")
        right = [shares[item] for task, shares in by_task.items() for item in kept[task]]
        low, high = wilson(sum(right), len(right))
        summary = {"n": len(right), "accuracy": mean(right), "low": low, "high": high}
        summary["mean"] = mean([mean([shares[item] for item in kept[task]]) for task, shares in by_task.items()])
        document[method] = summary
        print(
            f"{method}: {summary['accuracy']:.1%} ({low:.1%} to {high:.1%}, n = {len(right)}), "
            f"mean of tasks {summary['mean']:.1%}"
        )
    print(json.dumps(document))


if __name__ == "__main__":
    main()
