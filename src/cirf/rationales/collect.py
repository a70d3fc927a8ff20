"""Rationales collected from files and from the data set, checked against the answers.

A file's row finds its problem by id or by question::

    {"question": "Q: Natalia sold clips ...", "rationale": "Step 1: 48 / 2 = 24 ...", "answer": "72"}   ->  train-0, agrees

Of each problem the first ``per_problem`` rationales stay: files in the order given, each in its own order, then the data
set's own solution; or, where language models are the source, their answers sample by sample.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.rationales.conclusions import closes_with, stated_answer
from cirf.rationales.files import Matcher, Row, find_file, read_rationales
from cirf.rationales.thoughts import rationale_of
from cirf.recipe import schema
from cirf.records import Dropped, Problem, Rationale, TeacherRationale
from cirf.tasks.loading.unusable import Tolerance, Unusable
from cirf.tasks.task import Task

_STAGE = "rationales"
_EXAMPLES = 3
_SHOWN = 60  # characters of an answer


@dataclass(frozen=True, slots=True)
class Collected:
    """The rationales in the order of the problems, what was dropped and why, counts by source and file, and the rows of files
    that could not be used."""

    rationales: list[Rationale]
    dropped: list[Dropped]
    report: dict[str, Any]
    unusable: list[Unusable]


@dataclass(slots=True)
class _Gathering:
    """The state so far: offered texts per problem, in order of preference."""

    offered: dict[str, list[tuple[str, str, bool | None, str | None]]]
    dropped: list[Dropped] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    """For the first few rationales with another answer than their question: both answers."""

    def differs(self, where: str, problem: Problem, text: str, answer: str | None, task: Task) -> None:
        if len(self.differing) < _EXAMPLES:
            said = stated_answer(text, problem, task) or answer
            says = f"says `{said[:_SHOWN]}`" if said else f"ends `{' '.join(text.split())[-_SHOWN:]}`"
            self.differing.append(f"{where} has `{problem.answer[:_SHOWN]}`, its rationale {says}")

    def offer(self, problem: Problem, text: str, source: str, agrees: bool | None, prompt: str | None = None) -> bool:
        """Add a rationale; ``False`` if this very text of this problem is there already."""
        texts = self.offered[problem.id]
        if any(text.strip() == other.strip() for other, *_ in texts):
            return False
        texts.append((text, source, agrees, prompt))
        return True


def collect(
    problems: Sequence[Problem],
    section: schema.Rationales,
    data: str | None,
    tasks: Mapping[str, Task],
    taught: Sequence[TeacherRationale] = (),
    tolerance: Tolerance | None = None,
) -> Collected:
    """Rationales for the training problems (paper A.2, CoT Collection), at most ``section.per_problem`` a problem.

    ``data``: the folder of mirrored data sets, where files are looked for too; ``tasks``: table name to task; ``taught``: what
    language models wrote, for ``source: teacher``. A row's own ``answer``, and the answer its text states outright, are compared
    with the problem's; ``check: drop`` drops those that differ. Raises ``CirfError`` for a file that is missing, for one with
    more malformed rows than the ``tolerance`` allows (without one: for the first), and if not one rationale is left.
    """
    found = gather(problems, section, data, tasks, tolerance, taught)
    if problems and not found.rationales:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in found.report["reasons"].items())
        advice = "name files whose questions are the training problems' in rationales.files, or add a `rationale` to the problems"
        if section.source == "teacher":
            advice = "try more rationales.teacher.samples, another prompt or model, or rationales.check=keep"
            if found.report["reasons"].get("cut off", 0) > len(problems) / 2:
                advice = "raise rationales.teacher.max_tokens, or ask for shorter answers in rationales.teacher.prompt"
        if found.report.get("differing"):
            reasons += f"; {found.report['differing'][0]}"
            advice = f"{advice}, or set rationales.check=keep" if section.source != "teacher" else advice
        raise CirfError(
            f"rationales.source={section.source}: no rationale for any of {len(problems)} training problems ({reasons}); {advice}"
        )
    return found


def gather(
    problems: Sequence[Problem],
    section: schema.Rationales,
    data: str | None,
    tasks: Mapping[str, Task],
    tolerance: Tolerance | None = None,
    taught: Sequence[TeacherRationale] = (),
) -> Collected:
    """As ``collect``, but returns nothing instead of raising if nothing is found."""
    if section.source == "files" and not section.files:
        raise CirfError("rationales.files: empty although rationales.source is files; name one or set rationales.source=dataset")
    tolerance = tolerance or Tolerance(0)
    state = _Gathering({problem.id: [] for problem in problems})
    matcher = Matcher(problems)
    files: dict[str, dict[str, Any]] = {}
    if section.source in ("auto", "files"):
        for name in section.files:
            path = find_file(name, data, "rationales.files")
            refused = tolerance.begin()
            rows = read_rationales(path, refused)
            tolerance.settle(path.name, len(rows), refused)
            files[name] = _from_file(rows, path, matcher, state, section, tasks)
    dataset = _from_dataset(problems, state, section, tasks) if section.source in ("auto", "dataset") else None
    models = _from_teachers(problems, taught, state, section) if section.source == "teacher" else None
    touched = {row.problem for row in state.dropped}
    rationales: list[Rationale] = []
    for problem in problems:
        kept = state.offered[problem.id][: section.per_problem]
        rationales.extend(
            Rationale(problem.id, sample, text, source, agrees, prompt)
            for sample, (text, source, agrees, prompt) in enumerate(kept)
        )
        if not kept and problem.id not in touched:
            state.dropped.append(Dropped(problem.id, None, _STAGE, "no rationale"))
    report = _report(problems, rationales, state, files, dataset, models)
    report |= tolerance.report | {"reasons": dict(sorted((tolerance.reasons + Counter(report["reasons"])).items()))}
    return Collected(rationales, state.dropped, report, tolerance.files)


def _from_file(
    rows: Sequence[Row], path: Path, matcher: Matcher, state: _Gathering, section: schema.Rationales, tasks: Mapping[str, Task]
) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    unmatched: list[str] = []
    duplicates: list[str] = []
    for row in rows:
        counts["rows"] += 1
        candidates = matcher.candidates(row)
        if not candidates:
            counts["unmatched"] += 1
            unmatched.append(row.where)
            continue
        counts["matched"] += 1
        problem, agrees = _speaks_of(row, candidates, tasks)
        counts[_verdict(agrees)] += 1
        if agrees is False:
            state.differs(row.where, problem, row.rationale, row.answer, _task(tasks, problem))
        if agrees is False and section.check == "drop":
            state.dropped.append(Dropped(problem.id, None, _STAGE, "another answer"))
        elif not state.offer(problem, row.rationale, path.stem, agrees):
            duplicates.append(row.where)
            state.dropped.append(Dropped(problem.id, None, _STAGE, "duplicate"))
    return {
        "path": str(path),
        **{name: counts[name] for name in ("rows", "matched", "unmatched", "agree", "differ", "unread")},
        "duplicates": len(duplicates),
        "first_unmatched": unmatched[:_EXAMPLES],
        "first_duplicates": duplicates[:_EXAMPLES],
    }


def _from_dataset(
    problems: Sequence[Problem], state: _Gathering, section: schema.Rationales, tasks: Mapping[str, Task]
) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for problem in problems:
        if problem.rationale is None:
            continue
        counts["rows"] += 1
        if not problem.rationale.strip():
            state.dropped.append(Dropped(problem.id, None, _STAGE, "empty rationale"))
            continue
        text = rationale_of(problem.rationale)
        agrees = agrees_with(text, None, problem, _task(tasks, problem))
        counts[_verdict(agrees)] += 1
        if agrees is False:
            state.differs(problem.id, problem, text, None, _task(tasks, problem))
        if agrees is False and section.check == "drop":
            state.dropped.append(Dropped(problem.id, None, _STAGE, "another answer"))
        else:
            state.offer(problem, text, "dataset", agrees)
    return {name: counts[name] for name in ("rows", "agree", "differ", "unread")}


def _from_teachers(
    problems: Sequence[Problem], taught: Sequence[TeacherRationale], state: _Gathering, section: schema.Rationales
) -> dict[str, dict[str, int]]:
    """Offer the usable answers of teachers for ``problems``, surely right ones first; drop the rest with a reason."""
    by_id = {problem.id: problem for problem in problems}
    counts: dict[str, Counter[str]] = {}
    models = list(dict.fromkeys(row.model for row in taught))
    dealt = section.per_problem < len(models)

    def preference(row: TeacherRationale) -> tuple[bool, int, int]:
        """Right answers first. Where not every model's answer is kept, each model is the first for as many problems."""
        first = int.from_bytes(hashlib.sha256(row.problem.encode()).digest()[:4], "big") if dealt else 0
        return row.right is not True, row.sample, (models.index(row.model) + first) % len(models)

    for row in sorted(taught, key=preference):
        if row.problem not in by_id:
            continue
        count = counts.setdefault(row.model, Counter())
        count["rows"] += 1
        count[_verdict(row.right)] += 1
        fault = row.fault(section.check)
        if fault is not None:
            state.dropped.append(Dropped(row.problem, None, _STAGE, fault))
        elif not state.offer(by_id[row.problem], row.text, row.model, row.right, row.prompt):
            state.dropped.append(Dropped(row.problem, None, _STAGE, "duplicate"))
    return {model: {name: count[name] for name in ("rows", "agree", "differ", "unread")} for model, count in counts.items()}


