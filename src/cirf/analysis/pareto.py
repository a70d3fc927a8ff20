"""Accuracy against latency, in and out of domain, with the Pareto front; and the task-wise table.

A method is on the front if no other is at least as accurate and at least as cheap, and better in one of the two. It is a front
of point estimates: where the intervals beside them overlap, it says little.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cirf.analysis.accuracy import TASK, of_tasks, shared_by_all, shares
from cirf.analysis.analysis import Analysis, Found, Lacking
from cirf.analysis.drawing import canvas, limits, ticks
from cirf.analysis.groups import distinct, file_name, model_names, put, settings, short, told_apart
from cirf.analysis.marks import SOFT, Mark, add, marked
from cirf.analysis.placing import CROWD, names_below, place_names
from cirf.analysis.points import COSTS, DOMAINS, Point, alike, costed, left_out, tell, without_answers
from cirf.analysis.published import published
from cirf.analysis.source import Run, Source
from cirf.analysis.style import style
from cirf.analysis.table import Column, Table
from cirf.evaluation.statistics import mean

LONGEST = 32
"""Characters at which a name is cut in the picture; its description and the table have all names whole."""

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
    Column("accuracy_sd", "Accuracy’s ± in the paper", "share"),
    Column("n", "Questions", "count"),
    Column("seconds", "Time an answer", "seconds"),
    Column("seconds_sd", "Time’s ± in the paper", "seconds"),
    Column("tokens", "Tokens an answer", "number"),
    Column("truncated", "Cut off", "share"),
    Column("unparsed", "Not read", "share"),
)
_SHOWN = {column.key: column for column in _TASKS}


def make(source: Source) -> Found:
    """Points, fronts and the table of every run, one picture a backbone and domain."""
    points: list[Point] = []
    tasks: list[dict[str, Any]] = []
    runs = distinct(source.runs)
    for run in runs:
        points += [point for domain in DOMAINS for point in domain_points(run, domain)]
        tasks += _task_rows(run)
    if not points:
        raise Lacking("no method was evaluated yet; bring the run to its stage `evaluation`")
    names = model_names(runs)
    pictures: dict[str, str] = {}
    notes = ["Intervals are of 95 %: of means by the bootstrap over questions within their task, of a task Wilson's."]
    for (backbone, domain), group in _grouped(points).items():
        title = f"{names[backbone]}, {DOMAINS[domain]}"
        equal, others = alike(group)
        mark_fronts(equal)
        _name(equal)
        if others:
            notes.append(f"{title}: {left_out(others, 'of front and pictures')}")
        for cost in ("seconds", "tokens"):
            known, unknown = costed(equal, cost)
            if len(known) > 1:
                put(pictures, file_name(f"{names[backbone]}-{domain}-{cost}"), picture(known, title, cost))
                notes += [f"{title}: {unknown}"] if unknown else []
    if source.paper:
        tasks += [_theirs(row, source) for row in published("main")]
    wide = _wide(tasks)
    plain = [without_answers(point) for point in points]
    front = Table("pareto", "Accuracy against cost; a mean of tasks weighs each task alike.", _FRONT, plain)
    columns = _TASKS if source.paper else tuple(column for column in _TASKS if not column.key.endswith("_sd"))
    table = Table("tasks", "Accuracy and time by task.", columns, tasks)
    return Found((front, wide, table), pictures, notes)


def _name(points: Sequence[Point]) -> None:
    """Give points of several runs a name for the picture: the method's title, and what sets the run apart from most."""
    kinds = list(dict.fromkeys(point["kind"] for point in points))
    runs = distinct(point["_run"] for point in points)
    told = told_apart([settings(run) for run in runs], _word)
    labels = {run.folder: label for run, label in zip(runs, told, strict=True) if label != "base"}
    titles = [(style(point["kind"], kinds).title, labels.get(point["_run"].folder)) for point in points]
    names = [", ".join(filter(None, parts)) for parts in titles]
    often = Counter(names)
    for point, name in zip(points, names, strict=True):
        point["_name"] = name if often[name] == 1 else point["method"]


def _word(key: str, value: str) -> str:
    return str(json.loads(value)) if key == "codebook.representation" else short(key, value)


def on_front(points: Sequence[tuple[float, float | None]]) -> list[bool | None]:
    """Which of (accuracy, cost) no other beats: as good and as cheap, and better in one; ``None`` where no cost is known."""

    def beaten(place: int) -> bool:
        accuracy, cost = points[place]
        assert cost is not None
        return any(
            other[1] is not None and other[0] >= accuracy and other[1] <= cost and (other[0] > accuracy or other[1] < cost)
            for other in points
        )

    return [None if cost is None else not beaten(place) for place, (_, cost) in enumerate(points)]


def mark_fronts(points: Sequence[Point]) -> None:
    """Say of each point that answered what the others did whether it is on their front, by time and by tokens."""
    for cost in ("seconds", "tokens"):
        for point, there in zip(points, on_front([(row["accuracy"], row[cost]) for row in points]), strict=True):
            point[f"front_{cost}"] = there


def domain_points(run: Run, domain: str) -> list[Point]:
    """A run's methods over the tasks of a domain that all of them answered."""
    shared = shared_by_all(run, domain == "in")
    return [_point(run, name, shared, domain) for name in run.methods] if shared else []


