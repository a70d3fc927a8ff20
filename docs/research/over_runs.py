"""Compare methods over runs, such as those of several seeds, question by question.

    python -m docs.research.over_runs difference RUN RUN --methods cirf_subjects cirf_full --tasks gsm8k svamp [--against-run RUN]
    python -m docs.research.over_runs share RUN [RUN] --methods cirf_full --of sft_cot --tasks gsm8k svamp [--against-run RUN]

RUN is a run or its archive. A question that every run was asked counts once, by its mean over the runs. Both intervals are 95 %.

``difference``: the first method less the second, paired by question. The interval covers the sampling of questions, not that of
trainings. Without ``--against-run`` another line gives the difference of each run. Their spread alone gives the interval of the
mean over many trainings (Student's t); a single further training may fall far outside it.

``share``: the accuracy of the methods divided by that of ``--of``, both averaged over the benchmarks. The interval is a paired
bootstrap over questions.

``--against-run`` names the runs of the second method or of ``--of``, such as a baseline with one seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from cirf.analysis.accuracy import pooled
from cirf.errors import CirfError
from cirf.evaluation.harness import by_question
from cirf.export.archive import ArchivedRun, find
from cirf.statistics import Comparison, compare, describe_difference, mean
from cirf.store.jsonl import read_rows

FIELDS = ("id", "correct", "tokens", "truncated", "unparsed")


@cache
def archived(run: Path) -> ArchivedRun:
    """The archived run that ``ARCHIVE`` or ``ARCHIVE/RUN`` names, cached. ``CirfError`` if there is none."""
    found = find(run)
    if found is None:
        raise CirfError(f"{run}: no archive")
    return found


@cache
def answers(run: Path, method: str, task: str) -> list[dict[str, Any]]:
    """The rows of one method on one task, with those of ``FIELDS`` that they have, cached.

    ``run`` is a run or its archive. ``CirfError`` if it has no such evaluation.
    """
    if (run / "evaluation").is_dir():
        rows = read_rows(run / "evaluation" / method / f"{task}.jsonl")
    elif task not in (tables := archived(run).answers(method)):
        raise CirfError(f"{run}: {method} was not evaluated on {task}")
    else:
        rows = list(tables[task])
    return [{key: row[key] for key in FIELDS if key in row} for row in rows]


def training(run: Path, method: str) -> dict[str, Any]:
    """An archive's training of a method, as its report has it (`cirf.report.data.measures`)."""
    found: dict[str, Any] = archived(run).data["training"][method]
    return found


@cache
def _rightly(run: Path, method: str, task: str) -> dict[str, float]:
    """How often a run answered each question correctly, cached."""
    return by_question(answers(run, method, task))


def over(runs: Sequence[Path], method: str, task: str) -> dict[str, float]:
    """Accuracy on each question that all runs asked: the mean over the runs, 0 to 1."""
    several = [_rightly(run, method, task) for run in runs]
    return {item: mean([one[item] for one in several]) for item in several[0] if all(item in one for one in several)}


def difference(first: Mapping[str, float], second: Mapping[str, float]) -> Comparison:
    """The first less the second, on common questions. ``CirfError`` if there are none."""
    both = first.keys() & second.keys()
    if not both:
        raise CirfError("the two methods answered no question in common")
    return compare({item: first[item] for item in both}, {item: second[item] for item in both})


def by_training(runs: Sequence[Path], methods: Sequence[str], tasks: Sequence[str]) -> list[float]:
    """The first method less the second in each run, on the questions that both were asked there."""

    def solved(run: Path, method: str) -> dict[str, float]:
        return pooled({task: over([run], method, task) for task in tasks})

    first, second = methods
    return [difference(solved(run, first), solved(run, second)).difference for run in runs]


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean of at least two values, and its 95 % interval by Student's t: mean, low, high."""
    middle = statistics.fmean(values)
    reach = float(student.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return middle, middle - reach, middle + reach


def share(
    runs: Sequence[Path], method: str, others: Sequence[Path], of: str, tasks: Sequence[str], draws: int, seed: int
) -> tuple[float, float, float, int]:
    """The share, the ends of its 95 % interval, and the number of questions."""
    random, summary, drawn, count = np.random.default_rng(seed), np.zeros(2), np.zeros((2, draws)), 0
    for task in tasks:
        ours, theirs = over(runs, method, task), over(others, of, task)
        both = sorted(ours.keys() & theirs.keys())
        if not both or (runs == others and ours.keys() != theirs.keys()):
            raise CirfError(f"{task}: {method} and {of} answered different questions")
        pairs = np.array([(ours[item], theirs[item]) for item in both]).T
        summary += pairs.mean(axis=1)
        kinds, often = np.unique(
            pairs, axis=1, return_counts=True
        )  # a bootstrap sample of questions is a draw of how many there are of each kind
        drawn += kinds @ random.multinomial(len(both), often / len(both), draws).T / len(both)
        count += len(both)
    low, high = np.quantile(drawn[0] / drawn[1], (0.025, 0.975))
    return float(summary[0] / summary[1]), float(low), float(high), count


def _difference(asked: argparse.Namespace) -> dict[str, Any]:
    """Print the difference on each task and on all, and by run where the runs have both methods."""
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
    document: dict[str, Any] = {name: row.to_dict() for name, row in rows.items()}
    if asked.against_run is None and len(asked.runs) > 1:  # with --against-run the runs need not be paired
        apart = by_training(asked.runs, asked.methods, asked.tasks)
        summary = spread(apart)
        middle, low, high = (f"{100 * value:+.1f}" for value in summary)
        print(f"by run: {', '.join(f'{100 * one:+.1f}' for one in apart)}; {middle} ({low} to {high}) by their spread alone")
        document["by_run"] = {"differences": apart, **dict(zip(("mean", "low", "high"), summary, strict=True))}
    return document


def _share(asked: argparse.Namespace) -> dict[str, Any]:
    """Print the share of each method."""
    given = (asked.against_run or asked.runs, asked.of, asked.tasks, asked.draws, asked.seed)
    found = {name: share(asked.runs, name, *given) for name in asked.methods}
    for name, (value, low, high, count) in found.items():
        print(f"{name}: {value:.3f} ({low:.2f} to {high:.2f}) of {asked.of}, n = {count}")
    return {name: dict(zip(("share", "low", "high", "n"), row, strict=True)) for name, row in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line a task or method, and a last line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, work in (("difference", _difference), ("share", _share)):
        command = commands.add_parser(name)
        command.set_defaults(work=work)
        command.add_argument("runs", nargs="+", type=Path)
        command.add_argument("--tasks", nargs="+", required=True)
        command.add_argument("--against-run", nargs="+", type=Path, default=None)
        if name == "difference":
            command.add_argument("--methods", nargs=2, required=True, metavar=("FIRST", "SECOND"))
        else:
            command.add_argument("--methods", nargs="+", required=True)
            command.add_argument("--of", default="sft_cot")
            command.add_argument("--draws", type=int, default=10_000)
            command.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    print(json.dumps(asked.work(asked)))


if __name__ == "__main__":
    main()
