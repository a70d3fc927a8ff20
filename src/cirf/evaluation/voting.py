"""Self-consistency: many sampled answers, the one that most of them give, and what that costs (Wang et al., 2022).

One row a question, ``<task>.jsonl``::

    {"id": "test-3", "prompt": "Natalia ...", "gold": "72", "fallback": {"parsed": "72", "correct": true, "tokens": 81},
     "votes": [{"output": "<cirf>...</cirf>72", "parsed": "72", "correct": true, "tokens": 9, "truncated": false}, ...]}

With ``m`` votes drawn, the accuracy of ``n < m`` votes is the mean over the ``m // n`` groups of ``n`` that follow each
other: every vote drawn is used. An answer that could not be read is a vote for nothing: it wins no majority, but it counts
in the share that agrees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cirf.errors import CirfError
from cirf.evaluation.harness import Output, Row, hide, judge
from cirf.evaluation.statistics import mean, wilson
from cirf.progress import Progress
from cirf.recipe import Evaluate
from cirf.records import Problem
from cirf.store import RowLog, write_rows

if TYPE_CHECKING:
    from cirf.methods.method import Method
    from cirf.tasks.task import Task

Draw = Callable[[str, int, int], Sequence[Output]]
"""A rendered prompt, a cap in tokens and a number of votes to that many sampled outputs; it seeds itself."""


class Majority(NamedTuple):
    """The place of the first vote for the answer that most votes give (``None``: none could be read), and its share."""

    place: int | None
    share: float


def majority(answers: Sequence[str | None], same: Callable[[str, str], bool]) -> Majority:
    """The answer most votes give, of equal ones the first; the share is of all votes, unread ones too."""
    groups: list[list[int]] = []
    for place, answer in enumerate(answers):
        if answer is None:
            continue
        home = next((group for group in groups if (first := answers[group[0]]) is not None and same(answer, first)), None)
        if home is None:
            groups.append([place])
        else:
            home.append(place)
    if not groups:
        return Majority(None, 0.0)
    largest = max(groups, key=len)  # the first of equal ones
    return Majority(largest[0], len(largest) / len(answers))


@dataclass(frozen=True, slots=True)
class Asked:
    """What votes are drawn with: the method, its tasks, the model's ``draw`` and the template around a user's turn."""

    method: Method
    tasks: Mapping[str, Task]
    draw: Draw
    render_prompt: Callable[[str], str]
    section: Evaluate

    def prompt(self, name: str, problem: Problem) -> str:
        """The user's turn."""
        return self.method.prompt(hide(problem), self.tasks[name])

    def votes(self, name: str, problem: Problem, count: int) -> list[Row]:
        """``count`` votes, read and judged."""
        task = self.tasks[name]
        outputs = self.draw(self.render_prompt(self.prompt(name, problem)), self.method.cap(task, self.section), count)
        found = []
        for output in outputs:
            parsed, correct = judge(self.method.read(output.text)[1], problem, task)
            found.append(
                {
                    "output": output.text,
                    "parsed": parsed,
                    "correct": correct,
                    "tokens": output.tokens,
                    "truncated": output.truncated,
                }
            )
        return found

    def decide(self, name: str, problem: Problem, votes: Sequence[Row]) -> Majority:
        """The majority of some votes on a problem."""
        task = self.tasks[name]

        def same(one: str, other: str) -> bool:
            return one == other or task.equal(one, _answered(problem, other))

        return majority([vote["parsed"] for vote in votes], same)


def _answered(problem: Problem, answer: str) -> Problem:
    return dataclasses.replace(hide(problem), answer=answer)


def collect_votes(
    asked: Asked,
    test: Mapping[str, Sequence[Problem]],
    others: Mapping[tuple[str, str], Row],
    work: Path,
    progress: Progress,
) -> dict[str, list[Row]]:
    """Draw the largest number of votes on every problem; write ``work/<task>.jsonl``, and go on where a killed try stood.

    ``others`` are the fallback's rows by task and id; empty where there is no fallback.
    """
    count = max(asked.section.voting.votes)
    tables = {}
    for name, problems in test.items():
        log = RowLog(work / "scratch" / f"{name}.jsonl")
        known = {row["id"]: row for row in log.rows()}
        with progress.task(f"{count} votes on {name}", len(problems), "problems", len(known)) as advance:
            for problem in problems:
                if problem.id in known:
                    continue
                row: Row = {"id": problem.id, "prompt": asked.prompt(name, problem), "gold": problem.answer}
                other = others.get((name, problem.id))
                row["fallback"] = other and {key: other[key] for key in ("parsed", "correct", "tokens")}
                row["votes"] = asked.votes(name, problem, count)
                log.append(row)
                known[problem.id] = row
                advance(1)
        tables[name] = [known[problem.id] for problem in problems]
        write_rows(work / f"{name}.jsonl", tables[name])
    if not any(tables.values()):
        raise CirfError("evaluate.voting: there is no test problem to vote on")
    return tables


