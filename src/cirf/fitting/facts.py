"""What a file of rows is like, looked at as `cirf check` and a run do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from cirf.errors import CirfError
from cirf.rationales.check import CountTokens, TaskCheck, check
from cirf.rationales.collect import gather
from cirf.rationales.segmentation import Rule, cut_all
from cirf.recipe import Rationales, Recipe, Results, Segments
from cirf.records import AnswerKind, Problem
from cirf.tasks import resolve
from cirf.tasks.jsonl import kind_counts
from cirf.tasks.load import load_problems
from cirf.tasks.task import Task
from cirf.tasks.unusable import Tolerance, Unusable

Answers = Literal["number", "option", "yesno", "text"]

ALIKE = 0.95
"""Share of the rows with one kind of answer from which on the file's answers are of that kind, and the others are dropped."""

FEWEST_STEPS, MOST_STEPS = 2, 10
"""Rationales of so many steps work best."""

BETTER = 0.1
"""How much larger a share of such rationales another rule must give than auto does."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A file's ``rows`` that are questions with an answer, what they are and what `check` found of them (with calculations kept).

    ``alike`` of ``answers`` rows are of the ``kind``; ``by`` is the rule that cuts most rationales into a good number of steps,
    ``few_steps`` their share, ``through_options`` the share that goes through options one by one; ``unusable`` counts the rows
    of the file that are none, ``longest_question`` is in tokens.
    """

    rows: int
    kind: AnswerKind
    alike: int
    answers: int
    found: TaskCheck
    by: Rule
    few_steps: float
    through_options: float
    longest_question: int
    unusable: Unusable | None

    @property
    def bare(self) -> bool:
        """Whether no row has a rationale."""
        return not self.found.rationales and set(self.found.unusable) <= {"no rationale"}

    @property
    def mixed(self) -> bool:
        """Whether answers are of several kinds, most of them of one."""
        return self.answers / 2 < self.alike < self.answers


def look(recipe: Recipe, count: CountTokens) -> Facts:
    """The facts of the only task of a recipe, a jsonl file; ``CirfError`` where no row of it can be used."""
    section, entry = recipe.problems, recipe.problems.tasks[0]
    kind, counts, answers = kind_counts(entry, section.data)
    most = max(counts, key=lambda name: counts[name])
    if kind == "text" and counts[most] >= ALIKE * answers:
        kind = most
    entry = entry.model_copy(update={"answer": kind})
    section = section.model_copy(update={"tasks": (entry,)})
    tolerance = Tolerance(section.unusable, looking=True)
    loaded = load_problems(section, recipe.seed, tolerance, whole=True)
    problems = [*loaded.train, *loaded.validation]
    tasks = resolve(section, lenient=True)
    by, few_steps, rules = _rule(problems, tasks)
    found = check(problems, Rationales(), Segments(by=by), Results(working="keep"), tasks, count).total
    unusable = tolerance.files[0] if tolerance.files else None
    questions = (count(tasks[problem.task].render(problem)) for problem in problems)
    alike = counts[most if kind == "text" else kind]
    facts = Facts(
        len(problems), kind, alike, answers, found, by, few_steps, rules.get("option", 0.0), max(questions, default=0), unusable
    )
    if not problems or not (found.usable or facts.bare):
        refused = {} if unusable is None else {"rows that are no question with an answer": len(unusable.errors)}
        reasons = "; ".join(f"{number}: {reason}" for reason, number in (refused | found.unusable).items())
        raise CirfError(f"{entry.train_file}: no usable row ({reasons or 'there is none'}), so no recipe would work")
    return facts


def _rule(problems: Sequence[Problem], tasks: Mapping[str, Task]) -> tuple[Rule, float, dict[str, float]]:
    """The rule to cut by, the share of rationales that it cuts into a few steps, and the share that each rule of auto cuts."""
    rationales = gather(problems, Rationales(), None, tasks).rationales
    shares: dict[Rule, float] = {}
    rules: dict[str, float] = {}
    for by in [rule for rule in get_args(Rule) if rule in ("auto", "line", "sentence")]:
        cut = cut_all(rationales, Segments(by=by), problems)
        few = sum(FEWEST_STEPS <= len(row.segments) <= MOST_STEPS for row in cut.steps)
        shares[by] = few / len(rationales) if rationales else 0.0
        if by == "auto":
            rules = {rule: number / len(rationales) for rule, number in cut.report["rules"].items()}
    best = max(shares, key=lambda rule: shares[rule])
    chosen: Rule = best if shares[best] >= shares["auto"] + BETTER else "auto"
    return chosen, shares[chosen], rules
