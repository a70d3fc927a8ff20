"""What each step produced, short (paper 3.3): by the task's rule, from a file, or not at all; `writers` has models write it.

A worked example: the steps ``("48 / 2 = 24 clips in May.", "48 + 24 = 72 clips in all.")`` have the results
``("24", "72")``. A step may have an empty result; a result that is long or holds trace tokens is left empty.

Another way of writing results is one class and one line in ``WRITERS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cirf import recipe
from cirf.errors import CirfError
from cirf.rationales.files import find_file
from cirf.rationales.marks import option_starts
from cirf.rationales.units import with_unit
from cirf.rationales.working import working
from cirf.records import Problem, Steps
from cirf.rows import numbered_rows
from cirf.tasks.answers import number_value
from cirf.tasks.steps import numbers_in, worked_out
from cirf.tasks.task import Task

_SPACE = re.compile(r"\s+")
_TRACE_TOKEN = re.compile(r"</?(?:cirf|think)\w*>")


class ResultWriter(Protocol):
    """Says what the steps of one rationale produced: one text a step, empty allowed, in order."""

    def write(self, steps: Steps, problem: Problem, task: Task) -> tuple[str, ...]:
        """The results of ``steps``; the problem's answer may be looked at, as the paper's prompt does."""
        ...


@dataclass(frozen=True, slots=True)
class RuleWriter:
    """Each step by the rule of its task, which sees the results before it.

    Whatever the final answer is, a result that is a number keeps its noun with ``units`` (``21 pens``), and with ``working`` the
    calculation or the equation it comes from (``6+12+3=21``, ``3X=21``), unless it would be longer than ``longest`` characters.
    With ``used`` a step of several equations keeps, before its last value, those that a later step goes on with::

        "She has 2 * 6 = 12 clips and 6 - 3 = 3 pins."   "In all 6 + 12 + 3 = 21."     ->  "12, 3"   "21"
    """

    used: bool = False
    units: bool = False
    working: bool = False
    longest: int = 40

    def write(self, steps: Steps, problem: Problem, task: Task) -> tuple[str, ...]:
        """One result a step, by ``task.result``; none for a step that goes through several options (``segments.options``)."""
        results: list[str] = []
        for place, segment in enumerate(steps.segments):
            several = place == 0 and steps.rule == "option" and option_starts(segment, len(problem.choices or ()))
            results.append("" if several else task.result(segment, problem, tuple(results)))
        values = _used(steps.segments, results, problem) if self.used else [[result] for result in results]
        return tuple(self._text(row, segment) for row, segment in zip(values, steps.segments, strict=True))

    def _text(self, values: Sequence[str], segment: str) -> str:
        """The values of one step as its result."""
        named = [with_unit(value, segment) if self.units else value for value in values]
        bare = ", ".join(named)
        if not self.working:
            return bare
        full = ", ".join(working(value, segment) + name for value, name in zip(values, named, strict=True))
        return full if len(full) <= self.longest else bare


def _used(segments: Sequence[str], results: Sequence[str], problem: Problem) -> list[list[str]]:
    """Of each step the values that later steps go on with, and its last."""
    known = numbers_in(problem.question)
    full = []
    for place, (segment, last) in enumerate(zip(segments, results, strict=True)):
        later = numbers_in(*segments[place + 1 :])
        values = {text: number_value(text) for text in worked_out(segment) if text != last} if last else {}
        kept = [text for text, value in values.items() if value in later and value not in known]
        known |= {value for value in (*values.values(), number_value(last)) if value is not None}
        full.append([*kept, last])
    return full


@dataclass(frozen=True, slots=True)
class NoWriter:
    """Codes alone: every result empty."""

    def write(self, steps: Steps, problem: Problem, task: Task) -> tuple[str, ...]:
        """Empty texts."""
        return ("",) * len(steps.segments)


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Results written beforehand, keyed by problem and sample; ``where`` names each row for messages."""

    path: str
    rows: Mapping[tuple[str, int], tuple[str, tuple[str, ...]]]

    def write(self, steps: Steps, problem: Problem, task: Task) -> tuple[str, ...]:
        """The file's results; ``CirfError`` if there are none or not one a step."""
        found = self.rows.get((steps.problem, steps.sample))
        if found is None:
            wanted = f"problem {steps.problem}, sample {steps.sample}"
            raise CirfError(f"{self.path}: no row for {wanted}; add one with {len(steps.segments)} results")
        where, results = found
        if len(results) != len(steps.segments):
            raise CirfError(
                f"{where}: {len(results)} results for the {len(steps.segments)} steps of problem {steps.problem}, "
                f"sample {steps.sample}; give one result a step, empty where there is none"
            )
        return results


