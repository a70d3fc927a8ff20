"""How many functional tokens are enough: accuracy by K, and the count of the least used code after training.

Curves over the number of functional tokens, with bars below that count the least used code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cirf.analysis.accuracy import Shares, difference, functional, of_task, of_tasks, same_questions, shared_tasks, shares
from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.groups import Group, file_name, grouped, put
from cirf.analysis.source import Run, Source, read_codes
from cirf.pictures import table
from cirf.pictures.canvas import INK, SOFT, Mark, add, canvas, marked
from cirf.pictures.table import FEW, Column, Form, Table, with_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]
_MEANS = {True: "mean in domain", False: "mean out of domain"}
_SIZES = (
    Column("settings", "Settings"),
    Column("size", "K", "count"),
    Column("segments", "Training segments M", "count"),
    Column("per_code", "M / K", "number"),
    table.FEW_COLUMN,
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


def make(source: Source) -> AnalysisResult:
    """A table of accuracies and one of use; for each group of runs that differ in K alone two pictures."""
    groups = grouped((run for run in source.runs if functional([run])), ("codebook.size",), method=functional)
    if not groups:
        raise MissingInputError("it needs at least two evaluated runs that differ only in codebook.size; `cirf sweep` makes them")
    accuracy: list[Row] = []
    use: list[Row] = []
    pictures: dict[str, str] = {}
    notes = [table.FEW_NOTE]
    for group in groups:
        runs = sorted(group.runs, key=lambda run: int(run.key("codebook.size")))
        method = functional(runs)
        if method is None:
            notes.append(f"The runs{group} have no functional method in common and are left out.")
            continue
        accuracies = _accuracies(runs, method, group)
        counts = [_use(run, method, group) for run in runs]
        if not accuracies:
            notes.append(f"The runs{group} answered no task in common and are left out.")
            continue
        accuracy, use = accuracy + accuracies, use + counts
        if all(row["delta"] is None for row in accuracies):
            notes.append(f"The runs{group} did not answer the same questions.")
        for name, picture in _pictures(accuracies, counts, group).items():
            put(pictures, name, picture)
    if not accuracy:
        raise MissingInputError("the runs that differ only in codebook.size have no functional method or no task in common")
    notes.append(
        "The minimum is picked among the points themselves, so differences to it are biased upwards; their intervals are paired"
        " over the same questions and do not account for the selection."
    )
    tables = (
        Table("codebook_size", "Accuracy by number of functional tokens.", _ACCURACY, accuracy),
        Table("codebook_use", "Use of the codes after training.", _USE, use),
    )
    return AnalysisResult(tables, pictures, notes)


def _about(run: Run, group: Group) -> Row:
    size = int(run.key("codebook.size"))
    row: Row = {"settings": group.label, "size": size}
    if not run.training_codes:  # an archive keeps none
        return row
    segments = sum(len(codes) for codes in run.training_codes.values())
    return row | {"segments": segments, "per_code": segments / size, "few": table.few_mark(segments, size)}


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
    """How often codes occur in training segments and in the trained model's outputs for all test questions."""
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
    "Accuracy by the number of functional tokens K, its gain over the smallest, and the count of the least used code.",
    "a sweep over `codebook.size` with evaluations of a functional method",
    make,
    "Figure codebook size, Figure delta",
)

_COLOURS = ("#0b62b0", "#a83c00", "#2f6b2f", "#8a3d86", "#7a5c00", "#00697a", "#b0204f", "#5b3a8c", "#6b4b3a")
_MARKERS = "osD^vPXph"
_BARS = (("#8a92a1", "", "training segments"), ("#c9ced8", "////", "answers"))
_FEW = f"M / K under {FEW}"
_GROUND = 0.5  # where the bars' logarithmic axis begins, so that 1 is visible


class Curve(NamedTuple):
    """A line: its name; of each point K, value, ends of its interval, whether it is marked; whether it is a mean."""

    name: str
    points: Sequence[tuple[int, float, float | None, float | None, bool]]
    thick: bool


