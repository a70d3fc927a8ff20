"""Would the codes come out alike again: agreement between seeds and between sizes, and what tasks share of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from cirf.analysis.accuracy import TASK
from cirf.analysis.analysis import Analysis, Found, Lacking
from cirf.analysis.dots import Mark, draw_dots
from cirf.analysis.groups import Group, grouped
from cirf.analysis.heat import draw_matrix
from cirf.analysis.jackknife import interval, left_out
from cirf.analysis.source import Run, Source
from cirf.analysis.table import Column, Table

_PAIRS = (
    Column("settings", "Settings"),
    Column("between", "Between"),
    Column("first", "First"),
    Column("second", "Second"),
    Column("segments", "Segments of both", "count"),
    Column("ami", "AMI of the codes", "number", bounds=True),
)
_SHARES = (
    Column("code", "Code", "number"),
    Column("label", "Label"),
)
_DISTANCES = (
    Column("first", "Task"),
    Column("second", "Task"),
    Column("distance", "Jensen-Shannon distance", "number", bounds=True),
    Column("chance", "where tasks are dealt at random", "number"),
    Column("first_steps", "Steps of the first", "count"),
    Column("second_steps", "of the second", "count"),
)
_DEALS = 20
Place = tuple[str, int]
"""A rationale: its question and sample."""


def make(source: Source) -> Found:
    """Tables of agreement where runs differ in seed or K alone, and of the tasks' overlap in the first run with codes."""
    coded = [run for run in source.runs if run.training_codes]
    pairs = _pairs(grouped(coded, ("seed",)), "seed", "seeds")
    pairs += _pairs(grouped(coded, ("codebook.size",)), "codebook.size", "sizes")
    tables = []
    pictures: dict[str, str] = {}
    notes: list[str] = []
    if pairs:
        tables.append(Table("agreement", "Agreement of the codes of the same segments.", _PAIRS, pairs))
        for between in dict.fromkeys(row["between"] for row in pairs):
            pictures[between] = _agreement([row for row in pairs if row["between"] == between], between)
        notes.append(
            "AMI is 1 where one run's codes follow from the other's, whatever their numbers, and 0 where they agree no more than"
            " chance; segments count that both runs trained on, cut alike."
        )
    run = next((run for run in source.runs if len(_tasks(run)) > 1), None)
    if run is not None:
        told, drawn, said = _overlap(run)
        tables, notes = [*tables, *told], [*notes, *said]
        pictures |= drawn
    if not tables:
        raise Lacking("it needs codes of training segments of two tasks, or runs that differ in seed or codebook.size alone")
    return Found(tables, pictures, notes)


def _pairs(groups: Sequence[Group], key: str, between: str) -> list[dict[str, Any]]:
    rows = []
    for group in groups:
        runs = sorted(group.runs, key=lambda run: int(run.key(key)))
        for first, second in combinations(runs, 2):
            units = common(first, second)
            if not units:
                continue
            value = _agreed(units)[0]
            low, high = interval(value, [one[0] for one in left_out(units, _agreed)])
            row = {"settings": group.label, "between": between, "first": first.key(key), "second": second.key(key)}
            rows.append(row | {"segments": sum(len(a) for a, _ in units), "ami": value, "ami_low": low, "ami_high": high})
    return rows


def common(first: Run, second: Run) -> list[tuple[list[int], list[int]]]:
    """Codes of both runs of each rationale that both trained on and are known to have cut alike, in the order of their names."""
    shared = sorted(first.training_codes.keys() & second.training_codes.keys())
    alike = (place for place in shared if first.cut_of(place) is not None and first.cut_of(place) == second.cut_of(place))
    units = ((first.training_codes[place], second.training_codes[place]) for place in alike)
    return [(ours, theirs) for ours, theirs in units if len(ours) == len(theirs)]


