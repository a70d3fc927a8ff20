"""Fill the tables of the pages of results from the archives, and the figures, in ``results/``.

    python -m docs.research.result_tables [--check]

A page marks where a table goes with ``<!-- table: NAME -->`` and ``<!-- end -->``; `docs.research.result_specs` lists what each
holds, and `docs.research.figure_specs` what those of figures without answers hold. ``--check`` writes nothing and fails, naming
the tables, where a page differs from its archives.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum
from pathlib import Path

from docs.research import over_runs
from docs.research.over_runs import answers, archived, training

from cirf.analysis.accuracy import pooled
from cirf.analysis.pairs import Tests, compare_all
from cirf.errors import CirfError
from cirf.evaluation.harness import by_question
from cirf.statistics import Comparison, mean, wilson

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
DRAWS, SEED = 10_000, 0
TITLES = {
    "gsm8k": "GSM8K",
    "svamp": "SVAMP",
    "multiarith": "MultiArith",
    "coin_flip": "Coin Flip",
    "commonsense_qa": "CommonsenseQA",
    "math500": "MATH-500",
    "bbh": "BIG-Bench Hard",
    "strategyqa": "StrategyQA",
    "scienceqa": "ScienceQA",
}

Tasks = tuple[str, ...]
Words = str | Callable[[], str]
"""Words, or a function that returns words with numbers of the archives."""


@dataclass(frozen=True)
class Trained:
    """A method, by its name in the archives, with one archive a training. With several, a question counts by its mean."""

    key: str
    runs: tuple[str, ...]

    @property
    def folders(self) -> list[Path]:
        return [ROOT / "results" / run for run in self.runs]


@dataclass(frozen=True)
class Line:
    """A line of a table: its label, the method shown, the method it is compared with, and cells of words."""

    label: str
    first: Trained
    second: Trained | None = None
    texts: tuple[Words, ...] = ()


Cell = Callable[[Line], str]


@dataclass(frozen=True)
class Table:
    """A table: ``head`` is the heading of the labels; ``columns`` maps each heading to what fills it.

    ``lines`` may be a function, called when the table is filled. ``caption`` may be empty, or hold names of task groups in
    braces, which become the first line's number of questions.
    """

    name: str
    head: str
    columns: Mapping[str, Cell]
    lines: Sequence[Line] | Callable[[], Sequence[Line]]
    caption: Words


@cache
def shares(trained: Trained, tasks: Tasks) -> dict[str, float]:
    """Accuracy on each question, 0 to 1, of those that every training was asked."""
    return pooled({task: over_runs.over(trained.folders, trained.key, task) for task in tasks})


@cache
def compared(first: Trained, second: Trained, tasks: Tasks) -> Comparison:
    """The first less the second, paired by question."""
    return over_runs.difference(shares(first, tasks), shares(second, tasks))


@cache
def _family(run: str, tasks: Tasks) -> Tests:
    """All pairs of an archive's methods, with Holm's p-values."""
    names = sorted(archived(ROOT / "results" / run).methods)
    return compare_all({name: shares(Trained(name, (run,)), tasks) for name in names})


def _second(line: Line, other: Trained | None) -> Trained:
    found = other or line.second
    if found is None:
        raise CirfError(f"{line.label}: nothing to compare with")
    return found


def accuracy(tasks: Tasks) -> Cell:
    """Accuracy in percent with Wilson's interval. With several trainings the mean, each on all its questions."""

    def cell(line: Line) -> str:
        value, n = _accuracy(line.first, tasks)
        return bounds(value, *wilson(value * n, n), sign="")

    return cell


def percent(tasks: Tasks) -> Cell:
    """Accuracy in percent, without an interval."""
    return lambda line: f"{100 * _accuracy(line.first, tasks)[0]:.1f}"


def percent_each(tasks: Tasks) -> Cell:
    """Accuracy of each training in percent."""
    return lambda line: ", ".join(percent(tasks)(Line("", Trained(line.first.key, (run,)))) for run in line.first.runs)


def average(tasks: Tasks) -> Cell:
    """Macro-averaged accuracy over the tasks, in percent."""
    return lambda line: f"{100 * mean([_accuracy(line.first, (task,))[0] for task in tasks]):.1f}"


