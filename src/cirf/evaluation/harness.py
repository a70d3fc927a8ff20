"""Accuracy: every method answers the same questions, and every number can be recomputed from the rows.

One row a question and run, ``<task>.jsonl``::

    {"id": "test-3", "run": 0, "prompt": "Natalia ...", "output": "<cirf_016>48<cirf_023>72</cirf>72",
     "trace": "<cirf_016>48<cirf_023>72", "answer": "72", "parsed": "72", "gold": "72", "correct": true,
     "tokens": 9, "truncated": false, "unparsed": false, "well_formed": true}

``trace`` has the thoughts of a model that thinks first (``<think>...</think>``), too. A question that a server did not answer
has an empty output, and the reason under ``failed``.

A method never sees the answer: it gets a copy of the problem without answer and rationale, and so does the parser. Only the
comparison of the parsed with the right answer sees both.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cirf.distributed import ALONE, Share
from cirf.errors import CirfError
from cirf.progress import Progress
from cirf.recipe.schema import Evaluate
from cirf.records import Problem
from cirf.statistics import Comparison, Interval, compare, mean, wilson
from cirf.store.files import RowLog, to_json, write_atomic, write_rows
from cirf.store.jsonl import read_rows
from cirf.tasks.parsing.thoughts import opens_thoughts

if TYPE_CHECKING:
    from cirf.methods.base import Method
    from cirf.tasks.task import Task

Row = dict[str, Any]


class Output(Protocol):
    """What a model wrote: ``tokens`` counts the generated ids with the end token, ``truncated`` if the cap cut it."""

    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> int: ...
    @property
    def truncated(self) -> bool: ...


FIELDS: dict[str, type | UnionType] = {
    "id": str, "run": int, "output": str, "parsed": str | None, "gold": str, "correct": bool, "tokens": int, "truncated": bool,
    "unparsed": bool,
}  # fmt: skip
"""The fields of every row."""

Generate = Callable[[list[str], int, int], Sequence[Output]]
"""Rendered prompts, cap in tokens and number of the run to one output a prompt, in order. It must depend only on its arguments (a
sampling one is seeded by the run and the prompts), or a resumed evaluation would differ."""


@dataclass(frozen=True, slots=True)
class Score:
    """The numbers of one task, or of all of them.

    ``accuracy``, ``truncated`` and ``unparsed`` are shares over all rows, ``n`` counts distinct questions,
    ``interval`` is Wilson's for ``n`` questions (runs repeat questions, they add none), ``tokens`` is the mean number
    of generated tokens with the end token, ``runs`` the accuracy of every run. ``well_formed`` is the share of finished outputs
    in the method's form (see `Method.well_formed`); ``None`` without a form. ``failed``: how many answers a server did not give,
    which are wrong; ``tokens`` is the mean of the others.
    """

    accuracy: float
    n: int
    interval: Interval
    tokens: float
    truncated: float
    unparsed: float
    runs: tuple[float, ...]
    well_formed: float | None = None
    failed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """For JSON; ``runs`` only where there were several, ``accuracy`` being their mean."""
        row = {**dataclasses.asdict(self), "interval": list(self.interval), "runs": list(self.runs)}
        if len(self.runs) == 1:
            del row["runs"]
        if self.well_formed is None:
            del row["well_formed"]
        if not self.failed:
            del row["failed"]
        return row


@dataclass(frozen=True, slots=True)
class Scores:
    """``overall`` pools the questions of all tasks; ``mean_of_tasks`` weighs each task alike. ``subsets`` holds the parts of
    the tasks that have parts, such as the 27 of BBH."""

    overall: Score
    tasks: Mapping[str, Score]
    subsets: Mapping[str, Mapping[str, Score]] = dataclasses.field(default_factory=dict)

    @property
    def mean_of_tasks(self) -> float:
        """Mean of the tasks' accuracies, the paper's average."""
        return mean([score.accuracy for score in self.tasks.values()])

    def to_dict(self) -> dict[str, Any]:
        tasks = {name: score.to_dict() for name, score in self.tasks.items()}
        for name, parts in self.subsets.items():
            tasks[name]["subsets"] = {subset: part.to_dict() for subset, part in parts.items()}
        return {"overall": self.overall.to_dict(), "mean_of_tasks": self.mean_of_tasks, "tasks": tasks}


def hide(problem: Problem) -> Problem:
    """A copy without answer and rationale, for prompts and parsing."""
    return dataclasses.replace(problem, answer="", rationale=None)


def judge(answer: str, problem: Problem, task: Task) -> tuple[str | None, bool]:
    """The parsed answer, and whether it is right; the parser does not see the right answer."""
    parsed = task.parse(answer, hide(problem))
    return parsed, parsed is not None and task.equal(parsed, problem)


@dataclass(frozen=True, slots=True)
class Questions:
    """Tasks and their test problems by table name; a table without problems is left out."""

    tasks: Mapping[str, Task]
    test: Mapping[str, Sequence[Problem]]


@dataclass(frozen=True, slots=True)
class Answerer:
    """The answering model. ``method`` builds the user's turn and reads the output; ``render`` is the chat template around that
    turn."""

    method: Method
    generate: Generate
    render: Callable[[str], str]


def evaluate(
    answerer: Answerer,
    questions: Questions,
    section: Evaluate,
    work: Path,
    progress: Progress,
    share: Share = ALONE,
) -> Scores:
    """Answer every test problem and score the answers; write ``work/<task>.jsonl`` and ``work/scores.json``.

    ``section``: batch size, runs (a greedy evaluation has one, as all would be equal) and caps; ``share``: of the batches, for
    several processes, which must all call this and all get the scores.

    Problems are decoded in fixed batches of similar prompt length, independent of what is already done; a killed evaluation
    resumes at the first incomplete batch and ends with the same bytes. ``CirfError``: no problems, a duplicate id, a task name
    that cannot name a file, or a folder with rows of others.
    """
    wanted = {name: list(problems) for name, problems in questions.test.items() if problems}
    if not wanted:
        raise CirfError("there are no test problems to evaluate on; raise problems.tasks.test or check the data")
    runs = section.runs if section.temperature > 0 else 1
    rows = {}
    for name, problems in wanted.items():
        one = _Table(name, questions.tasks[name], problems, answerer, section, runs, work)
        rows[name] = one.fill(answerer.generate, progress, share)
    scores = scores_from_rows(rows)
    head = {"method": answerer.method.name, "trained": answerer.method.trained}
    if share.main:
        write_atomic(work / "scores.json", to_json({**head, **scores.to_dict()}))
        shutil.rmtree(work / "scratch", ignore_errors=True)
    return scores


class _Table:
    """The rows of one task: those required, and those that exist."""

    def __init__(
        self,
        name: str,
        task: Task,
        problems: list[Problem],
        answerer: Answerer,
        section: Evaluate,
        runs: int,
        work: Path,
    ) -> None:
        if not name or name in (".", "..") or set(name) & set("/\\\0"):
            raise CirfError(f"task {name!r}: the name must be able to name a file; set problems.tasks.name")
        if len({problem.id for problem in problems}) < len(problems):
            twice = next(p.id for i, p in enumerate(problems) if any(p.id == q.id for q in problems[:i]))
            raise CirfError(f"task {name}: two test problems have the id {twice!r}; give each its own")
        method = answerer.method
        self.name, self.task, self.problems, self.method = name, task, problems, method
        self.cap = method.budget(task, section)
        self.prompts = [method.prompt(hide(problem), task) for problem in problems]
        self.rendered = [answerer.render(prompt) for prompt in self.prompts]
        self.batch_size, self.runs, self.work = section.batch_size, runs, work
        self.keys = [(run, problem.id) for run in range(runs) for problem in problems]

    def batches(self) -> Iterator[tuple[int, list[int]]]:
        """Run and problem indices of every batch, problems of like prompt length together."""
        order = sorted(range(len(self.problems)), key=lambda i: (len(self.rendered[i]), i))
        for run in range(self.runs):
            for start in range(0, len(order), self.batch_size):
                yield run, order[start : start + self.batch_size]

    def fill(self, generate: Generate, progress: Progress, share: Share) -> list[Row]:
        """All rows, by run and then in the order of the problems; generates only those that are missing."""
        final, path = self.work / f"{self.name}.jsonl", self.work / "scratch" / f"{self.name}.jsonl"

        def logged() -> dict[tuple[int, str], Row]:
            found: dict[tuple[int, str], Row] = {}
            for one in share.paths(path):
                found |= self.known(RowLog(one).rows(**FIELDS, prompt=str, trace=str, answer=str), one)
            return found

        def look() -> tuple[bool, dict[tuple[int, str], Row]]:
            found = self.known(read_rows(final), final) if final.exists() else {}
            whole = all(key in found for key in self.keys)
            return whole, found if whole else logged()

        whole, rows = share.settled(look)
        if whole:
            return [rows[key] for key in self.keys]
        log = RowLog(share.path(path))
        pending = [(run, batch) for run, batch in self.batches() if not all((run, self.problems[i].id) in rows for i in batch)]
        batches = share.mine(pending)
        missing = sum(len(batch) for _, batch in batches)
        label = f"{self.method.name} on {self.name}"
        with progress.task(label, len(self.keys), "problems", len(self.keys) - missing) as advance:
            for run, batch in batches:
                outputs = generate([self.rendered[i] for i in batch], self.cap, run)
                fresh = [self.row(i, run, output) for i, output in zip(batch, outputs, strict=True)]
                log.append(*fresh)
                rows.update({(run, row["id"]): row for row in fresh})
                advance(len(batch))
        rows = share.settled(logged) if share.of > 1 else rows
        ordered = [rows[key] for key in self.keys]
        if share.main:
            write_rows(final, ordered)
        return ordered

    def known(self, rows: Sequence[Row], path: Path) -> dict[tuple[int, str], Row]:
        """Rows of an earlier attempt, after a check that they answer the same questions."""
        prompts = {problem.id: prompt for problem, prompt in zip(self.problems, self.prompts, strict=True)}
        for row in rows:
            if prompts.get(row.get("id", "")) != row.get("prompt") or row.get("run", -1) not in range(self.runs):
                raise CirfError(f"{path}: holds rows of another evaluation (id {row.get('id')!r}); remove the folder")
        return {(row["run"], row["id"]): row for row in rows}

    def row(self, index: int, run: int, output: Output) -> Row:
        problem = self.problems[index]
        trace, answer, formed = reading(self.method, output, self.rendered[index])
        parsed, correct = judge(answer, problem, self.task)
        return {
            "id": problem.id,
            **({"subset": problem.subset} if problem.subset else {}),
            "run": run,
            "prompt": self.prompts[index],
            "output": output.text,
            "trace": trace,
            "answer": answer,
            "parsed": parsed,
            "gold": problem.answer,
            "correct": correct,
            "tokens": output.tokens,
            "truncated": output.truncated,
            "unparsed": parsed is None,
            **({"failed": failed} if (failed := getattr(output, "failed", "")) else {}),
            **({} if formed is None else {"well_formed": formed and not output.truncated}),
        }


class Reading(NamedTuple):
    """An output's reasoning, its answer, and whether it has the form of the targets (see `Method.well_formed`)."""

    trace: str
    answer: str
    formed: bool | None


