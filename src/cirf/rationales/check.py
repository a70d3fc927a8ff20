"""The quality of a set of questions and rationales, measured before any training.

``cirf check DATA`` prints this: rows usable and why not the others, the share that can be cut into steps, steps a row,
tokens of the rationales against tokens of the traces, and the speed-up to expect from the ratio of the two.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cirf.errors import CirfError
from cirf.rationales.collect import Collected, gather
from cirf.rationales.redundancy import count_left_out
from cirf.rationales.results import comma_tasks, write_results
from cirf.rationales.segmentation import PAPER_SHARE_DROPPED, Cut, cut_all, spread
from cirf.recipe import schema
from cirf.records import Problem
from cirf.tasks.loading.unusable import Tolerance
from cirf.tasks.task import Task
from cirf.text.numerals import unread_numbers, with_points

CountTokens = Callable[[str], int]
MOST_CHARACTERS = 8_000_000
"""Characters of rationales that are checked, about 1,000 long ones; of more, evenly spread questions are."""
_OFTEN_EMPTY, _FUNCTION_EMPTY = 0.5, 0.9  # shares of the steps; two thirds are usual where they are cut by function
_DELIMITERS = 2
_END = 1


@dataclass(frozen=True, slots=True)
class TaskCheck:
    """The check of one task, or of all together.

    ``usable`` counts problems with at least one rationale cut into steps; ``unusable`` the others by reason;
    ``share_segmentable`` is of the rationales, ``None`` where there is none; tokens are means a row, each with its end
    token. ``speedup`` is ``rationale_tokens / trace_tokens``: a ratio of generated tokens, which predicts batch-1 decoding time,
    not a measured time. ``None`` where nothing is usable. ``*_longest`` are the tokens and steps of the longest row of each kind,
    ``unread`` the problems with a number that is not read, such as ``12,5``, ``unread_example`` one such number, and
    ``decimal_commas`` whether numbers are written so, and read so. ``calculated`` is the share of the steps whose result
    has its calculation before it (``results.working: keep``).
    """

    problems: int
    usable: int
    unusable: dict[str, int]
    rationales: int
    share_segmentable: float | None
    steps: dict[str, float]
    rules: dict[str, int]
    share_results_empty: float
    rationale_tokens: float | None
    trace_tokens: float | None
    speedup: float | None
    steps_total: int
    rationale_tokens_longest: int
    trace_tokens_longest: int
    steps_longest: int
    calculated: float
    unread: int
    unread_example: str
    decimal_commas: bool


@dataclass(frozen=True, slots=True)
class CheckReport:
    """``total`` over all problems, ``tasks`` by table name, the counts of the stages as a run would report them, and of the steps
    that ``segments.redundant: drop`` leaves out (`count_left_out`). ``looked_at``: of how many problems the rationales were
    read. Where these are not all, counts in ``total`` and ``tasks`` are scaled up, and the others are of these problems."""

    total: TaskCheck
    tasks: dict[str, TaskCheck]
    collection: dict[str, Any]
    segmentation: dict[str, Any]
    looked_at: int
    redundant: dict[str, Any] | None = None
    paper_share_dropped: float = PAPER_SHARE_DROPPED

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def mostly_by_function(rules: Mapping[str, int], usable: int) -> bool:
    """Whether more than half of the rationales, counted by the rule that cut them, are cut by function."""
    return rules.get("function", 0) > usable / 2


def says_little(share_empty: float, rules: Mapping[str, int], usable: int) -> bool:
    """Whether too many steps have no result. Of rationales cut by function only steps that calculate or conclude have one."""
    return usable > 0 and share_empty >= (_FUNCTION_EMPTY if mostly_by_function(rules, usable) else _OFTEN_EMPTY)


def check(
    problems: Sequence[Problem],
    rationales: schema.Rationales,
    segments: schema.Segments,
    results: schema.Results,
    tasks: Mapping[str, Task],
    count_tokens: CountTokens,
    data: str | None = None,
    tolerance: Tolerance | None = None,
) -> CheckReport:
    """Go through collection, segmentation and results as a run would, and count (``count_tokens``: text to tokens).

    Of more than `MOST_CHARACTERS` only `some` rationales are looked at, unless they come from files of their own.
    A trace has two delimiters, one token a step, the results' tokens, the answer's and the end token (paper 3.3).
    Results that a language model is to write are counted as the rule would write them. Raises ``CirfError`` only for files
    that cannot be read, and where a language model is still to write the rationales; rows that do not fit are what the
    report is about, as are malformed ones with a ``tolerance`` that is looking.
    """
    if rationales.source == "teacher":
        advice = "`cirf run RECIPE --until segments` has them written and counts them"
        raise CirfError(f"rationales.source: teacher, so the rationales are a run's own; {advice}")
    looked = problems if rationales.files else some(problems)
    collected = gather(looked, rationales, data, tasks, tolerance)
    pieces = cut_all(collected.rationales, segments, looked)
    written = write_results(pieces.annotated, looked, tasks, results, data)
    commas = comma_tasks(tasks, looked, [(row.problem, row.text) for row in collected.rationales])
    work = _Work(looked, collected, pieces, written, count_tokens, commas)
    counts = Counter(problem.task for problem in problems)
    left_out = None
    if segments.redundant == "drop":
        kept = (segment for row in pieces.steps for segment in row.segments)
        left_out = count_left_out(pieces.redundant, kept, count_tokens)
    return CheckReport(
        _scaled(work.check(None), len(problems)),
        {name: _scaled(work.check(name), count) for name, count in counts.items()},
        collected.report,
        pieces.report,
        len(looked),
        left_out,
    )


def some(problems: Sequence[Problem], characters: int | None = None) -> Sequence[Problem]:
    """The problems; if their rationales have more than ``characters`` in all (`MOST_CHARACTERS`), evenly spread ones with about
    that many."""
    characters = characters or MOST_CHARACTERS
    there = sum(len(problem.rationale or "") for problem in problems)
    if there <= characters:
        return problems
    count = max(1, len(problems) * characters // there)
    return [problems[index * len(problems) // count] for index in range(count)]


def _scaled(found: TaskCheck, problems: int) -> TaskCheck:
    if found.problems == problems:
        return found

    def up(count: int) -> int:
        return round(count * problems / found.problems) if found.problems else 0

    names = ("usable", "rationales", "steps_total", "unread")
    counts: dict[str, Any] = {name: up(getattr(found, name)) for name in names}
    unusable = {reason: up(count) for reason, count in found.unusable.items()}
    return dataclasses.replace(found, problems=problems, unusable=unusable, **counts)


class _Work:
    """The rows of a check with their token counts, to be summed a task at a time."""

    def __init__(
        self,
        problems: Sequence[Problem],
        collected: Collected,
        pieces: Cut,
        results: Sequence[tuple[str, ...]],
        count_tokens: CountTokens,
        commas: set[str],
    ) -> None:
        self.commas = commas
        self.problems = {problem.id: problem for problem in problems}
        self.rationales = rationales = collected.rationales
        parts: dict[str, list[str]] = {problem.id: [problem.question] for problem in problems}
        for rationale in rationales:
            parts[rationale.problem].append(rationale.text)
        self.unread: dict[str, str] = {}
        for problem in problems:
            texts = "\n".join([problem.answer, *parts[problem.id]])
            if found := unread_numbers(with_points(texts) if problem.task in commas else texts):
                self.unread[problem.id] = found[0]
        self.rows = list(zip(pieces.steps, results, strict=True))
        self.dropped = [*collected.dropped, *pieces.dropped]
        text_of = {(row.problem, row.sample): row.text for row in rationales}
        self.prose = {(row.problem, row.sample): count_tokens(text_of[row.problem, row.sample]) + _END for row in pieces.steps}
        self.trace = {
            (row.problem, row.sample): _DELIMITERS
            + len(row.segments)
            + sum(count_tokens(result) for result in found if result)
            + count_tokens(self.problems[row.problem].answer)
            + _END
            for row, found in self.rows
        }

    def check(self, task: str | None) -> TaskCheck:
        problems = {problem.id for problem in self.problems.values() if task is None or problem.task == task}
        rows = [(row, found) for row, found in self.rows if row.problem in problems]
        usable = {row.problem for row, _ in rows}
        unusable = problems - usable
        reasons: dict[str, str] = {}
        for drop in self.dropped:  # the last reason of a problem is that of its best rationale: how many checks it passed
            if drop.problem in unusable:
                reasons[drop.problem] = drop.reason
        rationales = sum(rationale.problem in problems for rationale in self.rationales)
        results = [result for _, found in rows for result in found]
        proses = [self.prose[row.problem, row.sample] for row, _ in rows]
        traces = [self.trace[row.problem, row.sample] for row, _ in rows]
        unread = [found for problem, found in self.unread.items() if problem in problems]
        prose, trace = _mean(proses), _mean(traces)
        return TaskCheck(
            problems=len(problems),
            usable=len(usable),
            unusable=dict(sorted(Counter(reasons.values()).items())),
            rationales=rationales,
            share_segmentable=round(len(rows) / rationales, 4) if rationales else None,
            steps=spread([len(row.segments) for row, _ in rows]),
            rules=dict(sorted(Counter(row.rule for row, _ in rows).items())),
            share_results_empty=round(sum(not result for result in results) / len(results), 4) if results else 0.0,
            rationale_tokens=prose,
            trace_tokens=trace,
            speedup=round(prose / trace, 2) if prose is not None and trace is not None else None,
            steps_total=len(results),
            rationale_tokens_longest=max(proses, default=0),
            trace_tokens_longest=max(traces, default=0),
            steps_longest=max((len(row.segments) for row, _ in rows), default=0),
            calculated=round(sum("=" in result for result in results) / len(results), 4) if results else 0.0,
            unread=len(unread),
            unread_example=unread[0] if unread else "",
            decimal_commas=bool({self.problems[problem].task for problem in problems} & self.commas),
        )


def _mean(values: Sequence[int]) -> float | None:
    return round(sum(values) / len(values), 2) if values else None