def _read_file(section: recipe.Results, data: str | None) -> FileWriter:
    if section.file is None:
        raise CirfError("results.file: not set although results.by is file; name a JSONL file with problem, sample and results")
    path = find_file(section.file, data, "results.file")
    rows: dict[tuple[str, int], tuple[str, tuple[str, ...]]] = {}
    for line, raw in numbered_rows(path):
        where = f"{path}, line {line}"
        problem, sample, results = raw.get("problem"), raw.get("sample", 0), raw.get("results")
        if not isinstance(problem, str):
            raise CirfError(f"{where}: `problem` must be a problem's id as a text; add it")
        if not isinstance(sample, int) or isinstance(sample, bool):
            raise CirfError(f"{where}: `sample` must be a whole number; 0 is the problem's first rationale")
        if not isinstance(results, list) or not all(isinstance(result, str) for result in results):
            raise CirfError(f"{where}: `results` must be a list of texts, one a step, empty where a step has none")
        if (problem, sample) in rows:
            raise CirfError(f"{where}: problem {problem}, sample {sample} stands twice; remove one row")
        rows[problem, sample] = (where, tuple(results))
    return FileWriter(str(path), rows)


def _by_rule(section: recipe.Results) -> RuleWriter:
    return RuleWriter(section.values == "used", section.units == "keep", section.working == "keep", section.max_characters)


WRITERS: dict[str, Callable[[recipe.Results, str | None], ResultWriter]] = {
    "rule": lambda section, data: _by_rule(section),
    "llm": lambda section, data: _by_rule(section),  # what its rows fall back to; see cirf.rationales.writers
    "none": lambda section, data: NoWriter(),
    "file": _read_file,
}
"""``results.by`` to the writer it means; called with the section and the data folder."""


def write_results(
    steps: Sequence[Steps],
    problems: Sequence[Problem],
    tasks: Mapping[str, Task],
    section: recipe.Results,
    data: str | None = None,
) -> list[tuple[str, ...]]:
    """The results of every step, aligned: ``out[i][j]`` belongs to ``steps[i].segments[j]`` (paper 3.3).

    Pass the annotated steps (``Cut.annotated``) so that rules see calculator notes. A result of more than
    ``section.max_characters`` characters is left empty. Raises ``CirfError`` for a file that does not fit the steps.
    """
    writer = WRITERS[section.by](section, data)
    by_id = {problem.id: problem for problem in problems}
    written: list[tuple[str, ...]] = []
    for row in steps:
        problem = by_id.get(row.problem)
        if problem is None:
            raise CirfError(
                f"steps of problem {row.problem}: no such training problem; cut the rationales of these problems again"
            )
        results = writer.write(row, problem, tasks[problem.task])
        written.append(shortened(results, section))
    return written


def shortened(results: Sequence[str], section: recipe.Results) -> tuple[str, ...]:
    """Results as they may stand in a trace: what is too long, or holds the trace's own tokens, is left empty."""
    return tuple(_short(result, section.max_characters) for result in results)


def statistics(results: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Counts over all results: steps, share empty, mean characters of those that are not."""
    flat = [result for row in results for result in row]
    filled = [len(result) for result in flat if result]
    return {
        "steps": len(flat),
        "share_empty": round(1 - len(filled) / len(flat), 4) if flat else 0.0,
        "mean_characters": round(sum(filled) / len(filled), 2) if filled else 0.0,
        "rows_without_results": sum(not any(row) for row in results),
    }


def _short(result: str, maximum: int) -> str:
    """A result as it may stand in a trace: on one line, not over length, without the trace's own tokens."""
    line = _SPACE.sub(" ", result).strip()
    return "" if len(line) > maximum or _TRACE_TOKEN.search(line) else line
