"""Which of a run's methods to use, in one sentence, decided on its test questions, and its comparison with prose trained on the
same rows.

It is the method with the fewest tokens among those that are significantly above always giving the most frequent answer and
not significantly below the most accurate (`statistics.compare`, each pair by itself); of those about as short, the most accurate.
If a shorter one may be far below but there are too few questions to decide, it is named for now, and the sentence says so.
"""

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cirf.analysis.names import BASELINE, base
from cirf.analysis.source import is_functional
from cirf.evaluation.harness import Row, Score, compare_rows, scores_from_rows, solved
from cirf.methods import METHODS
from cirf.report.data.measures import ratios
from cirf.statistics import Comparison, compare

Tables = Mapping[str, Sequence[Row]]

DOUBT = 0.15  # a difference that is not significant and yet may be larger than this needs more questions
ABOUT = 1.25  # up to this multiple of the fewest tokens a method counts as equally short, and the more accurate one is used
FEW_QUESTIONS = 100  # fewer test questions are too few, whatever the result
_NAMED, _SHORT = 3, 40


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The method to ``use``, or ``None`` where none can be named, the ``sentence`` that says so, and the share of the ``n``
    questions that the most frequent answer gets (``None`` where the right answers are not known any more).

    For other words than the sentence's: ``best`` is the most accurate method, ``traced`` the most accurate with functional
    tokens, ``at_once`` the most accurate that answers directly; ``doubt`` is by how much ``best`` may be above ``use`` where too
    few questions were asked (a share); ``warnings`` holds ``below_direct`` and ``below_majority``, said of ``traced``."""

    use: str | None
    sentence: str
    n: int
    majority: float | None
    best: str | None = None
    traced: str | None = None
    at_once: str | None = None
    doubt: float | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def verdict(
    rows: Mapping[str, Tables], functional: Collection[str], direct: Collection[str], frequent: Mapping[str, str] | None = None
) -> Recommendation | None:
    """Of methods that answered the same questions, by name: their rows by task. ``functional`` names those that write functional
    tokens, ``direct`` those that answer at once; ``frequent`` is the most frequent training answer of each task (without it that
    of the test). ``None`` without methods."""
    if not rows:
        return None
    answers = _Asked(rows, frequent or {})
    if len(rows) == 1:
        return answers.alone(next(iter(rows)))
    traced = max((name for name in rows if name in functional), key=answers.rank, default=None)
    at_once = max((name for name in rows if name in direct), key=answers.rank, default=None)
    warnings = answers.warnings(traced, at_once)
    best = max(rows, key=answers.rank)
    if not any(answers.above_majority.values()):
        return dataclasses.replace(answers.none(traced), best=best, traced=traced, at_once=at_once)
    deficits = {name: answers.pair(best, name) for name in rows if name != best}
    alike = [name for name, pair in deficits.items() if not pair.significant and answers.above_majority[name]]
    sure = [best, *(name for name in alike if deficits[name].interval.high <= DOUBT)]
    fewest = min(answers.scores[name].tokens for name in sure)
    chosen = max((name for name in sure if answers.scores[name].tokens <= ABOUT * fewest), key=answers.rank)
    cheaper = [name for name in alike if name not in sure and ABOUT * answers.scores[name].tokens < answers.scores[chosen].tokens]
    if cheaper:
        found = answers.too_few(best, min(cheaper, key=lambda name: answers.scores[name].tokens), deficits)
    else:
        found = answers.use(chosen, best, traced, at_once, list(warnings.values()))
    return dataclasses.replace(found, best=best, traced=traced, at_once=at_once, warnings=tuple(warnings))


class _Asked:
    """Methods on the same questions, and the words for them."""

    def __init__(self, rows: Mapping[str, Tables], frequent: Mapping[str, str]) -> None:
        self.rows = rows
        self.scores: dict[str, Score] = {name: scores_from_rows(tables).overall for name, tables in rows.items()}
        tables = next(iter(rows.values()))
        self.n = next(iter(self.scores.values())).n
        usual = {task: Counter(row["gold"] for row in table).most_common(1)[0][0] for task, table in tables.items()}
        answers = {task: frequent.get(task, answer) for task, answer in usual.items()}
        constant = {f"{task}/{row['id']}": float(row["gold"] == answers[task]) for task, table in tables.items() for row in table}
        self.majority = sum(constant.values()) / len(constant)
        only = next(iter(answers.values()))[:_SHORT]
        one = f"always answering {only!r}" if len(answers) == 1 else "always giving the most frequent answers"
        self.says = f"{one} ({_percent(self.majority)}"
        against = {name: compare(solved(found), constant) for name, found in rows.items()}
        self.above_majority = {name: pair.significant and pair.difference > 0 for name, pair in against.items()}

    def rank(self, name: str) -> tuple[float, float]:
        """The more accurate, and then the shorter, the better."""
        return self.scores[name].accuracy, -self.scores[name].tokens

    def pair(self, first: str, second: str) -> Comparison:
        found = compare_rows(self.rows[first], self.rows[second])
        assert found is not None  # they answered the same questions
        return found

    def describe(self, name: str, words: str = "") -> str:
        score = self.scores[name]
        return f"{name} {_percent(score.accuracy)}{words} with {score.tokens:.0f}"

    def alone(self, name: str) -> Recommendation:
        score = self.scores[name]
        low, high = (100 * bound for bound in score.interval)
        sentence = (
            f"{name}: {_percent(score.accuracy)} right ({low:.1f} to {high:.1f}, n = {self.n}) with {score.tokens:.0f} tokens; "
            "nothing to compare it with: add sft_cot and direct_sft to methods"
        )
        if not self.above_majority[name]:
            sentence += f"; it is not significantly above {self.says})"
        return Recommendation(name if self.above_majority[name] else None, sentence, self.n, self.majority)

    def warnings(self, traced: str | None, at_once: str | None) -> dict[str, str]:
        """What is to be said of functional traces that do not help, by the kind of it."""
        if traced is None:
            return {}
        found = {}
        if at_once is not None and (pair := self.pair(traced, at_once)).significant and pair.difference < 0:
            found["below_direct"] = f"{traced} is significantly below direct answers ({at_once}), so its traces do not help here"
        if not self.above_majority[traced]:
            found["below_majority"] = f"{traced} is not significantly above {self.says})"
        return found

    def none(self, traced: str | None) -> Recommendation:
        few = ", which is few" if self.n < FEW_QUESTIONS else ""
        best = sorted(self.rows, key=self.rank, reverse=True)[:_NAMED]
        named = best if traced is None or traced in best else [*best[:-1], traced]
        accuracies = ", ".join(f"{name} {_percent(self.scores[name].accuracy)}" for name in named)
        sentence = (
            f"use none yet: no method is significantly above {self.says}, n = {self.n}{few}): "
            f"{accuracies}; train on more rows, or a larger backbone.model, or test on more questions"
        )
        return Recommendation(None, sentence, self.n, self.majority)

    def too_few(self, best: str, cheaper: str, deficits: Mapping[str, Comparison]) -> Recommendation:
        most = 100 * deficits[cheaper].interval.high
        score = self.scores[cheaper]
        sentence = (
            f"use {cheaper} for now: {_percent(score.accuracy)} right with {score.tokens:.0f} tokens; {self.describe(best)} "
            f"(difference not significant, n = {self.n}, but it may be {most:.0f} points); test on more questions"
        )
        return Recommendation(cheaper, sentence, self.n, self.majority, doubt=deficits[cheaper].interval.high)

    def use(self, chosen: str, best: str, traced: str | None, at_once: str | None, warnings: Sequence[str]) -> Recommendation:
        known = [name for name in (best, traced, at_once) if name is not None]
        order = dict.fromkeys([*known, *sorted(self.rows, key=self.rank, reverse=True)])
        others = [name for name in order if name != chosen]
        parts = []
        counted = False
        for name in others[:_NAMED]:
            note = ""
            if not self.pair(chosen, name).significant:
                note = " (difference not significant)" if counted else f" (difference not significant, n = {self.n})"
                counted = True
            parts.append(self.describe(name) + note)
        if len(others) > _NAMED:
            parts.append(f"{len(others) - _NAMED} more in the table")
        score = self.scores[chosen]
        head = f"use {chosen}: {_percent(score.accuracy)} right with {score.tokens:.0f} tokens"
        head += "" if counted else f" (n = {self.n})"
        return Recommendation(chosen, "; ".join([head, *parts, *warnings]), self.n, self.majority)


def most_frequent(problems: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The most frequent answer of each task's training problems (the first of equally frequent ones)."""
    counts: dict[str, Counter[str]] = {}
    for problem in problems:
        counts.setdefault(problem["task"], Counter())[problem["answer"]] += 1
    return {task: answers.most_common(1)[0][0] for task, answers in counts.items()}


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