def reading(method: Method, output: Output, prompt: str = "") -> Reading:
    """How an output is read. ``prompt`` is the rendered one: an untrained model whose chat template ends in ``<think>`` begins
    within thoughts. Thoughts are part of the reasoning and hold no answer; nor does the last part of a truncated trace."""
    opened = "" if method.trained else opens_thoughts(prompt)
    thoughts, rest = method.set_aside(opened + output.text)
    formed = method.well_formed(rest)
    trace, answer = method.read(rest)
    cut = method.functional and output.truncated and not formed
    return Reading("\n\n".join(filter(None, (thoughts, trace))), "" if cut else answer, formed)


def read(method: Method, output: Output) -> tuple[str, str]:
    """An output's reasoning and its answer."""
    return reading(method, output)[:2]


def only_thoughts(method: Method, row: Mapping[str, Any]) -> bool:
    """Whether the output of an untruncated row or vote consists of thoughts, without an answer after them."""
    thoughts, rest = method.set_aside(row["output"])
    return bool(thoughts and not rest.strip()) and not row["truncated"]


def scores_from_rows(rows: Mapping[str, Sequence[Row]]) -> Scores:
    """The scores of the rows of each task. ``ValueError`` if a task has no rows."""
    tasks = {name: score(table) for name, table in rows.items()}
    pooled = [{**row, "id": f"{name}/{row['id']}"} for name, table in rows.items() for row in table]
    subsets = {name: parts for name, table in rows.items() if (parts := score_subsets(table))}
    return Scores(score(pooled), tasks, subsets)


