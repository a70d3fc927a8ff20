"""Accuracies of a run with their intervals, and comparisons of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cirf.errors import CirfError
from cirf.evaluation.harness import Row, compare_rows, scores_from_rows
from cirf.stats.bootstrap import mean_interval, mean_of_shares
from cirf.stats.tests import corrected, mean, spread

Data = dict[str, Any]
Tables = Mapping[str, Sequence[Row]]


def numbers(tables: Tables) -> Data:
    """A method's numbers, recomputed from its rows: over all questions, the mean of the tasks, and by task.

    Intervals of accuracies are Wilson's, those of ``mean_of_tasks`` and of the tokens are bootstrapped over the questions within
    each task (`bootstrap`); a question counts once, however often it was asked. ``accuracy_sd`` and ``mean_of_tasks_sd`` are
    standard deviations over the runs; ``None`` for one run.
    """
    scores = scores_from_rows(tables)
    tokens = {task: _of_items(rows, "tokens") for task, rows in tables.items()}
    tasks = {
        task: score.to_dict() | {"accuracy_sd": _over(score.runs)} | _tokens_interval([tokens[task]])
        for task, score in scores.tasks.items()
    }
    of_tasks = [mean(one) for one in zip(*(score.runs for score in scores.tasks.values()), strict=False)]
    return {
        **scores.overall.to_dict(),
        "accuracy_sd": _over(scores.overall.runs),
        **_tokens_interval(list(tokens.values())),
        "mean_of_tasks": scores.mean_of_tasks,
        "mean_of_tasks_sd": _over(of_tasks),
        "mean_of_tasks_interval": list(mean_of_shares([_of_items(rows, "correct") for rows in tables.values()])),
        "mean_of_tasks_truncated": mean([score.truncated for score in scores.tasks.values()]),
        "mean_of_tasks_unparsed": mean([score.unparsed for score in scores.tasks.values()]),
        "tasks": tasks,
    }


def _over(runs: Sequence[float]) -> float | None:
    return spread(runs) if len(runs) > 1 else None


def _tokens_interval(tasks: Sequence[Sequence[float]]) -> Data:
    interval = mean_interval(tasks)
    return {"tokens_interval": None if interval is None else list(interval)}


def _of_items(rows: Sequence[Row], key: str) -> list[float]:
    """A value of every question, its mean over the runs, in the order of the first rows."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["id"], []).append(row[key])
    return [mean(values) for values in found.values()]


def questions(method: str, tables: Tables) -> set[tuple[str, str]]:
    """Task and id of every question that a method answered. ``CirfError`` if its runs have different questions, or a task has no
    rows."""
    asked: set[tuple[str, str]] = set()
    for task, rows in tables.items():
        runs: dict[int, list[str]] = {}
        for row in rows:
            runs.setdefault(row["run"], []).append(row["id"])
        if not runs:
            raise CirfError(
                f"evaluation/{method}/{task}.jsonl: no rows in it; remove the folder evaluation/{method} and run again"
            )
        first = set(next(iter(runs.values())))
        for run, ids in runs.items():
            if set(ids) != first or len(ids) != len(first):
                raise CirfError(
                    f"evaluation/{method}/{task}.jsonl: run {run} answers other questions than the first, or one twice;"
                    f" remove the folder evaluation/{method} and run again"
                )
        asked |= {(task, name) for name in first}
    return asked


def comparable(rows: Mapping[str, Tables], reference: str | None) -> dict[str, bool]:
    """Whether each method answered the same questions as the reference.

    Only such methods are compared: a difference on a shared subset would be of other questions than the accuracies shown with it.
    """
    asked = {name: questions(name, tables) for name, tables in rows.items()}
    return {name: reference is not None and found == asked[reference] for name, found in asked.items()}


def comparisons(reference: str | None, rows: Mapping[str, Tables], methods: Mapping[str, Data]) -> Data:
    """The reference against every other method that answered the same questions, p-values corrected by Holm for all of them."""
    if reference is None:
        return {}
    others = [name for name in methods if name != reference and methods[name]["same_questions"]]
    found = {name: compared for name in others if (compared := compare_rows(rows[reference], rows[name])) is not None}
    ours = methods[reference]
    return {name: {**compared.to_dict(), **ratios(ours, methods[name])} for name, compared in corrected(found).items()}


def ratios(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Data:
    """How many times fewer tokens and how many times faster a method is than another, and its share of the other's accuracy;
    ``None`` each if unknown."""
    return {
        "token_ratio": _ratio(theirs["tokens"], ours["tokens"]),
        "speedup": _ratio(theirs["latency_mean_s"], ours["latency_mean_s"]),
        "accuracy_ratio": _ratio(ours["accuracy"], theirs["accuracy"]),
    }


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None
