"""Intrinsic measures of the training segments' codes, by representation (paper's appendix): is the codebook used evenly, and do
its codes name functions or questions?"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.groups import Group, grouped
from cirf.analysis.source import Run, Source, published
from cirf.codebook.codebook import usage
from cirf.pictures import table
from cirf.pictures.table import Column, Table
from cirf.statistics import interval, left_out


@dataclass(frozen=True, slots=True)
class Clustering:
    """Intrinsic measures of one assignment.

    ``used``: share of the K codes that are used by a step; ``perplexity``: exponential of the entropy of their use, at most K;
    ``ami``: adjusted mutual information of code and question, 0 if the code says nothing about the question; ``purity``:
    share of the steps whose question is the most frequent of their code; ``collapsed``: share of the rationales of two steps
    or more with the same code throughout; ``unique``: mean number of distinct codes a rationale.
    """

    used: float
    perplexity: float
    ami: float
    purity: float
    collapsed: float
    unique: float


def clustering(codes: Sequence[Sequence[int]], size: int, questions: Sequence[Hashable] | None = None) -> Clustering:
    """Measure the codes of each rationale; ``size``: K. ``ValueError`` if there is no step. ``questions``: what each rationale
    answers, where several may answer one; anything else that rationales share, such as their task, gives ``ami`` and ``purity``
    of that. ``None``: each has its own question."""
    from sklearn.metrics import adjusted_mutual_info_score

    flat = [code for row in codes for code in row]
    if not flat:
        raise ValueError("no step to measure")
    names = range(len(codes)) if questions is None else questions
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    question_numbers = [numbers[name] for name, row in zip(names, codes, strict=True) for _ in row]
    use = usage(np.array(flat), size)
    pairs = Counter(zip(flat, question_numbers, strict=True))
    most: dict[int, int] = {}
    for (code, _), count in pairs.items():
        most[code] = max(most.get(code, 0), count)
    several = [row for row in codes if len(row) > 1]
    return Clustering(
        used=use["used"] / size,
        perplexity=use["perplexity"],
        ami=float(adjusted_mutual_info_score(question_numbers, flat)),
        purity=sum(most.values()) / len(flat),
        collapsed=sum(len(set(row)) == 1 for row in several) / len(several) if several else 0.0,
        unique=sum(len(set(row)) for row in codes) / len(codes),
    )


_KEY = "codebook.representation"
_NOT_OF_CODES = (_KEY, "codebook.size", "variants", "vocabulary", "finetune", "results", "evaluate")
"""Keys that may differ between runs of one group: those compared, and those that codes do not depend on."""

_MEASURES = ("ami", "purity", "task_ami", "task_purity")
_TITLES = {
    "ami": "AMI of code and question",
    "purity": "purity by question",
    "task_ami": "AMI of code and task",
    "task_purity": "purity by task",
}
_COLUMNS = (
    Column("source", "Source"),
    Column("settings", "Settings"),
    Column("representation", "Representation"),
    Column("size", "K", "number"),
    Column("segments", "Training segments", "count"),
    table.FEW_COLUMN,
    Column("used", "Used", "number"),
    Column("ami", "AMI, question", "number", bounds=True),
    Column("purity", "Purity, question", "number", bounds=True),
    Column("collapsed", "Collapsed", "number"),
    Column("unique", "Distinct codes an example", "number"),
    Column("task_ami", "AMI, task", "number", bounds=True),
    Column("task_purity", "Purity, task", "number", bounds=True),
    Column("perplexity", "Perplexity of the use", "number"),
)
_DIFFERENCES = (
    Column("settings", "Settings"),
    Column("size", "K", "number"),
    Column("measure", "Measure"),
    Column("centred", "Mean-centred", "number"),
    Column("raw", "Raw", "number"),
    Column("difference", "Mean-centred less raw", "number", bounds=True),
    Column("reading", "Reading"),
)
Bag = tuple[str, str, list[int]]  # a rationale: its question, its task, its codes
Measured = tuple[dict[str, Any], list[Sequence[float]], list[str]]
"""A codebook's row, its measures without each group of questions, the questions."""


def make(source: Source) -> AnalysisResult:
    """A row a codebook, and the effect of mean-centring where both were built."""
    rows: list[dict[str, Any]] = []
    effects: list[dict[str, Any]] = []
    for group in grouped((run for run in source.runs if run.key(_KEY)), _NOT_OF_CODES, keep=bool):
        found: dict[int, dict[str, Measured]] = {}
        for run in group.runs:
            for size, bags in _bags(run).items():
                if run.key(_KEY) in found.get(size, {}):
                    continue  # the same codebook of another run
                row, without = _measured(run, group, size, bags)
                rows.append(row)
                found.setdefault(size, {})[row["representation"]] = (row, without, [bag[0] for bag in bags])
        for size, several in found.items():
            effects += _effect(several, group, size)
    if not rows:
        raise MissingInputError("no training segment has a code yet; make the stage `codebook` first (an archive has no codes)")
    rows.sort(key=lambda row: (row["settings"], row["size"]))
    notes = _notes(effects) + ([table.FEW_NOTE] if any(row["few"] for row in rows) else [])
    if source.paper:
        rows += [row | {"size": 128, "few": ""} for row in published("clustering")]
    tables = [Table("clustering", "Codes of training segments against questions and tasks.", _COLUMNS, rows)]
    if effects:
        tables.append(Table("centring", "The effect of mean-centring on the measures.", _DIFFERENCES, effects))
    return AnalysisResult(tables, {}, notes)


