"""Votes: many sampled answers to every question, drawn once and kept (Wang et al., 2022).

One row a question, ``<task>.jsonl``::

    {"id": "test-3", "prompt": "Natalia ...", "gold": "72",
     "votes": [{"output": "<cirf_016>...</cirf>72", "parsed": "72", "correct": true, "tokens": 9, "truncated": false}, ...]}

What the model wrote is kept apart from what is read in it, in a log that outlives the rows, one line a draw::

    {"key": "3f0c...", "task": "svamp", "id": "test-3", "first": 0, "outputs": [["<cirf_016>...</cirf>72", 9, false], ...]}

So fewer votes are the first of those that are there, of more only the missing ones are drawn, and what only reads or counts
votes otherwise draws none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cirf.errors import CirfError
from cirf.evaluation.harness import Output, Row, hide, judge, read
from cirf.progress import Progress
from cirf.recipe.schema import Evaluate
from cirf.records import Problem
from cirf.store.files import RowLog, hash_json, write_rows

if TYPE_CHECKING:
    from cirf.methods.base import Method
    from cirf.tasks.task import Task

Draw = Callable[[str, int, int, int], Sequence[Output]]
"""A rendered prompt, a cap in tokens, the number of the first answer wanted and how many, to that many sampled outputs. An
answer must depend on the prompt, the cap and its number alone."""


class Written(NamedTuple):
    """One stored sampled output; ``tokens`` with the end token."""

    text: str
    tokens: int
    truncated: bool


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

    def cap(self, name: str) -> int:
        """Most tokens of a vote."""
        return self.method.budget(self.tasks[name], self.section)

    def read(self, name: str, problem: Problem, outputs: Sequence[Output]) -> list[Row]:
        """Outputs read and judged."""
        task = self.tasks[name]
        found = []
        for output in outputs:
            parsed, correct = judge(read(self.method, output)[1], problem, task)
            row = {"output": output.text, "parsed": parsed, "correct": correct}
            found.append(row | {"tokens": output.tokens, "truncated": output.truncated})
        return found


def draw_votes(
    asked: Asked,
    test: Mapping[str, Sequence[Problem]],
    count: int,
    how: Mapping[str, Any],
    log: RowLog,
    work: Path,
    progress: Progress,
) -> int:
    """``count`` votes on every problem into ``work/<task>.jsonl``; returns the number of problems.

    ``how`` is all that an output depends on besides prompt and cap: the model, sampling, seed, number format. Outputs that
    ``log`` holds of the same are taken from it, the first ones if it has more than requested; further ones are drawn
    and added to it. A killed draw goes on question by question.

    Raises:
        CirfError: no problems.
    """
    if not any(test.values()):
        raise CirfError("evaluate.voting: there is no test problem to vote on")
    kept: dict[str, list[Written]] = {}

    def keep(row: Mapping[str, Any]) -> None:
        before = kept.setdefault(row["key"], [])
        before[row["first"] :] = [Written(*output) for output in row["outputs"]]

    log.read(keep)
    for name, problems in test.items():
        prompts = [asked.prompt(name, problem) for problem in problems]
        rendered = [asked.render_prompt(prompt) for prompt in prompts]
        keys = [hash_json({**how, "prompt": text, "cap": asked.cap(name)}) for text in rendered]
        done = sum(len(kept.get(key, ())) >= count for key in keys)
        rows = []
        with progress.task(f"{count} votes on {name}", len(problems), "problems", done) as advance:
            for problem, prompt, text, key in zip(problems, prompts, rendered, keys, strict=True):
                there = kept.setdefault(key, [])
                if len(there) < count:
                    first = len(there)
                    fresh = [
                        Written(o.text, o.tokens, o.truncated) for o in asked.draw(text, asked.cap(name), first, count - first)
                    ]
                    log.append({"key": key, "task": name, "id": problem.id, "first": first, "outputs": fresh})
                    there += fresh
                    advance(1)
                votes = asked.read(name, problem, there[:count])
                rows.append({"id": problem.id, "prompt": prompt, "gold": problem.answer, "votes": votes})
        write_rows(work / f"{name}.jsonl", rows)
    return sum(map(len, test.values()))
