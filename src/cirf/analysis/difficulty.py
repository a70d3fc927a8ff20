"""Do functional traces grow with difficulty: error rate of direct answering by number of functional tokens."""

from collections.abc import Sequence
from typing import Any

from cirf.analysis.accuracy import FUNCTIONAL
from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.source import Run, Source, read_codes
from cirf.pictures.canvas import SOFT, Mark, add, canvas, marked
from cirf.pictures.style import style
from cirf.pictures.table import Column, Table, with_ends
from cirf.statistics import mean, wilson

_FEW = 10  # lengths with fewer questions are merged with the next shorter one
_DIRECT = ("direct", "direct_sft")
_COLUMNS = (
    Column("task", "Task"),
    Column("tokens", "Functional tokens"),
    Column("n", "Questions", "count"),
    Column("error", "Error rate of direct answering", "share", bounds=True),
    Column("own_error", "Error rate of the functional method", "share", bounds=True),
)


def make(source: Source) -> AnalysisResult:
    run = source.first(lambda one: None not in _methods(one) and _pairs(one))
    functional, direct = _methods(run)
    if functional is None or direct is None:
        raise MissingInputError("it needs a functional method and `direct` (or `direct_sft`) among the evaluated methods")
    pairs = _pairs(run)
    if not pairs:
        raise MissingInputError(f"{functional} and {direct} answered no question in common")
    rows = _rows("all", [pair for found in pairs.values() for pair in found])
    picture = _picture(rows, direct)
    for task, found in pairs.items():
        rows += _rows(task, found) if len(pairs) > 1 else []
    notes = [
        *source.notes(run),
        f"Traces are of {functional}, direct answers of {direct}; lengths that fewer than {_FEW} questions have join the next"
        " shorter one. An answer whose trace holds no functional token counts as length 0.",
        *_correlation(pairs),
    ]
    caption = "Error rate of direct answering by the number of functional tokens that were generated."
    return AnalysisResult((Table("difficulty", caption, _COLUMNS, rows),), {"difficulty": picture}, notes)


Pair = tuple[int, float, float]
"""Functional tokens of a question's trace, error of the direct answer, error of the functional one."""


def _methods(run: Run) -> tuple[str | None, str | None]:
    """The first functional method that was evaluated, and the first direct one."""
    functional = next((name for name in FUNCTIONAL if name in run.methods), None)
    return functional, next((name for name in _DIRECT if name in run.methods), None)


def _pairs(run: Run) -> dict[str, list[Pair]]:
    """By task. Of several runs of a question the mean, lengths rounded."""
    functional, direct = _methods(run)
    assert functional is not None and direct is not None
    found: dict[str, list[Pair]] = {}
    theirs: dict[tuple[str, str], list[bool]] = {}
    for task, rows in run.answers(direct).items():
        for row in rows:
            theirs.setdefault((task, row["id"]), []).append(not row["correct"])
    ours: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for task, rows in run.answers(functional).items():
        for row in rows:
            length = sum(code is not None for code, _ in read_codes(row["output"]))
            ours.setdefault((task, row["id"]), []).append((length, not row["correct"]))
    for (task, name), several in ours.items():
        if (task, name) in theirs:
            length = round(mean([length for length, _ in several]))
            pair = (length, mean(theirs[task, name]), mean([error for _, error in several]))
            found.setdefault(task, []).append(pair)
    return found


def _rows(task: str, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    groups = group_by_length(sorted(pairs))
    rows = []
    for group in groups:
        lengths = [length for length, _, _ in group]
        span = "-".join(map(str, sorted({min(lengths), max(lengths)})))
        row: dict[str, Any] = {"task": task, "tokens": span, "mean_tokens": mean(lengths), "n": len(group)}
        for key, place in (("error", 1), ("own_error", 2)):
            row[key] = mean([pair[place] for pair in group])
            row[f"{key}_low"], row[f"{key}_high"] = wilson(row[key] * len(group), len(group))
        rows.append(row)
    return rows


def group_by_length(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs by length, a length of few questions with the one before it (the first with the one after it)."""
    by_length: dict[int, list[Pair]] = {}
    for pair in pairs:
        by_length.setdefault(pair[0], []).append(pair)
    groups: list[list[Pair]] = []
    for group in by_length.values():
        if groups and (len(group) < _FEW or len(groups[-1]) < _FEW):
            groups[-1] = groups[-1] + group
        else:
            groups.append(group)
    return groups


def _correlation(pairs: dict[str, list[Pair]]) -> list[str]:
    """Spearman's rank correlation of length and error, over all and within tasks: a task may be both longer and harder."""
    from scipy.stats import spearmanr

    sentences = []
    for task, found in {"all tasks": [pair for rows in pairs.values() for pair in rows], **pairs}.items():
        lengths, errors = [pair[0] for pair in found], [pair[1] for pair in found]
        if len(set(lengths)) > 1 and len(set(errors)) > 1 and (task != "all tasks" or len(pairs) > 1):
            rank = spearmanr(lengths, errors)
            sentences.append(f"{task}: {rank.statistic:+.2f} (n = {len(found)}, p = {rank.pvalue:.2g})")
    return [f"Spearman's rank correlation of length and error: {'; '.join(sentences)}."] if sentences else []


def _picture(rows: Sequence[dict[str, Any]], direct: str) -> str:
    look = style(direct, [direct])
    with canvas(4.9, 3.4, "difficulty") as (figure, out):
        axes = figure.add_subplot()
        xs, ys = [row["mean_tokens"] for row in rows], [100 * row["error"] for row in rows]
        axes.plot(xs, ys, color=look.colour, linewidth=1.2, alpha=0.5)
        marks: list[Mark] = []
        for row, x, y in zip(rows, xs, ys, strict=True):
            error = with_ends(row["error"], row["error_low"], row["error_high"], "share")
            reach = add(marks, f"{row['tokens']} tokens: {error} of {row['n']}", direct)
            axes.plot([x, x], [100 * row["error_low"], 100 * row["error_high"]], color=look.colour, linewidth=2, alpha=0.55)
            axes.plot([x], [y], **look.point, markersize=8, markeredgecolor="white", gid=reach)
            axes.annotate(f"n = {row['n']}", (x, 4), ha="center", fontsize=8, color=SOFT)
        axes.set_ylim(0, 103)
        axes.margins(x=0.08)
        axes.set_xlabel("functional tokens generated")
        axes.set_ylabel(f"error rate of {look.title}, %")
        summary = "; ".join(mark.description for mark in marks)
        out.append(f"Error rate of direct answering by number of functional tokens. {summary}")
    return marked(out[0], marks)


ANALYSIS = Analysis(
    "difficulty",
    "Trace length and difficulty",
    "Questions grouped by the number of functional tokens generated for them, and how often a direct answer fails in each group.",
    "evaluations of a functional method and of `direct` (or `direct_sft`)",
    make,
    "Figure length-difficulty",
)