def _accuracy(trained: Trained, tasks: Tasks) -> tuple[float, int]:
    """The mean of the trainings' accuracies, and the number of questions of one."""
    each = [shares(Trained(trained.key, (run,)), tasks) for run in trained.runs]
    return mean([mean([*one.values()]) for one in each]), min(len(one) for one in each)


def _rows_mean(trained: Trained, tasks: Tasks, key: str) -> float:
    return mean([row[key] for run in trained.folders for task in tasks for row in answers(run, trained.key, task)])


def tokens(tasks: Tasks) -> Cell:
    """Generated tokens an answer, the mean."""
    return lambda line: f"{_rows_mean(line.first, tasks, 'tokens'):.1f}"


def rate(tasks: Tasks, key: str) -> Cell:
    """Percent of the answers that are ``truncated``, or ``unparsed``."""
    return lambda line: f"{100 * _rows_mean(line.first, tasks, key):.0f}"


def less(tasks: Tasks, other: Trained | None = None) -> Cell:
    """Difference to the other in points, paired, with the interval; bold if p < 0.05."""

    def cell(line: Line) -> str:
        second = _second(line, other)
        if second == line.first:
            return ""
        found = compared(line.first, second, tasks)
        return bounds(found.difference, *found.interval, strong=found.significant)

    return cell


def points(tasks: Tasks, other: Trained | None = None) -> Cell:
    """The difference without the interval."""
    return lambda line: less(tasks, other)(line).partition(" [")[0]


def p_value(tasks: Tasks) -> Cell:
    """The p-value of the paired test, not corrected."""
    return lambda line: _p(compared(line.first, _second(line, None), tasks).p)


def p_holm(run: str, tasks: Tasks) -> Cell:
    """The p-value corrected for all pairs of the archive's methods."""

    def cell(line: Line) -> str:
        first, second, tests = line.first.key, _second(line, None).key, _family(run, tasks)
        return _p((tests.get((first, second)) or tests[second, first]).p_holm or 0.0)

    return cell


def by_training(tasks: Tasks) -> Cell:
    """The difference of two methods over the trainings of both, with Student's interval."""

    def cell(line: Line) -> str:
        methods = line.first.key, _second(line, None).key
        found = over_runs.spread(over_runs.by_training(line.first.folders, methods, tasks))
        return bounds(*found, strong=found[1] > 0 or found[2] < 0)

    return cell


def each_training(tasks: Tasks) -> Cell:
    """The difference in each training."""

    def cell(line: Line) -> str:
        methods = line.first.key, _second(line, None).key
        return ", ".join(_points(one, "+") for one in over_runs.by_training(line.first.folders, methods, tasks))

    return cell


def share(tasks: Tasks, other: Trained | None = None) -> Cell:
    """Macro-averaged accuracy divided by the other's, with a bootstrap interval."""

    def cell(line: Line) -> str:
        second = _second(line, other)
        if second == line.first:
            return ""
        given = line.first.folders, line.first.key, second.folders, second.key, tasks, DRAWS, SEED
        value, low, high, _ = over_runs.share(*given)
        return f"{value:.3f} [{low:.2f}, {high:.2f}]"

    return cell


def tokens_share(tasks: Tasks, other: Trained | None = None) -> Cell:
    """Generated tokens divided by the other's, on common questions."""

    def cell(line: Line) -> str:
        ours, theirs = (_lengths(one, tasks) for one in (line.first, _second(line, other)))
        both = ours.keys() & theirs.keys()
        return f"{fsum(ours[item] for item in both) / fsum(theirs[item] for item in both):.3f}"

    return cell


@cache
def _lengths(trained: Trained, tasks: Tasks) -> dict[str, float]:
    """Generated tokens for each question that every training was asked: the mean over trainings."""
    each = [pooled({task: by_question(answers(run, trained.key, task), "tokens") for task in tasks}) for run in trained.folders]
    return {item: mean([one[item] for one in each]) for item in each[0] if all(item in one for one in each)}


def validation(key: str) -> Cell:
    """The last validation loss of a training, in nats a token: ``answer_loss`` or ``code_loss``."""

    def cell(line: Line) -> str:
        found = [training(folder, line.first.key)["numbers"].get(key) for folder in line.first.folders]
        return ", ".join(f"{value:.2f}" for value in found if value is not None)

    return cell


