"""Every method against every other on the same questions: paired differences, corrected for multiple comparisons."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import fsum
from typing import Any

from cirf.analysis.accuracy import Shares, pooled, shared_by_all, shares
from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.groups import distinct, distinct_labels, model_name
from cirf.analysis.pareto import DOMAINS, left_out, on_same_questions
from cirf.analysis.source import Run, Source
from cirf.pictures.table import Column, Table
from cirf.statistics import Comparison, compare, corrected

_TIED = 9  # decimals to which sums of shares are compared: those of several runs, such as thirds, are not exact
_HEAD = (Column("source", "Source"), Column("backbone", "Backbone"), Column("domain", "Domain"))
_PAIR = (
    Column("first", "The more accurate"),
    Column("second", "The other"),
    Column("questions", "Questions", "count"),
    Column("difference", "Above it, points", "points", bounds=True),
    Column("wins", "Right by the first alone", "count"),
    Column("losses", "Right by the other alone", "count"),
    Column("p", "p", "number"),
    Column("p_holm", "p, Holm", "number"),
    Column("reading", "Reading"),
)
Tests = dict[tuple[str, str], Comparison]  # comparisons by the names of two methods, the first at least as accurate as the second


def make(source: Source) -> AnalysisResult:
    """A row per pair of a run's methods in each domain and for each task."""
    runs = distinct(source.runs)
    names = {str(run.folder.resolve()): run.name for run in runs}
    labels = distinct_labels([{"run": folder} for folder in names], lambda _, folder: names[folder])
    rows: list[dict[str, Any]] = []
    by_task: list[dict[str, Any]] = []
    notes: list[str] = []
    repeated = False
    for run, label in zip(runs, labels, strict=True):
        head = {"source": run.source, "backbone": model_name(run)}
        for domain, domain_title in DOMAINS.items():
            tasks = shared_by_all(run, domain == "in")
            if not tasks:
                continue
            title = ", ".join(filter(None, (label, domain_title)))
            found, others = _answered(run, tasks)
            notes += [f"{title}: {left_out(others)}"] if others else []
            if len(found) < 2:
                continue
            tests = compare_all({name: pooled(answers) for name, answers in found.items()})
            repeated |= any(test.test != "mcnemar" for test in tests.values())
            rows += _rows({**head, "domain": domain}, tests)
            answered = list(next(iter(found.values())))
            for task in answered if len(answered) > 1 else ():
                own = compare_all({name: answers[task] for name, answers in found.items()})
                by_task += _rows({**head, "domain": domain, "task": task}, own)
    if not rows:
        raise MissingInputError("it needs a run with at least two methods that were evaluated on the same questions")
    if repeated:
        notes.append('For questions asked several times, "right by one alone" means more often right.')
    notes.append("p: of each pair alone, and by Holm's rule for all pairs of its run and domain, or of its run and task.")
    pairs = Table("pairs", "Pairs of methods on the same questions; each question counts the same.", (*_HEAD, *_PAIR), rows)
    pairs_tasks = Table("pairs_tasks", "The same by task.", (*_HEAD, Column("task", "Task"), *_PAIR), by_task)
    return AnalysisResult((pairs, pairs_tasks) if by_task else (pairs,), {}, notes)


def _answered(run: Run, tasks: Sequence[str]) -> tuple[dict[str, Shares], list[dict[str, Any]]]:
    """Each method's answers to the tasks, for those that answered the same questions as most; and the names of the others. Tasks
    and methods without rows do not count among the most."""
    points = []
    for name in run.methods:
        answers = {task: found for task, found in shares(run, name, tasks).items() if found}
        questions = frozenset((task, item) for task, found in answers.items() for item in found)
        points.append({"method": name, "_answers": answers, "_asked": questions})
    there = [point for point in points if point["_asked"]]
    if not there:
        return {}, []
    found = {point["method"]: point["_answers"] for point in on_same_questions(there)[0]}
    return found, [point for point in points if point["method"] not in found]


def compare_all(found: Mapping[str, Mapping[str, float]]) -> Tests:
    """Each two methods compared, from how often each question was solved; p-values corrected for all of the pairs."""
    accuracy = {name: round(fsum(answers.values()), _TIED) for name, answers in found.items()}
    order = sorted(found, key=lambda name: -accuracy[name])
    return corrected({(first, second): compare(found[first], found[second]) for first, second in combinations(order, 2)})


def _rows(head: Mapping[str, Any], tests: Tests) -> list[dict[str, Any]]:
    return [
        {
            **head,
            "first": first,
            "second": second,
            "questions": test.n,
            "difference": max(0.0, test.difference),  # of two that are equal it may be below by rounding
            "difference_low": test.interval.low,
            "difference_high": test.interval.high,
            **{key: getattr(test, key) for key in ("wins", "losses", "p", "p_holm")},
            "reading": "above" if test.significant else "not significant",
        }
        for (first, second), test in tests.items()
    ]


ANALYSIS = Analysis(
    "pairs",
    "Methods in pairs",
    "Which methods differ significantly on the same questions: every pair, with intervals and corrected p-values.",
    "evaluations of at least two methods on the same questions",
    make,
)
