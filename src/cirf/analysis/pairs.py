"""Every method against every other on the same questions: paired differences, corrected for multiple comparisons.

In the picture methods are sorted by accuracy, and bars join runs of neighbours without a significant difference between any
two, as in the diagrams of critical differences (Demšar 2006), here by the paired test of each pair, Holm-corrected over all.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import fsum
from textwrap import wrap
from typing import Any

from cirf.analysis.accuracy import Shares, of_task, pooled, shared_by_all, shares
from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.groups import distinct, distinct_labels, file_name, model_name, put
from cirf.analysis.pareto import DOMAINS, left_out, on_same_questions
from cirf.analysis.source import Run, Source
from cirf.analysis.tradeoff import shorten
from cirf.pictures.canvas import INK, SOFT, Mark, add, canvas, marked
from cirf.pictures.style import style
from cirf.pictures.table import Column, Table, with_ends
from cirf.statistics import Comparison, compare, corrected

_BAR = "#565d6d"
_WIDE = 64  # letters of a title on one line
_LONGEST = 32  # letters of a name
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
    """A row per pair of a run's methods in each domain and for each task, and a picture per run and domain."""
    runs = distinct(source.runs)
    names = {str(run.folder.resolve()): run.name for run in runs}
    labels = distinct_labels([{"run": folder} for folder in names], lambda _, folder: names[folder])  # in pictures and files
    rows: list[dict[str, Any]] = []
    by_task: list[dict[str, Any]] = []
    pictures: dict[str, str] = {}
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
            everything = {name: pooled(answers) for name, answers in found.items()}
            tests = compare_all(everything)
            repeated |= any(test.test != "mcnemar" for test in tests.values())
            rows += _rows({**head, "domain": domain}, tests)
            answered = list(next(iter(found.values())))
            for task in answered if len(answered) > 1 else ():
                own = compare_all({name: answers[task] for name, answers in found.items()})
                by_task += _rows({**head, "domain": domain, "task": task}, own)
            name = file_name(f"{label or 'pairs'}-{domain}")
            put(pictures, name, _picture(name, title, everything, tests, run.titles))
    if not rows:
        raise MissingInputError("it needs a run with at least two methods that were evaluated on the same questions")
    if repeated:
        notes.append('For questions asked several times, "right by one alone" means more often right.')
    notes.append("p: of each pair alone, and by Holm's rule for all pairs of its run and domain, or of its run and task.")
    pairs = Table("pairs", "Pairs of methods on the same questions; each question counts the same.", (*_HEAD, *_PAIR), rows)
    pairs_tasks = Table("pairs_tasks", "The same by task.", (*_HEAD, Column("task", "Task"), *_PAIR), by_task)
    return AnalysisResult((pairs, pairs_tasks) if by_task else (pairs,), pictures, notes)


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


def together(names: Sequence[str], apart: Callable[[str, str], bool]) -> list[tuple[int, int]]:
    """The longest runs of two or more neighbours without a significant difference between any two: first and last places."""
    found: list[tuple[int, int]] = []
    for start in range(len(names)):
        end = start
        while end + 1 < len(names) and not any(apart(names[index], names[end + 1]) for index in range(start, end + 1)):
            end += 1
        if end > start and (not found or end > found[-1][1]):
            found.append((start, end))
    return found


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


def _picture(name: str, title: str, found: Mapping[str, Mapping[str, float]], tests: Tests, titles: Mapping[str, str]) -> str:
    """Methods by accuracy with Wilson's intervals, and bars that join those without a significant difference. ``titles``: display
    names of all methods, so that each looks the same in every picture of its run."""
    order = list(dict.fromkeys(method for pair in tests for method in pair))
    bars = together(order, lambda first, second: tests[first, second].significant)
    heading = wrap(f"{title}; bars join neighbours whose differences are not significant", _WIDE)
    with canvas(5.6, 1.05 + 0.17 * len(heading) + 0.26 * len(order), name) as (figure, out):
        axes = figure.add_subplot()
        figure.suptitle("\n".join(heading), x=0.01, ha="left", fontsize=10, color=SOFT)
        marks: list[Mark] = []
        for index, method in enumerate(order):
            share, low, high = of_task(found[method])
            look = style(method, list(titles))
            axes.plot([100 * low, 100 * high], [index, index], color=look.colour, linewidth=2, alpha=0.55, solid_capstyle="round")
            text = f"{titles[method]}: {with_ends(share, low, high, 'share')}"
            axes.plot([100 * share], [index], **look.point, markersize=7.5, gid=add(marks, text, method))
        left, right = axes.get_xlim()
        axes.set_xticks([tick for tick in axes.get_xticks() if left <= tick <= min(right, 100)])  # none below the bars
        step = 0.02 * (right - left)
        lanes = lanes_of(bars)
        for (start, end), lane in zip(bars, lanes, strict=True):
            x = right + (lane + 1) * step
            axes.plot([x, x], [start - 0.3, end + 0.3], color=_BAR, linewidth=3, solid_capstyle="round")
        axes.set_xlim(left, right + (max(lanes, default=-1) + 2) * step)
        axes.set_yticks(range(len(order)), [shorten(titles[method], _LONGEST) for method in order])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.grid(axis="y", visible=False)
        axes.set_ylim(len(order) - 0.4, -0.6)
        axes.set_xlabel("right of all questions, %")
        joined = "; ".join(f"{titles[order[start]]} to {titles[order[end]]}" for start, end in bars) or "none"
        out.append(
            f"Methods by accuracy, {title}. {'; '.join(mark.description for mark in marks)}. "
            f"Neighbours without significant differences: {joined}."
        )
    return marked(out[0], marks)


def lanes_of(bars: Sequence[tuple[int, int]]) -> list[int]:
    """Lanes for bars, so that no two in one lane touch."""
    ends: list[int] = []
    lanes = []
    for start, end in bars:
        lane = next((index for index, last in enumerate(ends) if last < start), len(ends))
        ends[lane : lane + 1] = [end]
        lanes.append(lane)
    return lanes


ANALYSIS = Analysis(
    "pairs",
    "Methods in pairs",
    "Which methods differ significantly on the same questions: every pair, with intervals and corrected p-values.",
    "evaluations of at least two methods on the same questions",
    make,
)
