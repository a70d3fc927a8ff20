"""Accuracy by the values of some keys, all else equal, each tested against a reference on the same questions.

`REPRESENTATION`: what is quantised. `INITIALISATION`: how codes are found and how their tokens' rows begin. The paper's row of
random codes and random embeddings repeats the digits of its `random` representation. Both readings are shown: random codes with
random initial embeddings, and codes of noise, the column `representation`. Whether steps are balanced over the codes in every
epoch is a separate column: rebalanced, k-means and random codes end up as evenly used as balanced ones, so only runs with
`codebook.reassign: nearest` show the effect of balance.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cirf.analysis.accuracy import TASK, Shares, functional, of_task, of_tasks, pooled, same_questions, shared_tasks, shares
from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.groups import Group, grouped
from cirf.analysis.source import Run, Source, published
from cirf.pictures.table import Column, Table
from cirf.statistics import Comparison, compare, corrected, describe_difference


@dataclass(frozen=True, slots=True)
class Ablation:
    """``keys``: what varies, dotted, each with its column; ``values``: a run's values for these columns, ``None`` for a run
    outside the table; ``reference``: the values of the paper's choice; ``theirs``: the paper's table; ``along``: keys that vary
    with the others and have no column; ``note``: a sentence for the reader."""

    name: str
    caption: str
    keys: Mapping[str, Column]
    values: Callable[[Run], tuple[str, ...] | None]
    reference: tuple[str, ...]
    theirs: str
    along: tuple[str, ...] = ()
    note: str = ""


def make(source: Source, ablation: Ablation) -> AnalysisResult:
    """A row per run, with the mean of its tasks, every task, and the test against the reference."""
    placed = (run for run in source.runs if functional([run]) and ablation.values(run) is not None)
    groups = grouped(placed, [*ablation.keys, *ablation.along], method=functional)
    if not groups:
        keys = " or ".join(ablation.keys)
        raise MissingInputError(f"it needs evaluated runs that differ only in {keys}; `cirf sweep` makes them")
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    tasks: dict[str, None] = {}
    for group in groups:
        method = functional(group.runs)
        shared = [] if method is None else shared_tasks(group.runs, method, True) or shared_tasks(group.runs, method)
        if method is None or not shared:
            notes.append(f"The runs{group} have no functional method or no task in common and are left out.")
            continue
        own_rows, more_notes = _rows(ablation, group, method, shared)
        rows, notes = rows + own_rows, notes + more_notes
        tasks |= dict.fromkeys(shared)
    if not rows:
        raise MissingInputError("the runs that differ only in these keys have no functional method or no task in common")
    if source.paper:
        theirs = published(ablation.theirs)
        own = {"source", "mean", *(column.key for column in ablation.keys.values())}
        tasks |= dict.fromkeys(key for row in theirs for key in row if key not in own)
        for row in theirs:  # its accuracies are in percent
            shares_of = {key: value / 100 for key, value in row.items() if key not in own - {"mean"}}
            named = {key if key == "mean" else f"{TASK}{key}": value for key, value in shares_of.items()}
            rows.append({key: row[key] for key in row if key in own} | named)
    notes += [ablation.note] if ablation.note else []
    columns = (
        Column("source", "Source"),
        Column("settings", "Settings"),
        *ablation.keys.values(),
        Column("mean", "Mean of tasks", "share", bounds=True),
        *(Column(f"{TASK}{task}", task, "share", bounds=True) for task in tasks),
        Column("difference", "Above the reference, all questions, points", "points", bounds=True),
        Column("p", "p", "number"),
        Column("p_holm", "p, Holm", "number"),
        Column("reading", "Reading"),
    )
    return AnalysisResult((Table(ablation.name, ablation.caption, columns, rows),), {}, notes)


def _rows(ablation: Ablation, group: Group, method: str, tasks: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    found = [shares(run, method, tasks) for run in group.runs]
    tests, notes = _tests(ablation, group, found)
    rows = []
    for run, answered in zip(group.runs, found, strict=True):
        summary = dict(zip((column.key for column in ablation.keys.values()), ablation.values(run) or (), strict=True))
        row: dict[str, Any] = {"source": run.name, "settings": group.label, **summary}
        row["mean"], row["mean_low"], row["mean_high"] = of_tasks(answered)
        for task, values in answered.items():
            key = f"{TASK}{task}"
            row[key], row[f"{key}_low"], row[f"{key}_high"] = of_task(values)
        test = tests.get(run.name)
        if test is not None:
            row |= {"difference": test.difference, "difference_low": test.interval.low, "difference_high": test.interval.high}
            row |= {"p": test.p, "p_holm": test.p_holm}
            word = "above" if test.difference > 0 else "below"
            same = test.wins == test.losses == 0
            row["reading"] = "no difference on any question" if same else word if test.significant else "not significant"
        elif tests and ablation.values(run) == ablation.reference:
            row["reading"] = "the reference"
        rows.append(row)
    return rows, notes


def _tests(ablation: Ablation, group: Group, found: Sequence[Shares]) -> tuple[dict[str, Comparison], list[str]]:
    """Each run against the one of the paper's choice, corrected for all of the group; by the run's name."""
    places = [index for index, run in enumerate(group.runs) if ablation.values(run) == ablation.reference]
    if len(places) != 1:
        summary = " x ".join(ablation.reference)
        return {}, [f"No tests{group}: {'no run is' if not places else 'several runs are'} of the paper's choice ({summary})."]
    if not same_questions(found):
        return {}, [f"No tests{group}: the runs did not answer the same questions."]
    reference = pooled(found[places[0]])
    tests = {
        run.name: compare(pooled(answered), reference)
        for index, (run, answered) in enumerate(zip(group.runs, found, strict=True))
        if index != places[0]
    }
    tests = corrected(tests)
    named = {run.name: " x ".join(ablation.values(run) or ()) for run in group.runs}
    summary = " x ".join(ablation.reference)
    return tests, [f"{describe_difference(test, named[name], summary)}{group}." for name, test in tests.items()]


_REPRESENTATION, _CODES, _ROWS = "codebook.representation", "codebook.initialiser", "vocabulary.init"
_EPOCHS, _FINAL = "codebook.reassign", "codebook.assign"
_EMBEDDING = {"codebook": "trained", "words": "words", "random": "random"}


def _initialisation(run: Run) -> tuple[str, ...] | None:
    """Codes, initial embeddings, representation, and how steps get their codes, in the epochs and at the end."""
    representation = str(run.key(_REPRESENTATION))
    if representation not in ("mean_centered", "random"):
        return None
    epochs, final = (str(run.key(key) or "sinkhorn") for key in (_EPOCHS, _FINAL))  # older runs have no such keys
    assignment = epochs if epochs == final else f"{epochs}, at the end {final}"
    return str(run.key(_CODES)), _EMBEDDING[str(run.key(_ROWS))], representation, assignment


_BY_REPRESENTATION = Ablation(
    "representation",
    "Accuracy by representation of a step, in-domain tasks.",
    {_REPRESENTATION: Column("representation", "Representation")},
    lambda run: (str(run.key(_REPRESENTATION)),),
    ("mean_centered",),
    "representation",
)
_BY_INITIALISATION = Ablation(
    "initialisation",
    "Accuracy by initialiser of the codes and by initial embeddings of their tokens, in-domain tasks.",
    {
        _CODES: Column("initialiser", "First codes"),
        _ROWS: Column("embedding", "First embeddings"),
        _REPRESENTATION: Column("representation", "Representation"),
        _EPOCHS: Column("assignment", "Assignment"),
    },
    _initialisation,
    ("sinkhorn", "trained", "mean_centered", "sinkhorn"),
    "initialisation",
    (_FINAL,),
    "The paper's row `random x random` has the digits of its `random` representation; it does not say which was run. Here the"
    " two are separate rows: random first codes with random first embeddings, and representation `random`.",
)
REPRESENTATION = Analysis(
    "representation",
    "Representation of a step",
    "Accuracy with codes of noise, of bare segments, of segments minus their question, or minus their rationale's mean.",
    "a sweep over `codebook.representation` with evaluations of a functional method",
    partial(make, ablation=_BY_REPRESENTATION),
    "Table representation accuracy",
)
INITIALISATION = Analysis(
    "initialisation",
    "First codes and first embeddings",
    "Accuracy by the codes' initialisation (balanced, k-means, random) and whether tokens start at the codes or at random rows.",
    "a sweep over `codebook.initialiser`, `codebook.reassign` and `vocabulary.init` with evaluations of a functional method",
    partial(make, ablation=_BY_INITIALISATION),
    "Table codebook init",
)