def curve(asked: Asked, test: Mapping[str, Sequence[Problem]], tables: Mapping[str, Sequence[Row]]) -> list[dict[str, Any]]:
    """One row a number of votes: accuracy with its 95 % interval (Wilson, over questions), the share of votes that agree,
    tokens of all votes of an answer, and with a fallback the same of what the two answer together."""
    section = asked.section.voting
    items = [(name, problem, row) for name, problems in test.items() for problem, row in zip(problems, tables[name], strict=True)]
    found = []
    for count in sorted(set(section.votes)):
        right, agreed, unread, tokens, joint, joint_tokens, fell = [], [], [], [], [], [], []
        for name, problem, row in items:
            groups = [row["votes"][start : start + count] for start in range(0, len(row["votes"]) - count + 1, count)]
            told = [asked.decide(name, problem, group) for group in groups]
            solved = [t.place is not None and g[t.place]["correct"] for t, g in zip(told, groups, strict=True)]
            spent = [sum(vote["tokens"] for vote in group) for group in groups]
            right.append(mean(solved))
            agreed.append(mean([t.share for t in told]))
            unread.append(mean([t.place is None for t in told]))
            tokens.append(mean(spent))
            if row["fallback"] is not None:
                falls = [t.share < section.agreement for t in told]
                fell.append(mean(falls))
                joint.append(mean([row["fallback"]["correct"] if f else s for f, s in zip(falls, solved, strict=True)]))
                extra = row["fallback"]["tokens"]
                joint_tokens.append(mean([s + (extra if f else 0) for f, s in zip(falls, spent, strict=True)]))
        point: dict[str, Any] = {"votes": count, **share_of(right), "agreement": mean(agreed), "tokens": mean(tokens)}
        point["unparsed"] = mean(unread)
        if fell:
            point["fallback"] = {**share_of(joint), "share": mean(fell), "tokens": mean(joint_tokens)}
        found.append(point)
    return found


def share_of(values: Sequence[float]) -> dict[str, Any]:
    """The mean of values between 0 and 1 as an accuracy, with its 95 % interval (Wilson's, over questions)."""
    share, n = mean(values), len(values)
    return {"accuracy": share, "n": n, "interval": list(wilson(min(share * n, n), n))}


def time_votes(
    asked: Asked,
    drawn: Mapping[str, Sequence[Problem]],
    answer_alone: Callable[[str, Problem], float] | None,
    now: Callable[[], float],
    work: Path,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Seconds of an answer at every number of votes, question by question, each number in turn on the same question.

    From the prompt's text to the majority, one question at a time. ``answer_alone`` has the fallback answer a question and
    tells its seconds: once on its own (``votes`` 0), and where the votes fall back to it. Rows are kept in ``work/scratch``.
    """
    section = asked.section.voting
    counts = sorted(set(section.votes))
    log = RowLog(work / "scratch" / "latency.jsonl")
    rows = log.rows()
    known = {(row["task"], row["id"]) for row in rows}
    items = [(name, problem) for name, problems in drawn.items() for problem in problems]
    for name, problem in items[: asked.section.latency_warmup if len(known) < len(items) else 0]:
        for count in counts:
            asked.votes(name, problem, count)
        if answer_alone is not None:
            answer_alone(name, problem)
    with progress.task("latency of votes", len(items), "problems", len(known)) as advance:
        for name, problem in items:
            if (name, problem.id) in known:
                continue
            times: list[dict[str, Any]] = []
            for count in counts:
                started = now()
                votes = asked.votes(name, problem, count)
                told = asked.decide(name, problem, votes)
                times.append({"votes": count, "seconds": now() - started, "falls": told.share < section.agreement})
            if answer_alone is not None:
                alone = answer_alone(name, problem)
                for row in times:
                    row["with_fallback"] = row["seconds"] + (alone if row["falls"] else 0.0)
                times.append({"votes": 0, "seconds": alone})
            log.append({"task": name, "id": problem.id, "times": times})
            rows.append(log.rows()[-1])
            advance(1)
    return rows