_DIRECT = ("direct_sft", "direct")
_INSTEAD = ("cot", "direct_sft", "direct")  # the comparison of a method if no prose was trained on the same rows


def read_verdict(
    recipe: Mapping[str, Any],
    rows: Mapping[str, Tables],
    methods: Mapping[str, Mapping[str, Any]],
    training: Sequence[Mapping[str, Any]],
) -> dict[str, Any] | None:
    """The verdict on the methods that answered the same questions; ``training`` are the training problems. ``against`` is the
    comparison of the method to use with ``method`` (`opponent`); ``None`` where there is none."""
    variants = recipe.get("variants", {})
    comparable = {name: tables for name, tables in rows.items() if methods[name]["same_questions"]}
    traced = {name for name in comparable if methods[name]["functional"]}
    direct = {name for name in comparable if base(name, variants) in _DIRECT}
    found = verdict(comparable, traced, direct, most_frequent(training))
    if found is None:
        return None
    advice = found.to_dict() | {"against": None}
    other = opponent(found.use, found.traced, list(comparable), variants, methods)
    if found.use is not None and other is not None:
        pair = compare_rows(comparable[found.use], comparable[other])
        assert pair is not None  # they answered the same questions
        advice["against"] = {"method": other, **pair.to_dict(), **ratios(methods[found.use], methods[other])}
    return advice


