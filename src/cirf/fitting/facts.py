"""Facts about a file of rows, read as by `cirf check` and a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import get_args

from cirf.errors import CirfError
from cirf.rationales.check import CountTokens, TaskCheck, check, some
from cirf.rationales.collect import gather, other_answers, without_thoughts
from cirf.rationales.segmentation import Rule, cut_all
from cirf.recipe.schema import Recipe, Results, Segments
from cirf.records import AnswerKind, Problem, Rationale, Steps
from cirf.store.jsonl import by_reason
from cirf.tasks import resolve
from cirf.tasks.loading.load import load_problems
from cirf.tasks.loading.unusable import Tolerance, Unusable
from cirf.tasks.own_rows import kinds_of, row_notes

FEWEST_STEPS, MOST_STEPS = 2, 10
"""Rationales with this many steps work best; long ones that are cut by function have more."""

BETTER = 0.1
"""How much larger a share of such rationales another rule must give than auto does."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A file's ``rows`` that are questions with an answer, with the findings of `check` (with calculations kept).

    ``alike`` of ``answers`` rows are of the ``kind``, or for text of the most frequent one, which that of line ``other`` is not;
    ``notes`` are sentences on the others and on columns that are not read
    (`row_notes`); ``by`` is the rule that cuts most rationales into a good number of steps, ``few_steps`` their share,
    ``through_options`` the share that goes through options one by one; ``unusable`` counts the file's invalid rows;
    ``left_out`` counts rows that are refused or dropped by reason; ``question_tokens``: mean, ``longest_question``: most.
    """

    rows: int
    kind: AnswerKind
    alike: int
    answers: int
    other: int | None
    notes: list[str]
    found: TaskCheck
    by: Rule
    few_steps: float
    through_options: float
    question_tokens: float
    longest_question: int
    unusable: Unusable | None
    left_out: dict[str, int]

    @property
    def bare(self) -> bool:
        """Whether no row has a rationale."""
        return not self.found.rationales and set(self.found.unusable) <= {"no rationale"}

    @property
    def causes(self) -> str:
        """Why rows are left out, each reason with its number of rows."""
        return ", ".join(f"{reason} ({number:,})" for reason, number in self.left_out.items() if number)


def look(recipe: Recipe, count: CountTokens) -> Facts:
    """The facts of the only task of a recipe, a jsonl file; ``CirfError`` where no row of it can be used."""
    section, entry = recipe.problems, recipe.problems.tasks[0]
    kind, by_kind, lines = kinds_of(entry, section.data, section.max_unusable_share)
    notes = row_notes(entry, section.data, section.max_unusable_share)
    most = max(by_kind, key=lambda name: len(by_kind[name]))
    other = min({*lines} - {*by_kind[most]}, default=None)
    entry = entry.model_copy(update={"answer": kind})
    section = section.model_copy(update={"tasks": (entry,)})
    tolerance = Tolerance(section.max_unusable_share, looking=True)
    loaded = load_problems(section, recipe.seed, tolerance, whole=True)
    problems = [*loaded.train, *loaded.validation]
    tasks = resolve(section, lenient=True)
    by, few_steps, rules = best_rule(gather(some(problems), recipe.rationales, None, tasks).rationales, problems)
    looked = check(problems, recipe.rationales, Segments(by=by), Results(working="keep"), tasks, count)
    found = looked.total
    unusable = tolerance.files[0] if tolerance.files else None
    questions = [count(tasks[problem.task].render(problem)) for problem in problems]
    alike = len(lines if kind == "latex" else by_kind[most if kind == "text" else kind])
    lengths = (fmean(questions or [0]), max(questions, default=0))
    refused = {} if unusable is None else {reason: each["rows"] for reason, each in by_reason(unusable.errors).items()}
    left_out = refused | loaded.report["dropped"] | found.unusable
    answers = (len(problems), kind, alike, len(lines), other)
    shares = (few_steps, rules.get("option", 0.0))
    notes += without_thoughts(looked.collection)
    facts = Facts(*answers, notes, found, by, *shares, *lengths, unusable, left_out)
    if not problems or not (found.usable or facts.bare):
        differ = other_answers(looked.collection)
        why = facts.causes or "there are no rows"
        raise CirfError(f"{entry.train_file}: no usable row: {why}{f'; {differ}' if differ else ''}")
    return facts


def of_good_length(steps: Steps) -> bool:
    return len(steps.segments) >= FEWEST_STEPS and (steps.rule == "function" or len(steps.segments) <= MOST_STEPS)


def best_rule(rationales: Sequence[Rationale], problems: Sequence[Problem]) -> tuple[Rule, float, dict[str, float]]:
    """The rule to cut by, the share of rationales that it cuts into a few steps, and the share that each rule of auto cuts."""
    shares: dict[Rule, float] = {}
    rules: dict[str, float] = {}
    for by in [rule for rule in get_args(Rule) if rule in ("auto", "line", "sentence")]:
        cut = cut_all(rationales, Segments(by=by), problems)
        few = sum(map(of_good_length, cut.steps))
        shares[by] = few / len(rationales) if rationales else 0.0
        if by == "auto":
            rules = {rule: number / len(rationales) for rule, number in cut.report["rules"].items()}
    best = max(shares, key=lambda rule: shares[rule])
    chosen: Rule = best if shares[best] >= shares["auto"] + BETTER else "auto"
    return chosen, shares[chosen], rules
