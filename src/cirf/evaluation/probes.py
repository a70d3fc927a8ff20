"""Probes: do thoughts or functional tokens affect the answer? Answers to the same questions after perturbed ones.

One row a question and probe, ``<task>.jsonl``::

    {"probe": "swap", "id": "test-3", "output": "72", "parsed": "72", "gold": "65", "correct": false, "tokens": 2,
     "truncated": false, "unparsed": false, "changed": true, "partner": "test-8", "as_partner": true}

Two more are added to the requested probes: ``none``, the unperturbed answers, with which all are compared question by question,
and ``keep``, a probe that changes nothing, whose answers should be the same. ``changed``: whether there was anything to perturb;
``partner``: whose thoughts were swapped in; ``as_partner``: whether the answer is right for that question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cirf.errors import CirfError
from cirf.evaluation.harness import FIELDS, Questions, Row, compare_rows, hide, judge, read, score
from cirf.progress import Progress
from cirf.recipe.schema import Evaluate
from cirf.records import Problem
from cirf.statistics import corrected, mean
from cirf.store.files import RowLog, to_json, write_atomic, write_rows

if TYPE_CHECKING:
    from cirf.evaluation.perturb import Probed
    from cirf.methods.base import Method
    from cirf.tasks.task import Task

KEEP, NONE = "keep", "none"
"""The probe that changes nothing, and no probe at all."""

Ask = Callable[[list[str], list[str], int], Mapping[str, "Sequence[Probed]"]]
"""Rendered prompts of a batch, names of their questions, and a cap in tokens, to the answers under ``none``, ``keep`` and
every probe, in order. It must depend only on its arguments."""


class ProbedModel(NamedTuple):
    """The answering model under probes. ``render`` is the chat template around a user's turn."""

    method: Method
    ask: Ask
    render: Callable[[str], str]