def _speaks_of(row: Row, candidates: Sequence[Problem], tasks: Mapping[str, Task]) -> tuple[Problem, bool | None]:
    """Of several problems with the same question (other choices, another answer), the first that the row agrees with."""
    verdicts = [(problem, agrees_with(row.rationale, row.answer, problem, _task(tasks, problem))) for problem in candidates]
    return next((pair for pair in verdicts if pair[1]), verdicts[0])


def agrees_with(text: str, answer: str | None, problem: Problem, task: Task) -> bool | None:
    """Whether a rationale ends in the problem's answer, ``None`` where it states none that can be read. ``answer``: the answer in
    its row, which may be a copy of the true one, so the text counts."""
    if answer is not None:
        parsed = task.parse(answer, problem)
        if not (task.equal(answer, problem) or (parsed is not None and task.equal(parsed, problem))):
            return False
    stated = stated_answer(text, problem, task)
    if stated is not None:
        return task.equal(stated, problem)
    closing = closes_with(text, problem, task)
    return closing if closing is not None or answer is None else True


def _task(tasks: Mapping[str, Task], problem: Problem) -> Task:
    try:
        return tasks[problem.task]
    except KeyError:
        raise CirfError(
            f"problem {problem.id}: its task {problem.task} is not in problems.tasks ({', '.join(sorted(tasks))})"
        ) from None