def _point(run: Run, method: str, tasks: Sequence[str], domain: str) -> Point:
    told = [run.methods[method]["tasks"][task] for task in tasks]
    answered = shares(run, method, tasks)
    accuracy, low, high = of_tasks(answered)
    seconds = [row.get("latency_mean_s") for row in told]
    return {
        "backbone": str(run.key("backbone.model")),
        "domain": domain,
        "method": method if not run.settings else f"{method} ({run.name})",
        "kind": method,
        "accuracy": accuracy,
        "accuracy_low": low,
        "accuracy_high": high,
        "seconds": None if None in seconds else mean(seconds),
        "tokens": mean([row["tokens"] for row in told]),
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
            "accuracy": told["accuracy"],
            "accuracy_low": told["interval"][0],
            "accuracy_high": told["interval"][1],
            "n": told["n"],
            "seconds": told.get("latency_mean_s"),
            "tokens": told["tokens"],
            "truncated": told["truncated"],
            "unparsed": told["unparsed"],
        }
        for method, row in run.methods.items()
        for task, told in row["tasks"].items()
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
        told = {f"{TASK}{task}": _SHOWN["accuracy"].show(row) for task, row in by_task.items()}
        lines.append({**head, "metric": "accuracy", **told})
        if any(row.get("seconds") is not None for row in by_task.values()):
            told = {f"{TASK}{task}": _SHOWN["seconds"].show(row) for task, row in by_task.items()}
            lines.append({**head, "metric": "time", **told})
    columns = (*_TASKS[:3], Column("metric", "Metric"), *(Column(f"{TASK}{task}", task) for task in tasks))
    return Table("main", "Accuracy with its 95 % interval, and time an answer, by task.", columns, lines)


def _theirs(row: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """A row of the paper's main table as one of ours."""
    task = row["task"]
    known = any(task in run.trained_on for run in source.runs)
    return {
        **{key: row[key] for key in ("source", "method", "task", "seconds", "seconds_sd")},
        "backbone": row["model"],
        "domain": "in" if known or task in ("coin_flip", "commonsense_qa", "gsm8k", "multiarith", "svamp") else "out",
        "accuracy": row["accuracy"] / 100,
        "accuracy_sd": row["accuracy_sd"] / 100,
    }


def _grouped(points: Sequence[Point]) -> dict[tuple[str, str], list[Point]]:
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        groups.setdefault((point["backbone"], point["domain"]), []).append(point)
    return groups


def picture(points: Sequence[Point], title: str, cost: str, beside: Sequence[Point] = ()) -> str:
    """Points with their intervals, the front as a line: up and to the left is better.

    ``beside``: points of pictures that stand next to it, whose looks and axis across it shares.
    """
    names = list(dict.fromkeys(point["kind"] for point in (*beside, *points)))
    xs = [point[cost] for point in points]
    span = xs + [point[cost] for point in beside if point[cost]]
    with canvas(4.9, 3.7, f"{'beside-' if beside else ''}{file_name(title)}-{cost}") as (figure, out):
        axes = figure.add_subplot()
        axes.set_title(shorten(title, 2 * LONGEST), loc="left", fontsize=10, color=SOFT)
        logarithmic = max(span) > 4 * min(span)
        if logarithmic:
            axes.set_xscale("log")
        limits(axes, span, logarithmic)
        axes.set_ylim(-3, 103)
        front = sorted((row[cost], 100 * row["accuracy"]) for row in points if row[f"front_{cost}"])
        line = axes.plot([x for x, _ in front], [y for _, y in front], color="#9aa1ad", linewidth=1.4, zorder=1)
        placed, handles, marks = [], [], list[Mark]()
        for row, x in zip(points, xs, strict=True):
            look, y = style(row["kind"], names), 100 * row["accuracy"]
            low, high = 100 * row["accuracy_low"], 100 * row["accuracy_high"]
            axes.plot([x, x], [low, high], color=look.colour, linewidth=2, alpha=0.55, solid_capstyle="round")
            name = row.get("_name") or (row["method"] if row["method"] != row["kind"] else look.title)
            reach = add(marks, tell(name, row, cost), row["kind"])
            drawn: dict[str, Any] = {"markersize": 9, "markeredgecolor": "white", "zorder": 3, "gid": reach}
            handles += axes.plot([x], [y], **look.point, **drawn, label=shorten(name, LONGEST))
            placed.append((x, y, low, high, name, look.colour))
        ticks(axes, "latency" if cost == "seconds" else "tokens", logarithmic)
        axes.set_xlabel(COSTS[cost])
        axes.set_ylabel("accuracy, mean of tasks, %")
        named = [len(points) <= CROWD or row[f"front_{cost}"] for row in points]
        names_below(figure, [handle for handle, beside_it in zip(handles, named, strict=True) if not beside_it])
        place_names(figure, axes, _together(placed, named), line)
        out.append(f"Accuracy against cost, {title}. {'; '.join(mark.told for mark in marks)}")
    return marked(out[0], marks)


def _together(
    points: Sequence[tuple[float, float, float, float, str, str]], named: Sequence[bool]
) -> list[tuple[float, float, float, float, str, str]]:
    """All points, in their order, their names cut, or empty where they are not to be named; of named ones that lie on one another
    the first has a name of several lines."""
    made: list[tuple[float, float, float, float, str, str]] = []
    first: dict[tuple[float, float], int] = {}
    for (x, y, low, high, title, colour), beside_it in zip(points, named, strict=True):
        name, known = shorten(title, LONGEST) if beside_it else "", first.get((x, y))
        if name and known is not None:
            above = made[known]
            made[known], name = (*above[:4], f"{above[4]}\n{name}", above[5]), ""
        elif name:
            first[(x, y)] = len(made)
        made.append((x, y, low, high, name, colour))
    return made


def shorten(text: str, longest: int) -> str:
    """A text of at most ``longest`` characters, its end cut where it has more."""
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


ANALYSIS = Analysis(
    "pareto",
    "Accuracy against cost",
    "Accuracy against seconds and tokens an answer, in and out of domain. The grey line joins methods that none beats in both.",
    "evaluations; for times the stage `latency`",
    make,
    "Figure main tradeoff, Table main-results",
)