def score_subsets(rows: Sequence[Row]) -> dict[str, Score]:
    """One `Score` a subset, by name; none where the rows have no subsets."""
    names = sorted({row["subset"] for row in rows if row.get("subset")})
    return {name: score([row for row in rows if row.get("subset") == name]) for name in names}


def score(rows: Sequence[Row]) -> Score:
    """One `Score` of some rows. ``ValueError`` if there are none."""
    accuracy = mean([row["correct"] for row in rows])
    n = len({row["id"] for row in rows})
    runs = sorted({row["run"] for row in rows})
    return Score(
        accuracy=accuracy,
        n=n,
        interval=wilson(min(accuracy * n, n), n),
        tokens=mean([row["tokens"] for row in rows if "failed" not in row] or [0.0]),
        truncated=mean([row["truncated"] for row in rows]),
        unparsed=mean([row["unparsed"] for row in rows]),
        runs=tuple(mean([row["correct"] for row in rows if row["run"] == run]) for run in runs),
        well_formed=mean([row["well_formed"] for row in rows]) if all("well_formed" in row for row in rows) else None,
        failed=sum("failed" in row for row in rows),
    )


def by_question(rows: Sequence[Row], key: str = "correct") -> dict[str, float]:
    """A value of each question, its mean over the runs, by id."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["id"], []).append(float(row[key]))
    return {name: mean(several) for name, several in found.items()}


def solved(rows: Mapping[str, Sequence[Row]]) -> dict[str, float]:
    """How often each item was solved, 0 to 1, keyed ``task/id``: what `statistics.compare` takes."""
    return {f"{task}/{name}": share for task, table in rows.items() for name, share in by_question(table).items()}


def compare_rows(first: Mapping[str, Sequence[Row]], second: Mapping[str, Sequence[Row]]) -> Comparison | None:
    """Two methods on the items that both answered; ``None`` if there is none."""
    ours, theirs = solved(first), solved(second)
    shared = ours.keys() & theirs.keys()
    if not shared:
        return None
    return compare({item: ours[item] for item in shared}, {item: theirs[item] for item in shared})