def probe(
    subject: ProbedModel,
    questions: Questions,
    probes: Sequence[str],
    section: Evaluate,
    work: Path,
    progress: Progress,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Ask every test problem under every probe; write ``work/<task>.jsonl`` and ``work/probes.json``, which it returns and which
    begins with the entries of ``about``.

    Batches are fixed, of questions of similar prompt length, and have at least two if possible, so that each has another to swap
    with. A killed probing resumes at the first incomplete batch; rows are kept in ``work/scratch`` until the caller no longer
    needs them. ``CirfError``: no problems.
    """
    if not any(questions.test.values()):
        raise CirfError("evaluate.probes: there is no test problem to probe with")
    names = (NONE, KEEP, *probes)
    rows: dict[str, list[Row]] = {}
    for name, problems in questions.test.items():
        if problems:
            table = _Table(name, questions.tasks[name], list(problems), subject, section, names, work)
            rows[name] = table.fill(subject.ask, progress)
    details = {"method": subject.method.name, **about, "probes": summary(rows, probes)}
    write_atomic(work / "probes.json", to_json(details))
    return details


class _Table:
    def __init__(
        self,
        name: str,
        task: Task,
        problems: list[Problem],
        subject: ProbedModel,
        section: Evaluate,
        names: Sequence[str],
        work: Path,
    ) -> None:
        method = subject.method
        self.name, self.task, self.problems, self.method, self.names, self.work = name, task, problems, method, names, work
        self.cap, self.batch_size = method.budget(task, section), max(2, section.batch_size)
        self.rendered = [subject.render(method.prompt(hide(problem), task)) for problem in problems]

    def batches(self) -> Iterator[list[int]]:
        """Problem indices, those of like prompt length together; the last batch is never of one alone."""
        order = sorted(range(len(self.problems)), key=lambda i: (len(self.rendered[i]), i))
        starts = list(range(0, len(order), self.batch_size))
        ends = [*starts[1:], len(order)]
        if len(starts) > 1 and ends[-1] - starts[-1] == 1:
            starts[-1] -= 1
            ends[-2] -= 1
        for start, end in zip(starts, ends, strict=True):
            if end > start:
                yield order[start:end]

    def fill(self, ask: Ask, progress: Progress) -> list[Row]:
        """All rows, probe by probe in the order of the problems; generates only missing ones."""
        log = RowLog(self.work / "scratch" / f"{self.name}.jsonl")
        rows = {(row["probe"], row["id"]): row for row in log.rows(**FIELDS, probe=str, changed=bool)}
        wanted = [(batch, {(name, self.problems[i].id) for name in self.names for i in batch}) for batch in self.batches()]
        missing = [batch for batch, keys in wanted if not keys <= rows.keys()]
        label = f"{self.method.name}, probed on {self.name}"
        done = len(self.problems) - sum(map(len, missing))
        with progress.task(label, len(self.problems), "problems", done) as advance:
            for batch in missing:
                ids = [self.problems[i].id for i in batch]
                found = ask([self.rendered[i] for i in batch], ids, self.cap)
                fresh = [self.row(n, batch, index, one) for n in self.names for index, one in enumerate(found[n])]
                log.append(*fresh)
                rows.update({(row["probe"], row["id"]): row for row in fresh})
                advance(len(batch))
        ordered = [rows[name, problem.id] for name in self.names for problem in self.problems]
        write_rows(self.work / f"{self.name}.jsonl", ordered)
        return ordered

    def row(self, name: str, batch: list[int], place: int, probed: Probed) -> Row:
        problem, output = self.problems[batch[place]], probed.output
        answer = read(self.method, output)[1]
        parsed, correct = judge(answer, problem, self.task)
        row: Row = {"probe": name, "id": problem.id, "run": 0, "output": output.text, "parsed": parsed, "gold": problem.answer}
        row |= {"correct": correct, "tokens": output.tokens, "truncated": output.truncated, "unparsed": parsed is None}
        row["changed"] = probed.changed
        if probed.partner is not None:
            other = self.problems[batch[probed.partner]]
            row |= {"partner": other.id, "as_partner": judge(answer, other, self.task)[1]}
        return row


def summary(rows: Mapping[str, Sequence[Row]], probes: Sequence[str]) -> dict[str, Any]:
    """For each probe the scores over all questions, compared with the unperturbed answers.

    ``changed``: the share of questions in which anything was changed; ``moved``: the share whose answer is another than without
    the probe; ``as_partner``: of those with another question's thoughts, the share answered as that question rightly is, with
    ``n_partner`` of them; ``against``: the paired comparison with the unperturbed answers, p-values corrected by Holm for
    all ``probes``. ``tasks``: accuracy by task.
    """
    tables = {
        name: {task: [row for row in part if row["probe"] == name] for task, part in rows.items()}
        for name in (NONE, KEEP, *probes)
    }
    plain = {(task, row["id"]): _said(row) for task, part in tables[NONE].items() for row in part}
    compared = {name: found for name in probes if (found := compare_rows(tables[name], tables[NONE])) is not None}
    against = corrected(compared)
    details: dict[str, Any] = {}
    for name, tasks in tables.items():
        pooled = [{**row, "id": f"{task}/{row['id']}"} for task, part in tasks.items() for row in part]
        swapped = [row["as_partner"] for row in pooled if "as_partner" in row]
        details[name] = {
            **score(pooled).to_dict(),
            "changed": mean([row["changed"] for row in pooled]),
            "moved": mean([_said(row) != plain[task, row["id"]] for task, part in tasks.items() for row in part]),
            **({"as_partner": mean(swapped), "n_partner": len(swapped)} if swapped else {}),
            **({"against": against[name].to_dict()} if name in against else {}),
            "tasks": {task: score(part).to_dict() for task, part in tasks.items()},
        }
    return details


def _said(row: Row) -> tuple[bool, str]:
    """An answer, or the output if none could be read."""
    return (True, row["parsed"]) if row["parsed"] is not None else (False, row["output"])