def draw_sizes(
    name: str, title: str, axis: str, form: Form, curves: Sequence[Curve], bars: Sequence[tuple[int, int | None, int]]
) -> str:
    """Values above (shares, drawn as percent), least counts below on a logarithmic axis; marked points are hollow. ``form``: the
    form of a point's value, ``share`` or ``points``. ``bars``: K, count of the least used code in training segments (``None``:
    not known) and in answers. The intervals of single tasks are left to the table wherever there is a mean."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    sizes = [size for size, _, _ in bars]
    with canvas(4.9, 5.2, name) as (figure, out):
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        above.set_title(title, loc="left", fontsize=10, color=SOFT)
        above.set_xscale("log", base=2)
        marks: list[Mark] = []
        _draw_curves(above, curves, form, marks)
        above.set_ylabel(axis)
        above.margins(y=0.08)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
        _draw_bars(below, bars, marks)
        below.set_ylabel("least used")
        below.legend(loc="upper right", fontsize=8, frameon=False, ncols=2, borderaxespad=0)
        below.set_xlabel("functional tokens K")
        below.set_xticks(sizes)
        below.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
        below.xaxis.set_minor_locator(NullLocator())
        below.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,.0f}"))
        below.yaxis.set_minor_locator(NullLocator())
        below.set_xlim(min(sizes) / 2**0.6, max(sizes) * 2**0.6)
        summary = "; ".join(mark.description for mark in marks)
        out.append(f"{axis} by number of functional tokens{f', {title}' if title else ''}. {summary}")
    return marked(out[0], marks)


def _draw_curves(axes: Axes, curves: Sequence[Curve], form: Form, marks: list[Mark]) -> None:
    """Values by K; each point's text is added to ``marks``."""
    means = any(curve.thick for curve in curves)
    for index, curve in enumerate(curves):
        colour = INK if curve.thick else _COLOURS[index % len(_COLOURS)]
        marker = "o" if curve.thick else _MARKERS[index % len(_MARKERS)]
        xs, ys = [point[0] for point in curve.points], [100 * point[1] for point in curve.points]
        width = 2.2 if curve.thick else 1.2
        axes.plot(xs, ys, color=colour, linewidth=width, alpha=1 if curve.thick else 0.8, zorder=2 + curve.thick)
        axes.plot([], [], marker=marker, color=colour, linewidth=width, label=curve.name)
        for x, value, low, high, sparse in curve.points:
            if low is not None and high is not None and (curve.thick or not means):
                axes.plot([x, x], [100 * low, 100 * high], color=colour, linewidth=2, alpha=0.4, solid_capstyle="round")
            face = "white" if sparse else colour
            description = f"{curve.name}, K = {x}: {with_ends(value, low, high, form)}{f', {_FEW}' if sparse else ''}"
            looks: dict[str, Any] = {"color": colour, "markerfacecolor": face, "markersize": 6.5, "zorder": 4}
            axes.plot([x], [100 * value], marker, **looks, gid=add(marks, description))
    if any(point[4] for curve in curves for point in curve.points):
        axes.plot([], [], "o", color=SOFT, markerfacecolor="white", label=_FEW)


def _draw_bars(axes: Axes, bars: Sequence[tuple[int, int | None, int]], marks: list[Mark]) -> None:
    highest = max((count for bar in bars for count in bar[1:] if count is not None), default=1)
    axes.set_yscale("log")
    axes.set_ylim(_GROUND, max(10, highest) * 4)
    for index, (colour, hatch, said) in enumerate(_BARS):
        shift = 2 ** (0.14 * (2 * index - 1))
        known = [(bar[0], count) for bar in bars if (count := bar[1 + index]) is not None]
        if not known:
            continue
        heights = [max(0.0, count - _GROUND) for _, count in known]
        lefts = [size * shift * 2**-0.12 for size, _ in known]
        widths = [size * shift * (2**0.12 - 2**-0.12) for size, _ in known]
        looks: dict[str, Any] = {"align": "edge", "color": colour, "hatch": hatch, "label": said}
        looks |= {"edgecolor": SOFT, "linewidth": 0.6}
        for drawn, (size, count) in zip(axes.bar(lefts, heights, widths, _GROUND, **looks), known, strict=True):
            drawn.set_gid(add(marks, f"least used code in {said}, K = {size}: {count}"))
            at = (size * shift, max(count, _GROUND))
            axes.annotate(str(count), at, (0, 2), textcoords="offset points", ha="center", fontsize=8)
