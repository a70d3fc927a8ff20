"""Check that the parser of each benchmark does not score unrelated text above chance.

    python -m benchmarks.chance --data DIR [--per-task N] [--draws 10000] [--seed 1] [--tasks NAME ...]

DIR is a folder of mirrored data sets with ``rationales/TASK.TEACHER.jsonl``. Every test question (at most N of a task, and of
each subset of BBH) gets a rationale of another question of its task, or of another task if it has none. The table shows how often
an answer is parsed, how often it is right, chance, and p before and after Holm's correction over all rows. It also shows the
score of a loose rule (the right letter or number anywhere) on the same text. The last line is JSON.

Chance is the score of the parsed answers after permuting the right answers among the questions. An example with four questions
and two options::

    parsed   A  B  -  A        the parser's answers from the rationales of other questions
    right    A  A  B  B        one right: an accuracy of 0.25
    dealt    B  A  A  B  ...   the mean over all permutations is 0.375, so 0.25 is within chance

Right answers are permuted only among questions of the same subset, kind of answer and number of options, since a parser may know
these. The p-value is the share of permutations that score at least as much.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cirf.evaluation.harness import hide
from cirf.recipe.schema import Problems
from cirf.records import Problem
from cirf.statistics import NOISE, holm, mean
from cirf.store.jsonl import read_rows
from cirf.tasks import get
from cirf.tasks.loading.load import load_problems
from cirf.tasks.loading.questions import question_key
from cirf.tasks.parsing.answers import number_value
from cirf.tasks.task import Task
from cirf.text.numerals import find_numbers, plain_numbers

DRAWS = 10_000
"""Permutations of the test."""


@dataclass(frozen=True, slots=True)
class Text:
    """A rationale and the question it belongs to."""

    question: str
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One task, or one subset of it, on unrelated text. Shares are of all ``n`` questions; ``adjusted`` is ``p`` after Holm.

    ``loose`` is the score of a loose rule on the same text, see ``loosely_right``.
    """

    task: str
    subset: str | None
    n: int
    parsed: float
    accuracy: float
    chance: float
    p: float
    loose: float
    adjusted: float = 1.0

    @property
    def within_chance(self) -> bool:
        """Whether the accuracy is not significantly above chance at the 5 % level, corrected for all findings."""
        return self.adjusted >= NOISE

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**dataclasses.asdict(self), "within_chance": self.within_chance}


def unrelated(problems: Sequence[Problem], texts: Sequence[Text], seed: int) -> list[str]:
    """A text of another question for every problem, in a seeded order.

    ``ValueError`` if there is no text of another question.
    """
    order = list(texts)
    random.Random(f"unrelated {seed}").shuffle(order)
    keys = [question_key(text.question) for text in order]
    found, place = [], 0
    for problem in problems:
        key = question_key(problem.question)
        tries = next((step for step in range(len(order)) if keys[(place + step) % len(order)] != key), None)
        if tries is None:
            raise ValueError(f"problem {problem.id}: there is no text of another question")
        place = (place + tries) % len(order)
        found.append(order[place].text)
        place = (place + 1) % len(order)
    return found


def find(
    tasks: Mapping[str, tuple[Task, Sequence[Problem]]], texts: Mapping[str, Sequence[Text]], seed: int = 1, draws: int = DRAWS
) -> list[Finding]:
    """A finding for each task, and for each subset if a task has several kinds of answers; p-values adjusted over all of them.

    ``texts`` holds the rationales of each task; a task without any gets those of all others.
    """
    pool = [text for name in sorted(texts) for text in texts[name]]
    found = []
    for name, (task, problems) in tasks.items():
        judged = _judge(task, problems, unrelated(problems, texts.get(name) or pool, seed))
        found.append(_finding(name, None, task, judged, draws, seed))
        if task.kinds:
            for subset in sorted({row.problem.subset or "" for row in judged}):
                rows = [row for row in judged if row.problem.subset == subset]
                found.append(_finding(name, subset, task, rows, draws, seed))
    adjusted = holm([finding.p for finding in found])
    return [dataclasses.replace(finding, adjusted=p) for finding, p in zip(found, adjusted, strict=True)]


@dataclass(frozen=True, slots=True)
class _Judged:
    problem: Problem
    parsed: str | None
    loose: bool


def _judge(task: Task, problems: Sequence[Problem], outputs: Sequence[str]) -> list[_Judged]:
    return [
        _Judged(problem, task.parse(text, hide(problem)), loosely_right(task, text, problem))
        for problem, text in zip(problems, outputs, strict=True)
    ]


def loosely_right(task: Task, text: str, problem: Problem) -> bool:
    """Verdict of a loose rule: the right letter, number or words anywhere in the lower-cased text."""
    folded, kind = text.casefold(), task.kind(problem)
    if kind == "option":
        return problem.answer.casefold() in folded
    right = number_value(problem.answer) if kind in ("number", "latex") else None
    if right is not None:
        return any(number.value == right for number in find_numbers(plain_numbers(text)))
    return problem.answer.casefold() in folded


