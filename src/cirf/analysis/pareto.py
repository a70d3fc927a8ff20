"""Accuracy against latency, in and out of domain, with the Pareto front; and the task-wise table.

A method is on the front if no other is at least as accurate and at least as cheap, and better in one of the two. It is a front
of point estimates: where their intervals overlap, it says little.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cirf.analysis.accuracy import TASK, of_tasks, shared_by_all, shares
from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.groups import distinct, distinct_labels, file_name, model_names, put, settings, short
from cirf.analysis.names import BASELINE, family
from cirf.analysis.source import Run, Source, published
from cirf.analysis.tradeoff import HALF, LONGEST, MethodPoint, PictureSize, draw, on_front, shorten
from cirf.pictures.table import Column, Table, shown, with_ends
from cirf.statistics import mean

Point = dict[str, Any]  # a method's numbers on some tasks; keys that begin with `_` are for computing and in no table
DOMAINS = {"in": "in domain", "out": "out of domain"}
COSTS = {"seconds": "seconds an answer, one question at a time", "tokens": "generated tokens an answer"}
"""The axis labels of costs."""
UNITS = {"seconds": "s", "tokens": "tokens"}

_NAMED = 4  # points that a sentence names, of those left out
MEASURED = (
    Column("accuracy", "Accuracy, mean of tasks", "share", bounds=True),
    Column("seconds", "Time an answer", "seconds"),
    Column("tokens", "Tokens an answer", "number"),
)
"""Columns of a point's accuracy and cost."""


