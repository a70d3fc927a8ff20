"""Accuracies from rows: by question, the mean of tasks, and paired differences of two runs."""

import math
from collections.abc import Iterable, Mapping, Sequence

from cirf.analysis.source import Run
from cirf.evaluation.harness import by_question
from cirf.statistics import compare, mean, mean_of_shares, wilson

Shares = Mapping[str, Mapping[str, float]]  # how often each question was solved, 0 to 1, by task and id
TASK = "task:"  # the prefix of a task's name in the key of a column, so that no task takes the place of another column
FUNCTIONAL = ("cirf_full", "cirf_zero", "cirf_fast", "cirf_faster", "cirf_lean", "cirf_bare", "cirf_self")
"""Methods that write functional tokens, the plain one first."""


def kind(run: Run, name: str) -> str:
    """The method of a name: a variant's, or the name itself."""
    found = run.recipe.get("variants", {}).get(name, {}).get("method")
    return str(found or name)


def functional(runs: Sequence[Run]) -> str | None:
    return next((name for name in FUNCTIONAL if all(name in run.methods for run in runs)), None)


def shares(run: Run, method: str, tasks: Iterable[str]) -> dict[str, dict[str, float]]:
    answers = run.answers(method)
    return {task: by_question(answers[task]) for task in tasks}


def shared_tasks(runs: Sequence[Run], method: str, trained: bool | None = None) -> list[str]:
    """Tasks that all runs answered with the method: all, or those that every run trained on, or those that none did."""
    found = [task for task in runs[0].methods[method]["tasks"] if all(task in run.methods[method]["tasks"] for run in runs)]
    if trained is None:
        return found
    return [task for task in found if all((task in run.trained_on) == trained for run in runs)]


def shared_by_all(run: Run, trained: bool) -> list[str]:
    """Tasks that all methods of a run answered, in domain (``trained``) or out of it."""
    every = dict.fromkeys(task for row in run.methods.values() for task in row["tasks"])
    return [
        task
        for task in every
        if (task in run.trained_on) == trained and all(task in row["tasks"] for row in run.methods.values())
    ]


def of_task(values: Mapping[str, float]) -> tuple[float, float, float]:
    share = mean(list(values.values()))
    return share, *wilson(min(share * len(values), len(values)), len(values))


def of_tasks(found: Shares) -> tuple[float, float, float]:
    """The unweighted mean of the tasks, with the bootstrap interval over questions."""
    low, high = mean_of_shares([list(task.values()) for task in found.values()])
    return mean([mean(list(task.values())) for task in found.values()]), low, high


def same_questions(several: Sequence[Shares]) -> bool:
    first = {task: found.keys() for task, found in several[0].items()}
    return all({task: found.keys() for task, found in other.items()} == first for other in several)


def pooled(found: Shares) -> dict[str, float]:
    return {f"{task}/{name}": value for task, values in found.items() for name, value in values.items()}


def difference(first: Shares, second: Shares) -> tuple[float, float, float]:
    """First minus second, mean of the tasks, with a paired 95 % interval. Each task's interval is Agresti and Min's (`compare`);
    they are combined like variances of independent parts (Zou and Donner 2008), so that the interval keeps its width if a task's
    answers are all equal. ``ValueError`` where the questions are not the same."""
    found = [compare(first[task], second[task]) for task in first]
    middle = mean([one.difference for one in found])
    down = math.sqrt(math.fsum((one.difference - one.interval.low) ** 2 for one in found)) / len(found)
    up = math.sqrt(math.fsum((one.interval.high - one.difference) ** 2 for one in found)) / len(found)
    return middle, max(-1.0, middle - down), min(1.0, middle + up)
