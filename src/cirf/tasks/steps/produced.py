"""What a step produced, told by what the step says and not by what the final answer is."""

from __future__ import annotations

import re

from cirf.records import Problem
from cirf.tasks.answers import anchors, number_value
from cirf.tasks.steps.calculations import in_words, numbers_in, told_first, written_out
from cirf.tasks.steps.conclusions import concluded
from cirf.tasks.steps.equations import introduced, unsolved, unworked
from cirf.tasks.steps.options import option_at_front, option_named, worded
from cirf.tasks.steps.states import coin_state, state

_COIN = re.compile(r"\bcoin\b[^?]*\b(?:heads|tails)\b", re.IGNORECASE)
_SMALL_LETTER = re.compile(r"\W*[a-z]\W")


def produced(segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
    """The result of a step of any problem: the first of these that the step has.

    1. The letter of the option that it goes through: ``B`` in ``B. floor - one walks on it``.
    2. The number that it works out: ``24`` in ``48 / 2 = 24 km/h, so the answer is A.``, for that is what a model needs first.
    3. An equation that has no value yet: ``850+705+X=820*3``.
    4. What it concludes with: a letter, *yes* or *no*, an answer in words.
    5. The name of an unknown: ``X`` in ``Let X be the weight``.
    6. A number that it says in words: ``3`` in ``which leaves 3``.
    7. The side of a coin, where the question is about one.
    8. The only number that neither the question nor a result before it has: ``7`` in ``A week has 7 days``.
    9. A calculation that it sets up: ``6*3`` in ``Revenue = 6 × 3``.
    10. Of a step without numbers, a state in a few words: ``off``, ``prey animals``.

    An amount such as ``24 km/h`` is a number, and the letter of the option that reads so only where the step says outright that
    it is the answer.
    """
    value = written_out(segment)
    choices = problem.choices or ()
    letter = option_at_front(segment, problem) if choices else ""
    if letter and not (value and _SMALL_LETTER.match(segment)):  # "a) 3 + 4 = 7" numbers a step
        return letter
    if found := value or unsolved(segment):
        return found
    outright = bool(anchors(segment))
    if choices:
        found = option_named(segment, choices if outright else worded(choices))
    elif number_value(problem.answer) is None:
        found = concluded(segment, problem, previous)
    else:
        outright = False  # the answer is what is calculated
    return (
        found
        or introduced(segment)
        or ("" if outright else in_words(segment, previous))
        or (coin_state(segment, problem, previous) if _COIN.search(problem.question) else "")
        or told_first(segment, numbers_in(problem.question, *previous))
        or unworked(segment, previous)
        or ("" if numbers_in(segment) else state(segment, problem, previous))
    )