def _verdict(agrees: bool | None) -> str:
    return "unread" if agrees is None else "agree" if agrees else "differ"


def unmatched(report: Mapping[str, Any], every: bool = False) -> list[str]:
    """A sentence for each file of rationales with rows that match no training question; ``report`` is `Collected`'s. ``every``:
    only for files with no other row, since a run may draw few of the questions that a file has rationales for."""
    return [
        f"{name}: {counts['unmatched']:,} of {counts['rows']:,} rows match no training question, "
        f"the first that of {counts['first_unmatched'][0].rpartition(', ')[2]}"
        for name, counts in report["files"].items()
        if counts["unmatched"] and not (every and counts["matched"])
    ]


def other_answers(report: Mapping[str, Any]) -> str | None:
    """A sentence on the rationales that end in another answer than their question has; ``report`` is `Collected`'s."""
    if not report.get("differing"):
        return None
    count = sum(part["differ"] for part in (*report["files"].values(), report["dataset"] or {"differ": 0}))
    plural = "rationales end" if count > 1 else "rationale ends"
    return f"{count:,} {plural} in another answer: {report['differing'][0]}; fix them, or set rationales.check=keep"


def _report(
    problems: Sequence[Problem],
    rationales: Sequence[Rationale],
    state: _Gathering,
    files: Mapping[str, Mapping[str, Any]],
    dataset: Mapping[str, int] | None,
    models: Mapping[str, Mapping[str, int]] | None,
) -> dict[str, Any]:
    differing = {"differing": state.differing} if state.differing else {}
    covered = {rationale.problem for rationale in rationales}
    offered = sum(len(texts) for texts in state.offered.values())
    return {
        "problems": len(problems),
        "problems_with_rationale": len(covered),
        "rationales": len(rationales),
        "surplus": offered - len(rationales),
        "sources": dict(sorted(Counter(rationale.source for rationale in rationales).items())),
        "agrees": dict(sorted(Counter(_verdict(rationale.agrees) for rationale in rationales).items())),
        "reasons": dict(sorted(Counter(row.reason for row in state.dropped).items())),
        "files": {name: dict(counts) for name, counts in files.items()},
        "dataset": dict(dataset) if dataset is not None else None,
        "models": dict(models) if models is not None else None,
        **differing,
    }
