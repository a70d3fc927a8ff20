"""How far two methods are apart over several runs, such as those of several seeds, with a paired 95 % interval.

    python -m benchmarks.over_seeds RUN RUN --methods cirf_subjects cirf_full --tasks gsm8k svamp [--against-run RUN]

RUN: a run, or its archive. A question counts once, by the mean of its trainings, if every run asked it. The interval is that of
questions: what another training would change is in it only as far as these few differ. Without ``--against-run`` one more line
has each run's own difference, and by their spread alone the interval of the mean over many trainings (Student's t; a single
further training may lie far outside it). ``--against-run``: the run, or runs, of the second method, such as a baseline of one
seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.share_of import over
from scipy.stats import t as student

from cirf.analysis.accuracy import pooled
from cirf.errors import CirfError
from cirf.statistics import Comparison, compare, describe_difference


def difference(first: Mapping[str, float], second: Mapping[str, float]) -> Comparison:
    """The first less the second, on the questions of both. ``CirfError`` where there are none."""
    both = first.keys() & second.keys()
    if not both:
        raise CirfError("the two methods answered no question in common")
    return compare({item: first[item] for item in both}, {item: second[item] for item in both})


def by_training(runs: Sequence[Path], methods: Sequence[str], tasks: Sequence[str]) -> list[float]:
    """The first method less the second, run by run, each on all questions that both were asked there."""

    def answers(run: Path, method: str) -> dict[str, float]:
        return pooled({task: over([run], method, task) for task in tasks})

    first, second = methods
    return [difference(answers(run, first), answers(run, second)).difference for run in runs]


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean of at least two values, and the ends of its 95 % interval by Student's t."""
    middle = statistics.fmean(values)
    reach = float(student.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return middle, middle - reach, middle + reach


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--methods", nargs=2, required=True, metavar=("FIRST", "SECOND"))
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--against-run", nargs="+", type=Path, default=None)
    asked = parser.parse_args(arguments)
    first, second = asked.methods
    others = asked.against_run or asked.runs
    ours = {task: over(asked.runs, first, task) for task in asked.tasks}
    theirs = {task: over(others, second, task) for task in asked.tasks}
    rows = {task: difference(ours[task], theirs[task]) for task in asked.tasks}
    rows["all"] = difference(pooled(ours), pooled(theirs))
    against = second if second != first else f"that of {', '.join(run.name for run in others)}"
    for name, row in rows.items():
        if name == "all" and len(asked.tasks) == 1:
            continue  # the row above, once more
        print(f"{name}: {describe_difference(row, first, against)}")
    document = {name: row.to_dict() for name, row in rows.items()}
    if asked.against_run is None and len(asked.runs) > 1:  # each run's two trainings, and not any two of one place
        apart = by_training(asked.runs, asked.methods, asked.tasks)
        summary = spread(apart)
        middle, low, high = (f"{100 * value:+.1f}" for value in summary)
        print(f"by run: {', '.join(f'{100 * one:+.1f}' for one in apart)}; {middle} ({low} to {high}) by their spread alone")
        document["by_run"] = {"differences": apart, **dict(zip(("mean", "low", "high"), summary, strict=True))}
    print(json.dumps(document))


if __name__ == "__main__":
    main()
