"""How many functional tokens are enough: accuracy by K, and how much use the least used code has after training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from cirf.analysis import few
from cirf.analysis.accuracy import Shares, difference, functional, of_task, of_tasks, same_questions, shared_tasks, shares
from cirf.analysis.analysis import Analysis, Found, Lacking
from cirf.analysis.curves import Curve, draw_sizes
from cirf.analysis.groups import Group, file_name, grouped, put
from cirf.analysis.source import Run, Source
from cirf.analysis.table import Column, Form, Table
from cirf.analysis.traces import read_codes

Row = dict[str, Any]
_MEANS = {True: "mean in domain", False: "mean out of domain"}
_SIZES = (
    Column("settings", "Settings"),
    Column("size", "K", "count"),
    Column("segments", "Training segments M", "count"),
    Column("per_code", "M / K", "number"),
    few.COLUMN,
)
_FIGURES: tuple[tuple[str, str, Form], ...] = (
    ("accuracy", "accuracy, %", "share"),
    ("delta", "points above the minimum", "points"),
)
_ACCURACY = (
    *_SIZES,
    Column("task", "Task"),
    Column("accuracy", "Accuracy", "share", bounds=True),
    Column("n", "Questions", "count"),
    Column("delta", "Above the minimum, points", "points", bounds=True),
)
_USE = (
    *_SIZES,
    Column("trained_used", "Codes in training segments", "count"),
    Column("trained_least", "Least used, training segments", "count"),
    Column("written", "Codes written in answers, all", "count"),
    Column("written_used", "Codes in answers", "count"),
    Column("written_least", "Least used, answers", "count"),
)


def make(source: Source) -> Found:
    """A table of accuracies and one of use; for each group of runs that differ in K alone two pictures."""
    groups = grouped((run for run in source.runs if functional([run])), ("codebook.size",), method=functional)
    if not groups:
        raise Lacking("it needs evaluated runs that differ in codebook.size alone, at least two; `cirf sweep` makes such")
    accuracy: list[Row] = []
    use: list[Row] = []
    pictures: dict[str, str] = {}
    notes = [few.NOTE]
    for group in groups:
        runs = sorted(group.runs, key=lambda run: int(run.key("codebook.size")))
        method = functional(runs)
        if method is None:
            notes.append(f"The runs{group} have no functional method in common and are left out.")
            continue
        told = _accuracies(runs, method, group)
        counts = [_use(run, method, group) for run in runs]
        if not told:
            notes.append(f"The runs{group} answered no task in common and are left out.")
            continue
        accuracy, use = accuracy + told, use + counts
        notes += [] if any(row["delta"] is not None for row in told) else [f"The runs{group} did not answer the same questions."]
        for name, picture in _pictures(told, counts, group).items():
            put(pictures, name, picture)
    if not accuracy:
        raise Lacking("the runs that differ in codebook.size alone have no functional method or no task in common")
    notes.append(
        "The minimum is picked among the points themselves, so that differences to it lean upwards; their intervals are paired"
        " over the same questions and do not know of the picking."
    )
    tables = (
        Table("codebook_size", "Accuracy by number of functional tokens.", _ACCURACY, accuracy),
        Table("codebook_use", "Use of the codes after training.", _USE, use),
    )
    return Found(tables, pictures, notes)


def _about(run: Run, group: Group) -> Row:
    size = int(run.key("codebook.size"))
    told: Row = {"settings": group.label, "size": size}
    if not run.training_codes:  # an archive of before these were kept
        return told
    segments = sum(len(codes) for codes in run.training_codes.values())
    return told | {"segments": segments, "per_code": segments / size, "few": few.mark(segments, size)}


def _accuracies(runs: Sequence[Run], method: str, group: Group) -> list[Row]:
    """Rows of the means, then of each task, each by K, with the difference to the least of that line."""
    lines: list[tuple[str, list[str]]] = []
    for trained, title in _MEANS.items():
        tasks = shared_tasks(runs, method, trained)
        lines += ([(title, tasks)] if len(tasks) > 1 else []) + [(task, [task]) for task in tasks]
    rows: list[Row] = []
    for title, tasks in sorted(lines, key=lambda line: len(line[1]) == 1):
        found = [shares(run, method, tasks) for run in runs]
        points = [of_tasks(one) if len(tasks) > 1 else of_task(one[tasks[0]]) for one in found]
        least = min(range(len(points)), key=lambda place: points[place][0])
        for place, (run, (value, low, high)) in enumerate(zip(runs, points, strict=True)):
            row = _about(run, group) | {"task": title, "accuracy": value, "accuracy_low": low, "accuracy_high": high}
            row["n"] = sum(map(len, found[place].values()))
            rows.append(row | _delta(found, place, least))
    return rows


def _delta(found: Sequence[Shares], place: int, least: int) -> Row:
    if not same_questions(found):
        return {"delta": None}
    if place == least:
        return {"delta": 0.0}
    delta, low, high = difference(found[place], found[least])
    return {"delta": delta, "delta_low": low, "delta_high": high}


def _use(run: Run, method: str, group: Group) -> Row:
    """How often codes stand in training segments and in what the trained model wrote to all test questions."""
    size = int(run.key("codebook.size"))
    trained = Counter(code for codes in run.training_codes.values() for code in codes)
    outputs = (row["output"] for rows in run.answers(method).values() for row in rows)
    found = (code for output in outputs for code, _ in read_codes(output))
    written = Counter(code for code in found if code is not None and code < size)
    return _about(run, group) | {
        "trained_used": len(trained) if trained else None,
        "trained_least": min(trained[code] for code in range(size)) if trained else None,
        "written": written.total(),
        "written_used": len(written),
        "written_least": min(written[code] for code in range(size)),
    }


def _pictures(rows: Sequence[Row], counts: Sequence[Row], group: Group) -> dict[str, str]:
    """Accuracy and the difference to the least by K, the paper's two figures."""
    ending = f"-{file_name(group.label)}" if group.label else ""
    pictures = {}
    for key, title, form in _FIGURES:
        curves = []
        for task in dict.fromkeys(row["task"] for row in rows):
            line = [row for row in rows if row["task"] == task and row[key] is not None]
            ends = [(row.get(f"{key}_low"), row.get(f"{key}_high")) for row in line]
            points = [(row["size"], row[key], *end, bool(row.get("few"))) for row, end in zip(line, ends, strict=True)]
            if points:
                curves.append(Curve(task, points, task in _MEANS.values()))
        bars = [(row["size"], row["trained_least"], row["written_least"]) for row in counts]
        if curves:
            pictures[f"{key}{ending}"] = draw_sizes(f"codebook-size-{key}{ending}", group.label, title, form, curves, bars)
    return pictures


ANALYSIS = Analysis(
    "codebook_size",
    "Codebook size",
    "Accuracy by the number of functional tokens K, how far it lies above the least, and the count of the least used code.",
    "a sweep over `codebook.size` with evaluations of a functional method",
    make,
    "Figure codebook size, Figure delta",
)