def opponent(
    use: str | None,
    traced: str | None,
    names: Sequence[str],
    variants: Mapping[str, Mapping[str, Any]],
    methods: Mapping[str, Mapping[str, Any]],
) -> str | None:
    """The comparison of the method to use: prose trained on the same rows, with a calculator if the method has one. Where that is
    itself the one to use, the most accurate with functional tokens; where the run has none, untrained prose, else direct answers,
    else the most accurate other method."""
    others = [name for name in names if name != use]
    if use is None or not others:
        return None
    accurate = max(others, key=lambda name: float(methods[name]["accuracy"]))
    prose = [name for name in names if base(name, variants) == BASELINE]
    if use in prose:
        return traced or accurate

    def helped(name: str) -> bool:
        return bool((variants.get(name, {}).get("settings") or {}).get("calculator"))

    ranked = sorted(prose, key=lambda name: (helped(name) != helped(use), name != BASELINE))
    instead = [name for wanted in _INSTEAD for name in others if base(name, variants) == wanted]
    return next(iter([*ranked, *instead]), None) or accurate


def writes_tokens(name: str, variants: Mapping[str, Mapping[str, Any]], tables: Tables) -> bool:
    """Whether a method writes functional tokens; for a user's own method by its answers."""
    method = base(name, variants)
    if method in METHODS:
        return METHODS[method].functional
    return any(is_functional(row["output"]) for table in tables.values() for row in table)