def _agreed(units: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
    from sklearn.metrics import adjusted_mutual_info_score

    ours = [code for one, _ in units for code in one]
    theirs = [code for _, one in units for code in one]
    return [float(adjusted_mutual_info_score(ours, theirs))]


def _agreement(rows: Sequence[Mapping[str, Any]], between: str) -> str:
    word = "seed" if between == "seeds" else "K"
    lines = [
        (
            f"{word} {row['first']} and {row['second']}{', ' if row['settings'] else ''}{row['settings']}",
            [Mark(row["ami"], row["ami_low"], row["ami_high"])],
        )
        for row in rows
    ]
    return draw_dots(f"stability-{between}", f"between {between}", "AMI of the codes of the same segments", lines, "number")


def _tasks(run: Run) -> dict[str, list[list[int]]]:
    """Codes of the training rationales by task, a question after the other."""
    found: dict[str, list[list[int]]] = {}
    for (problem, _), codes in sorted(run.training_codes.items()):
        found.setdefault(run.training_tasks[problem], []).append(codes)
    return {task: found[task] for task in run.data["data"]["train"] if task in found}


def _overlap(run: Run) -> tuple[list[Table], dict[str, str], list[str]]:
    """Shares of each task's steps by code, the distances of the tasks, their matrix as a picture."""
    tasks, size = _tasks(run), int(run.key("codebook.size"))
    use = {task: distribution(rationales, size) for task, rationales in tasks.items()}
    labels = {row["code"]: row["label"] for row in (run.data["codebook"] or {}).get("codes", ())}
    shares = [
        {"code": code, "label": labels.get(code, ""), **{f"{TASK}{task}": found[code] for task, found in use.items()}}
        for code in range(size)
    ]
    shares.sort(key=lambda row: (-max(row[f"{TASK}{task}"] for task in tasks), row["code"]))
    distances = [_distance(tasks, first, second, size) for first, second in combinations(tasks, 2)]
    name = f" of {run.name}" if run.of_sweep else ""
    columns = (*_SHARES, *(Column(f"{TASK}{task}", task, "share") for task in tasks))
    tables = [
        Table("overlap", f"How far apart the tasks' use of the codes is{name}.", _DISTANCES, distances),
        Table("use_by_task", f"Share of each task's training steps by code{name}.", columns, shares),
    ]
    matrix = {(row["first"], row["second"]): row["distance"] for row in distances}
    title = f"Jensen-Shannon distance of tasks{f', {run.name}' if run.of_sweep else ''}"
    notes = [
        "The distance is the root of the Jensen-Shannon divergence in bits: 0 where two tasks use the codes alike, 1 where they"
        " share none. Few steps alone set tasks apart; how far is what the column tells in which the same rationales are dealt to"
        f" the two tasks at random, the mean of {_DEALS} deals."
    ]
    return tables, {"overlap": draw_matrix("stability-overlap", title, list(tasks), matrix)}, notes


def distribution(rationales: Sequence[Sequence[int]], size: int) -> list[float]:
    """Share of the steps by code."""
    counts = [0] * size
    for codes in rationales:
        for code in codes:
            counts[code] += 1
    total = sum(counts)
    return [count / total for count in counts]


def _distance(tasks: Mapping[str, Sequence[Sequence[int]]], first: str, second: str, size: int) -> dict[str, Any]:
    import random

    units = [(0, codes) for codes in tasks[first]] + [(1, codes) for codes in tasks[second]]

    def between(kept: Sequence[tuple[int, Sequence[int]]]) -> list[float]:
        ours, theirs = ([codes for side, codes in kept if side == wanted] for wanted in (0, 1))
        return [jensen_shannon(distribution(ours, size), distribution(theirs, size))] if ours and theirs else [1.0]

    value = between(units)[0]
    low, high = interval(value, [one[0] for one in left_out(units, between)])
    draw = random.Random(0)
    sides, dealt = [side for side, _ in units], []
    for _ in range(_DEALS):
        draw.shuffle(sides)
        dealt += between([(side, codes) for side, (_, codes) in zip(sides, units, strict=True)])
    return {
        "first": first,
        "second": second,
        "distance": value,
        "distance_low": low,
        "distance_high": high,
        "chance": sum(dealt) / len(dealt),
        "first_steps": sum(map(len, tasks[first])),
        "second_steps": sum(map(len, tasks[second])),
    }


def jensen_shannon(first: Sequence[float], second: Sequence[float]) -> float:
    """The distance of two distributions, 0 to 1 (Endres and Schindelin 2003, with logarithms to base 2)."""
    from scipy.spatial.distance import jensenshannon

    return float(min(1.0, max(0.0, jensenshannon(first, second, base=2))))


ANALYSIS = Analysis(
    "stability",
    "Stability of the codes",
    "Agreement of codes between seeds and sizes, and how far tasks share them.",
    "codes of training segments of several tasks; for seeds and sizes a sweep over `seed` or `codebook.size`",
    make,
)