def _finding(name: str, subset: str | None, task: Task, rows: Sequence[_Judged], draws: int, seed: int) -> Finding:
    alike: dict[tuple[str | None, str, int], list[_Judged]] = {}
    for row in rows:
        alike.setdefault((row.problem.subset, task.kind(row.problem), len(row.problem.choices or ())), []).append(row)
    right = sum(row.parsed is not None and task.equal(row.parsed, row.problem) for row in rows)
    dealt = deal(task, list(alike.values()), draws, seed)
    return Finding(
        task=name,
        subset=subset,
        n=len(rows),
        parsed=mean([row.parsed is not None for row in rows]),
        accuracy=right / len(rows),
        chance=mean(dealt) / len(rows),
        p=(1 + sum(score >= right for score in dealt)) / (1 + draws),
        loose=mean([row.loose for row in rows]),
    )


def deal(task: Task, groups: Sequence[Sequence[_Judged]], draws: int, seed: int) -> list[int]:
    """How many answers are right in each of ``draws`` permutations of the right answers within groups."""
    import numpy as np

    draw = np.random.default_rng(seed)
    totals = np.zeros(draws, dtype=np.int64)
    for group in groups:
        read = sorted({row.parsed for row in group if row.parsed is not None})
        if not read:
            continue
        golds: dict[str, Problem] = {}
        for row in group:
            golds.setdefault(row.problem.answer, row.problem)
        same = np.zeros((len(read) + 1, len(golds)), dtype=bool)  # the last row: nothing was parsed
        for place, parsed in enumerate(read):
            same[place] = [task.equal(parsed, problem) for problem in golds.values()]
        places = {parsed: place for place, parsed in enumerate(read)}
        ours = np.array([places.get(row.parsed or "", len(read)) for row in group])
        theirs = np.array([list(golds).index(row.problem.answer) for row in group])
        for number in range(draws):
            totals[number] += same[ours, draw.permutation(theirs)].sum()
    return [int(total) for total in totals]


NINE = ("gsm8k", "svamp", "multiarith", "coin_flip", "commonsense_qa", "math500", "bbh", "strategyqa", "scienceqa")


def first(problems: list[Problem], most: int | None) -> list[Problem]:
    """The first questions of the task, or of each subset that has answers of its own kind."""
    kept: dict[str, int] = {}
    chosen = []
    for problem in problems:
        part = problem.subset or "" if problem.task == "bbh" else ""
        kept[part] = kept.get(part, 0) + 1
        if most is None or kept[part] <= most:
            chosen.append(problem)
    return chosen


def main() -> None:
    """Print the table and the line of JSON."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    given.add_argument("--data", required=True, type=Path, help="folder of mirrored data sets")
    given.add_argument(
        "--per-task", type=int, default=None, metavar="N", help="most questions of a task or subset (default: all)"
    )
    given.add_argument("--draws", type=int, default=DRAWS, help="permutations of the test")
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--tasks", nargs="+", default=list(NINE), choices=NINE, metavar="NAME")
    asked = given.parse_args()
    tasks, texts = {}, {}
    for name in NINE:
        section = Problems.model_validate({"tasks": [{"task": name}], "data": str(asked.data), "validation": 0})
        loaded = load_problems(section, asked.seed)
        if name in asked.tasks:
            tasks[name] = (get(name), first(loaded.test[name], asked.per_task))
        found = [Text(each.question, each.rationale) for each in (*loaded.train, *loaded.test[name]) if each.rationale]
        for path in sorted((asked.data / "rationales").glob(f"{name}.*.jsonl")):
            found += [Text(row["question"], row["rationale"]) for row in read_rows(path)]
        texts[name] = found
    findings = find(tasks, texts, asked.seed, asked.draws)
    print(f"{'task':45} {'n':>5} {'read':>7} {'right':>7} {'chance':>7} {'p':>7} {'Holm':>7}  {'':8} {'loose':>6}")
    for row in findings:
        label = f"  {row.subset}" if row.subset else row.task
        verdict = "within" if row.within_chance else "OUTSIDE"
        shares = f"{row.parsed:7.1%} {row.accuracy:7.2%} {row.chance:7.2%} {row.p:7.4f} {row.adjusted:7.4f}"
        print(f"{label:45} {row.n:5} {shares}  {verdict:8} {row.loose:6.1%}")
    whole = [row for row in findings if row.subset is None]
    ours, loose = mean([row.accuracy for row in whole]), mean([row.loose for row in whole])
    summary = {
        "benchmark": "chance",
        "ours": round(ours, 4),
        "peer": round(loose, 4),
        "ratio": round(loose / ours, 2) if ours else None,
        "unit": "mean accuracy of unrelated text; the peer is the loose rule",
        "n": sum(row.n for row in whole),
        "tests": len(findings),
        "smallest_adjusted_p": round(min(row.adjusted for row in findings), 4),
        "outside": [row.subset or row.task for row in findings if not row.within_chance],
        "within_chance": all(row.within_chance for row in findings),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