def _bags(run: Run) -> dict[int, list[Bag]]:
    """Training rationales by K, of every codebook that the recipe builds, in the order of their rows."""
    sizes = dict.fromkeys([run.key("codebook.size"), *(run.key("codebook.sizes") or ())])
    found = {}
    for size in sizes:
        bags = [(row["problem"], row["task"], row["codes"]) for row in run.coded(size)]
        if any(codes for _, _, codes in bags):
            found[int(size)] = bags
    return found


def measure(bags: Sequence[Bag], size: int) -> tuple[Clustering, Clustering]:
    codes = [bag[2] for bag in bags]
    return clustering(codes, size, [bag[0] for bag in bags]), clustering(codes, size, [bag[1] for bag in bags])


def _measured(run: Run, group: Group, size: int, bags: Sequence[Bag]) -> tuple[dict[str, Any], list[Sequence[float]]]:
    """A row, and the measures without each group of questions, for differences."""
    question, _ = measure(bags, size)
    by_question: dict[str, list[Bag]] = {}
    for bag in bags:
        by_question.setdefault(bag[0], []).append(bag)
    units = [by_question[name] for name in sorted(by_question)]  # by their names, so that all runs leave out the same ones

    def measures(kept: Sequence[list[Bag]]) -> list[float]:
        of_questions, of_tasks = measure([bag for unit in kept for bag in unit], size)
        return [of_questions.ami, of_questions.purity, of_tasks.ami, of_tasks.purity]  # in the order of `_MEASURES`

    without = left_out(units, measures)
    segments = sum(len(codes) for _, _, codes in bags)
    row: dict[str, Any] = {
        "source": run.source,
        "settings": group.label,
        "representation": run.key(_KEY),
        "size": size,
        "segments": segments,
        "few": table.few_mark(segments, size),
        **{key: getattr(question, key) for key in ("used", "collapsed", "unique", "perplexity")},
    }
    for index, (key, value) in enumerate(zip(_MEASURES, measures(units), strict=True)):
        row[key] = value
        row[f"{key}_low"], row[f"{key}_high"] = interval(value, [one[index] for one in without])
    return row, without


def _effect(several: Mapping[str, Measured], group: Group, size: int) -> list[dict[str, Any]]:
    """Mean-centred minus raw, with an interval that leaves the same questions out of both."""
    if not {"mean_centered", "raw"} <= several.keys():
        return []
    (ours, without, questions), (raw, raw_without, raw_questions) = several["mean_centered"], several["raw"]
    paired = sorted(set(questions)) == sorted(set(raw_questions))
    rows = []
    for index, key in enumerate(_MEASURES):
        gap = ours[key] - raw[key]
        gaps = [one[index] - other[index] for one, other in zip(without, raw_without, strict=True)] if paired else []
        low, high = interval(gap, gaps)
        if low is None or high is None:
            reading = "no interval"
        else:
            reading = "lower" if high < 0 else "higher" if low > 0 else "not significant"
        row = {"settings": group.label, "size": size, "measure": _TITLES[key], "centred": ours[key], "raw": raw[key]}
        rows.append(row | {"difference": gap, "difference_low": low, "difference_high": high, "reading": reading})
    return rows


def _notes(effects: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = [
        "Purity: share of the steps whose question (task) is the most frequent of their code; collapsed: share of the rationales"
        " of two steps or more with one code throughout, since a rationale of one step has no choice; intervals: jackknife over"
        " groups of questions."
    ]
    words = {"lower": "lowers", "higher": "raises", "not significant": "does not measurably change", "no interval": "changes"}
    for row in effects:
        place = f"K = {row['size']}{', ' if row['settings'] else ''}{row['settings']}"
        span = "" if row["difference_low"] is None else f", 95 % {row['difference_low']:+.3f} to {row['difference_high']:+.3f}"
        notes.append(
            f"{place}: mean-centring {words[row['reading']]} {row['measure']}: {row['centred']:.3f} against {row['raw']:.3f} raw"
            f" ({row['difference']:+.3f}{span})."
        )
    return notes


ANALYSIS = Analysis(
    "clustering",
    "Codes against questions",
    "Whether a code reveals a step's question (it should not) or task, and how many of the codes are used.",
    "a codebook; to compare, a sweep over `codebook.representation`",
    make,
    "Table intrinsic clustering",
)