def trial(learning_rate: float, run: str) -> Cell:
    """Validation loss of a short training at a learning rate; bold if the method was then trained at it."""

    def cell(line: Line) -> str:
        loss = archived(ROOT / "results" / run).trials.get(line.first.key, {}).get(str(learning_rate))
        if loss is None:
            return ""
        taken = training(line.first.folders[0], line.first.key)["numbers"]["learning_rate"] == learning_rate
        return _strong(f"{loss:.3f}", taken)

    return cell


def seconds() -> Cell:
    """Seconds an answer, one at a time: the mean and the 95th percentile."""

    def cell(line: Line) -> str:
        found = archived(line.first.folders[0]).methods[line.first.key]
        return f"{found['latency_mean_s']:.2f} ({found['latency_p95_s']:.2f})"

    return cell


def training_seconds() -> Cell:
    """Seconds of the first training."""
    return lambda line: f"{training(line.first.folders[0], line.first.key)['timings']['training_seconds']:,.0f}"


def text(place: int = 0) -> Cell:
    """A cell of words."""

    def cell(line: Line) -> str:
        found = line.texts[place] if place < len(line.texts) else ""
        return found if isinstance(found, str) else found()

    return cell


def bounds(value: float, low: float, high: float, sign: str = "+", strong: bool = False) -> str:
    """A share with its interval, in points."""
    return f"{_strong(_points(value, sign), strong)} [{_points(low)}, {_points(high)}]"


def _points(value: float, sign: str = "") -> str:
    """In points; the ``z`` avoids a negative zero."""
    return format(100 * value, f"{sign}z.1f") if round(100 * value, 1) else "0.0"


def _strong(summary: str, strong: bool) -> str:
    return f"**{summary}**" if strong else summary


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def _count(line: Line, tasks: Tasks) -> int:
    return len(shares(line.first, tasks)) if line.second is None else compared(line.first, line.second, tasks).n


class _Counts(dict[str, str]):
    """Numbers of questions by name of a task group, counted on demand."""

    def __init__(self, line: Line, groups: Mapping[str, Tasks]) -> None:
        super().__init__()
        self.line, self.groups = line, groups

    def __missing__(self, name: str) -> str:
        return f"{_count(self.line, self.groups[name]):,}"


def render(table: Table, groups: Mapping[str, Tasks]) -> str:
    """The table in Markdown, its caption below."""
    lines = table.lines() if callable(table.lines) else table.lines
    shown = [[table.head, *table.columns], ["---"] * (1 + len(table.columns))]
    shown += [[line.label, *(cell(line) for cell in table.columns.values())] for line in lines]
    body = "\n".join("| " + " | ".join(cells) + " |" for cells in shown)
    caption = (table.caption if isinstance(table.caption, str) else table.caption()).format_map(_Counts(lines[0], groups))
    return f"{body}\n\n{caption}\n" if caption else f"{body}\n"


def filled(page: str, tables: Mapping[str, Table], groups: Mapping[str, Tasks]) -> str:
    """The page with all its tables filled. ``CirfError`` names a table without a spec."""

    def block(found: re.Match[str]) -> str:
        if found[2] not in tables:
            raise CirfError(f"no table is called {found[2]}")
        return f"{found[1]}{render(tables[found[2]], groups)}{found[3]}"

    return BLOCK.sub(block, page)


def pages() -> list[Path]:
    """The pages that hold tables."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in found if BLOCK.search(page.read_text(encoding="utf-8"))]


def main(arguments: Sequence[str] | None = None) -> None:
    from docs.research.result_specs import GROUPS, TABLES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page differs from its archives")
    check = parser.parse_args(arguments).check
    tables = {table.name: table for table in TABLES}
    differing = []
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = filled(before, tables, GROUPS)
        if before != after:
            differing.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(after, encoding="utf-8")
    if check and differing:
        sys.exit(f"tables differ from the archives in {', '.join(differing)}; run python -m docs.research.result_tables")
    print(f"changed: {', '.join(differing)}" if differing else "all tables are up to date")


if __name__ == "__main__":
    main()
