"""Steps of a long rationale that can be left out: those that repeat earlier ones, and those after its answer is settled.

A worked example, of a question whose answer is 72::

    So 48 + 24 = 72 clips in all.
    Wait, is it half of April? Half as many as in April, so yes.      settled
    Let me check: 72 - 48 = 24, and 24 is half of 48.                 settled
    So the answer is 72.                                              the last conclusion stays
    I am confident in it.                                             settled

The answer is settled where a step states it outright, or works it out and the next one checks, reconsiders or concludes, unless
a later step states another, or works on with the number and comes to it again. A repetition has eight words or more, nearly all
of which occur in earlier steps in the same order; after the first three no word is new, and numbers occur only in known runs of
four words. The work is linear.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from cirf.records import AnswerKind, Problem, Record
from cirf.tasks.parsing.anchors import anchors
from cirf.tasks.parsing.answers import equal_answers, number_value, parse_answer
from cirf.tasks.steps import worked_out
from cirf.text.discourse import function_of

_WORD = re.compile(r"\d+(?:\.\d+)?|\w+|[-+*/=<>^]")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_DIGIT = re.compile(r"[\d₀-₉]")
_RUN, _FEWEST, _NEW, _OPENING = 4, 8, 0.2, 3
"""Words of a run that is compared, fewest words of a repetition, and of these the share of runs that may be new, and how many
words at the beginning (`Wait, so`)."""
_TURNING = ("check", "alternative", "reconsider", "conclude")


@dataclass(frozen=True, slots=True)
class Redundant(Record):
    """A step left out: its place among the steps of the rationale, why (``repeats``, ``settled``), what it did
    (`cirf.text.discourse.function_of`), and its text."""

    problem: str
    sample: int
    place: int
    why: str
    function: str
    text: str


def redundant(steps: Sequence[str], problem: Problem, sample: int = 0) -> list[Redundant]:
    """The steps of a rationale that can be left out, in order; never the last conclusion, and never all of them."""
    settled, last, outright = _settled(steps, problem)
    functions = [function_of(step) for step in steps]
    concluding = [index for index, name in enumerate(functions) if name == "conclude"] or [len(steps) - 1]
    comes = last is not None and not outright and concluding[-1] > last and _comes_to(steps[concluding[-1]], problem)
    closing = concluding[-1] if last is None or comes else last
    repeated = _repeated(steps)
    found = []
    for index, step in enumerate(steps):
        why = "settled" if settled is not None and index > settled else "repeats" if index in repeated else None
        if why is not None and index != closing:
            found.append(Redundant(problem.id, sample, index, why, functions[index], step))
    return found


def _settled(steps: Sequence[str], problem: Problem) -> tuple[int | None, int | None, bool]:
    """The place of the step that settles the answer, that of the last one that states it, or else works it out (``None`` where
    none does), and whether one states it."""
    kind = _kind(problem)
    stated = [parse_answer(kind, step, problem.choices) if anchors(step) else None for step in steps]
    said = [None if answer is None else equal_answers(kind, answer, problem.answer) for answer in stated]
    others = [place for place, right in enumerate(said) if right is False]
    after = others[-1] + 1 if others else 0
    stating = [place for place, right in enumerate(said) if right and place >= after]
    working: list[int] = []
    if kind == "number":
        value = number_value(problem.answer)
        found = [number_value(worked[-1]) if (worked := worked_out(step)) else None for step in steps]
        working = [place for place in range(after, len(steps)) if found[place] == value]
        used = [
            place
            for place, (step, result) in enumerate(zip(steps, found, strict=True))
            if result not in (None, value)
            and value in map(number_value, _NUMBER.findall(step))
            and function_of(step) not in _TURNING[:-1]
        ]
        if used and working and working[-1] > used[-1]:  # an equal number on the way, which the working goes on from
            working = [place for place in working if place > used[-1]]
    turned = (place for place in working if place + 1 == len(steps) or function_of(steps[place + 1]) in _TURNING)
    first = min([*stating[:1], *islice(turned, 1)], default=None)
    return first, max(stating or working, default=None), bool(stating)


def _comes_to(step: str, problem: Problem) -> bool:
    """Whether a step names the number of the answer: ``So the gross is 1,380.00.``"""
    value = number_value(problem.answer)
    return value is not None and not problem.choices and value in map(number_value, _NUMBER.findall(step))


def _kind(problem: Problem) -> AnswerKind:
    if problem.choices:
        return "option"
    if problem.answer in ("yes", "no"):
        return "yesno"
    return "number" if number_value(problem.answer) is not None else "text"


def _repeated(steps: Sequence[str]) -> set[int]:
    runs: set[tuple[str, ...]] = set()
    words: set[str] = set()
    found = set()
    for index, step in enumerate(steps):
        said = _WORD.findall(step.casefold())
        own = [tuple(said[at : at + _RUN]) for at in range(len(said) - _RUN + 1)]
        new = [run for run in own if run not in runs]
        same = len(new) <= _NEW * len(own) and not any(map(_DIGIT.search, map(" ".join, new)))  # 3 * 4 after 3 + 4 is new
        if len(said) >= _FEWEST and same and words.issuperset(said[_OPENING:]):
            found.add(index)
        runs.update(own)
        words.update(said)
    return found


def count_left_out(left_out: Sequence[Redundant], kept: Iterable[str], tokens: Callable[[str], int]) -> dict[str, Any]:
    """How many steps and tokens were left out of how many tokens in all, by reason and function."""
    counts: dict[str, dict[str, Counter[str]]] = {}
    for row in left_out:
        count = counts.setdefault(row.why, {}).setdefault(row.function, Counter())
        count.update(steps=1, tokens=tokens(row.text))
    gone = sum(count["tokens"] for by in counts.values() for count in by.values())
    return {
        "rationales": len({(row.problem, row.sample) for row in left_out}),
        "steps": len(left_out),
        "tokens": gone,
        "of_tokens": gone + sum(map(tokens, kept)),
        "by": {why: {name: dict(count) for name, count in sorted(by.items())} for why, by in sorted(counts.items())},
    }


def left_out_notes(summary: Mapping[str, Any]) -> list[str]:
    """Sentences on the steps left out, from the dict of `count_left_out`; none where there are none."""
    if not summary.get("tokens"):
        return []
    by = (f"{count['tokens']:,} {name} ({why})" for why, found in summary["by"].items() for name, count in found.items())
    share = summary["tokens"] / summary["of_tokens"]
    notes = [f"redundant: {summary['tokens']:,} of {summary['of_tokens']:,} tokens ({share:.0%}) are left out: {', '.join(by)}"]
    if likely := summary.get("log_likelihood"):
        notes.append(
            f"redundant: mean log-likelihood of the answer {likely['with']:.2f} with them, {likely['without']:.2f} without; "
            f"of {likely['rationales']} rationales, {likely['fell']} make it less than half as likely"
        )
    return notes
