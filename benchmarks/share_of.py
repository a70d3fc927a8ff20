"""What share of one method's accuracy others have in the mean of benchmarks, with 95 % intervals (questions drawn anew).

    python -m benchmarks.share_of RUN [RUN] --methods cirf_full cirf_subjects --of sft_cot --tasks gsm8k svamp [--of-run RUN]

RUN: a run, or its archive; of several, such as those of several seeds, a question counts once, by the mean of its trainings, if
every run asked it. ``--of-run``: the archive of the other method, of whose questions those count that both were asked. Questions
are drawn in pairs, so what is hard for both methods is so in every draw.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.archives import answers

from cirf.analysis.accuracy import by_question
from cirf.errors import CirfError
from cirf.statistics import mean


def over(runs: Sequence[Path], method: str, task: str) -> dict[str, float]:
    """How often each question that all runs asked was answered rightly, the mean of the runs."""
    several = [by_question(answers(run, method, task)) for run in runs]
    return {item: mean([one[item] for one in several]) for item in several[0] if all(item in one for one in several)}


def share(
    runs: Sequence[Path], method: str, others: Sequence[Path], of: str, tasks: Sequence[str], draws: int, seed: int
) -> tuple[float, float, float, int]:
    """The share, the ends of its interval, and of how many questions it is."""
    random, summary, drawn, count = np.random.default_rng(seed), np.zeros(2), np.zeros((2, draws)), 0
    for task in tasks:
        ours, theirs = over(runs, method, task), over(others, of, task)
        both = sorted(ours.keys() & theirs.keys())
        if not both or (runs == others and ours.keys() != theirs.keys()):
            raise CirfError(f"{task}: {method} and {of} answered different questions")
        pairs = np.array([(ours[item], theirs[item]) for item in both]).T
        summary += pairs.mean(axis=1)
        kinds, often = np.unique(pairs, axis=1, return_counts=True)  # drawing questions anew is drawing how many of each kind
        drawn += kinds @ random.multinomial(len(both), often / len(both), draws).T / len(both)
        count += len(both)
    low, high = np.quantile(drawn[0] / drawn[1], (0.025, 0.975))
    return float(summary[0] / summary[1]), float(low), float(high), count


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--methods", nargs="+", required=True)
    parser.add_argument("--of", default="sft_cot")
    parser.add_argument("--of-run", nargs="+", type=Path, default=None)
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    given = (asked.of_run or asked.runs, asked.of, asked.tasks, asked.draws, asked.seed)
    found = {name: share(asked.runs, name, *given) for name in asked.methods}
    for name, (value, low, high, count) in found.items():
        print(f"{name}: {value:.3f} ({low:.2f} to {high:.2f}) of {asked.of}, n = {count}")
    print(json.dumps({name: dict(zip(("share", "low", "high", "n"), row, strict=True)) for name, row in found.items()}))


if __name__ == "__main__":
    main()