def on_same_questions(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """The points of the same questions (``_asked``), those that most points answered, and the others."""
    most = Counter(point["_asked"] for point in points).most_common(1)[0][0]
    return [one for one in points if one["_asked"] == most], [one for one in points if one["_asked"] != most]


def left_out(others: Sequence[Point], of: str = "") -> str:
    """A sentence on points that answered other questions than most; ``of``: what they are left out of, if not of all."""
    named = ", ".join(point["method"] for point in others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f"left out{of and f' {of}'}, since they answered other questions than most: {named}{more}."


def with_costs(points: Sequence[Point], cost: str) -> tuple[list[Point], str]:
    """The points whose cost is known, and a sentence on how many others there are, empty if there is none."""
    known = [point for point in points if point[cost]]
    missing = len(points) - len(known)
    word = {"seconds": "time", "tokens": "count of tokens"}[cost]
    note = f"{missing} of {len(points)} points have no {word} and are not in the picture of it." if missing else ""
    return known, note


def describe_point(name: str, point: Point, cost: str) -> str:
    """A point in words: its name, accuracy with the interval, and the cost."""
    accuracy = with_ends(point["accuracy"], point["accuracy_low"], point["accuracy_high"], "share")
    value = f"{point[cost]:.3g}" if point[cost] < 1000 else f"{point[cost]:,.0f}"
    return f"{name}: {accuracy} at {value} {UNITS[cost]}"


def without_answers(point: Point) -> Point:
    return {key: value for key, value in point.items() if not key.startswith("_")}


_FRONT = (
    Column("backbone", "Backbone"),
    Column("domain", "Domain"),
    Column("method", "Method"),
    Column("accuracy", "Accuracy, mean of tasks", "share", bounds=True),
    Column("questions", "Questions", "count"),
    Column("seconds", "Time an answer", "seconds"),
    Column("tokens", "Tokens an answer", "number"),
    Column("front_seconds", "On the front, time"),
    Column("front_tokens", "On the front, tokens"),
)
_TASKS = (
    Column("source", "Source"),
    Column("backbone", "Backbone"),
    Column("method", "Method"),
    Column("task", "Task"),
    Column("domain", "Domain"),
    Column("accuracy", "Accuracy", "share", bounds=True),
    Column("accuracy_sd", "± over runs", "share"),
    Column("n", "Questions", "count"),
    Column("seconds", "Time an answer", "seconds"),
    Column("seconds_sd", "Time’s ± over runs", "seconds"),
    Column("tokens", "Tokens an answer", "number"),
    Column("truncated", "Truncated", "share"),
    Column("unparsed", "Unparsed", "share"),
)
_SHOWN = {column.key: column for column in _TASKS}


def make(source: Source) -> AnalysisResult:
    """Points, fronts and the table of every run, one picture a backbone and domain."""
    points: list[Point] = []
    tasks: list[dict[str, Any]] = []
    runs = distinct(source.runs)
    for run in runs:
        points += [point for domain in DOMAINS for point in domain_points(run, domain)]
        tasks += _task_rows(run)
    if not points:
        raise MissingInputError("no method was evaluated yet; make the stage `evaluation` first")
    names = model_names(runs)
    pictures: dict[str, str] = {}
    notes = ["Intervals are 95 %: of means by the bootstrap over questions within their task, of a task Wilson's."]
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        groups.setdefault((point["backbone"], point["domain"]), []).append(point)
    for (backbone, domain), group in groups.items():
        title = f"{names[backbone]}, {DOMAINS[domain]}"
        equal, others = on_same_questions(group)
        mark_fronts(equal)
        _name(equal)
        if others:
            notes.append(f"{title}: {left_out(others, 'of front and pictures')}")
        for cost in ("seconds", "tokens"):
            known, unknown = with_costs(equal, cost)
            if len(known) > 1:
                put(pictures, file_name(f"{names[backbone]}-{domain}-{cost}"), picture(known, title, cost))
                notes += [f"{title}: {unknown}"] if unknown else []
    if source.paper:
        tasks += [_theirs(row, source) for row in published("main")]
    wide = _wide(tasks)
    plain = [without_answers(point) for point in points]
    front = Table("pareto", "Accuracy against cost; a mean of tasks weighs each task alike.", _FRONT, plain)
    unsaid = {key for key in ("accuracy_sd", "seconds_sd") if all(row[key] is None for row in tasks)}
    columns = tuple(column for column in _TASKS if column.key not in unsaid)
    table = Table("tasks", "Accuracy and time by task.", columns, tasks)
    return AnalysisResult((front, wide, table), pictures, notes)


def _name(points: Sequence[Point]) -> None:
    """Give points of several runs a name for the picture: the method's title, and what distinguishes the run from most."""
    runs = distinct(point["_run"] for point in points)

    def word(key: str, value: str) -> str:
        return str(json.loads(value)) if key == "codebook.representation" else short(key, value)

    summary = distinct_labels([settings(run) for run in runs], word)
    labels = {run.folder: label for run, label in zip(runs, summary, strict=True) if label != "base"}
    titles = [(point["_run"].titles[point["kind"]], labels.get(point["_run"].folder)) for point in points]
    names = [", ".join(filter(None, parts)) for parts in titles]
    often = Counter(names)
    for point, name in zip(points, names, strict=True):
        point["_name"] = name if often[name] == 1 else point["method"]


def mark_fronts(points: Sequence[Point]) -> None:
    """Mark whether each point that answered the same questions is on the front, by time and by tokens."""
    for cost in ("seconds", "tokens"):
        for point, there in zip(points, on_front([(row["accuracy"], row[cost]) for row in points]), strict=True):
            point[f"front_{cost}"] = there


def domain_points(run: Run, domain: str) -> list[Point]:
    """A run's methods over the tasks of a domain that all of them answered."""
    shared = shared_by_all(run, domain == "in")
    return [point_of(run, name, shared, domain) for name in run.methods] if shared else []


def point_of(run: Run, method: str, tasks: Sequence[str], domain: str) -> Point:
    """A run's method over some tasks."""
    scores = [run.methods[method]["tasks"][task] for task in tasks]
    answered = shares(run, method, tasks)
    accuracy, low, high = of_tasks(answered)
    seconds = [row.get("latency_mean_s") for row in scores]
    return {
        "backbone": str(run.key("backbone.model")),
        "domain": domain,
        "method": method if not run.settings else f"{method} ({run.name})",
        "kind": method,
        "accuracy": accuracy,
        "accuracy_low": low,
        "accuracy_high": high,
        "seconds": None if None in seconds else mean(seconds),
        "tokens": mean([row["tokens"] for row in scores]),
        "questions": sum(map(len, answered.values())),
        "_run": run,
        "_asked": frozenset((task, name) for task, found in answered.items() for name in found),
    }


def _task_rows(run: Run) -> list[dict[str, Any]]:
    return [
        {
            "source": run.source,
            "backbone": str(run.key("backbone.model")),
            "method": method,
            "task": task,
            "domain": "in" if task in run.trained_on else "out",
            **{key: summary[key] for key in ("accuracy", "n", "tokens", "truncated", "unparsed")},
            "accuracy_low": summary["interval"][0],
            "accuracy_high": summary["interval"][1],
            "accuracy_sd": summary.get("accuracy_sd"),
            "seconds": summary.get("latency_mean_s"),
            "seconds_sd": summary.get("latency_sd_s"),
        }
        for method, row in run.methods.items()
        for task, summary in row["tasks"].items()
    ]


def _wide(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The paper's layout: a column a task, for each method a line of accuracies and, where known, one of times."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    groups: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["backbone"], row["source"], row["method"]), {})[row["task"]] = row
    lines = []
    for (backbone, source, method), by_task in groups.items():
        head = {"source": source, "backbone": backbone, "method": method}
        summary = {f"{TASK}{task}": _with_spread(row, "accuracy") for task, row in by_task.items()}
        lines.append({**head, "metric": "accuracy", **summary})
        if any(row.get("seconds") is not None for row in by_task.values()):
            summary = {f"{TASK}{task}": _with_spread(row, "seconds") for task, row in by_task.items()}
            lines.append({**head, "metric": "time", **summary})
    columns = (*_TASKS[:3], Column("metric", "Metric"), *(Column(f"{TASK}{task}", task) for task in tasks))
    caption = "Accuracy with its 95 % interval, and time an answer, by task; ±: the standard deviation over sampled runs."
    return Table("main", caption, columns, lines)


def _with_spread(row: Mapping[str, Any], key: str) -> str:
    """A value in words, with the standard deviation over the runs placed as in the paper."""
    column, sd = _SHOWN[key], row.get(f"{key}_sd")
    if sd is None:
        return column.show(row)
    text = f"{shown(row[key], column.form)} ± {100 * sd:.2f}" if key == "accuracy" else f"{row[key]:.2f} ± {sd:.2f} s"
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    return text if low is None or high is None else f"{text} ({100 * low:.1f} to {100 * high:.1f})"


def _theirs(row: Mapping[str, Any], source: Source) -> dict[str, Any]:
    task = row["task"]
    known = any(task in run.trained_on for run in source.runs)
    return {
        **{key: row[key] for key in ("source", "method", "task", "seconds", "seconds_sd")},
        "backbone": row["model"],
        "domain": "in" if known or task in ("coin_flip", "commonsense_qa", "gsm8k", "multiarith", "svamp") else "out",
        "accuracy": row["accuracy"] / 100,
        "accuracy_sd": row["accuracy_sd"] / 100,
    }


def picture(
    points: Sequence[Point],
    title: str,
    cost: str,
    row: Sequence[Point] = (),
    size: PictureSize = HALF,
    named: Sequence[str] = (),
) -> str:
    """Points with their intervals, the front as a line: up and to the left is better. ``row``: points of all pictures in the same
    row, whose cost axis it shares. ``named``: the methods to name, by their ids, in place of those on the front."""
    spots = [_spot(point, cost) for point in points]
    description = f"Accuracy against {COSTS[cost]}{title and f', {title}'}. {'; '.join(spot.description for spot in spots)}"
    name = f"{'beside-' if row else ''}{file_name(title)}-{cost}"
    labels = (COSTS[cost], "accuracy, mean of tasks, %")
    if named:
        spots = [spot._replace(title=spot.method if (at := spot.method in named) else "", named=at) for spot in spots]
    span = [point[cost] for point in row if point[cost]]
    heading = shorten(title, 2 * LONGEST)
    return draw(spots, name, labels, description, title=heading, unit=UNITS[cost], size=size, span=span)


def _spot(point: Point, cost: str) -> MethodPoint:
    run, kind = point["_run"], point["kind"]
    variants = run.recipe.get("variants", {})
    title = point.get("_name") or (point["method"] if point["method"] != kind else run.titles[kind])
    share, low, high = (100 * point[key] for key in ("accuracy", "accuracy_low", "accuracy_high"))
    of = family(kind, variants, run.methods[kind].get("functional", False))
    words, front = describe_point(title, point, cost), bool(point[f"front_{cost}"])
    return MethodPoint(kind, title, words, of, point[cost], share, low, high, front, kind == BASELINE)


ANALYSIS = Analysis(
    "pareto",
    "Accuracy against cost",
    "Accuracy against seconds and tokens an answer, in and out of domain. The grey line is the Pareto front.",
    "evaluations; for times the stage `latency`",
    make,
    "Figure main tradeoff, Table main-results",
)
