"""The option that a step is about: ``C`` in ``C. **floor** - furniture stands on the floor.``"""

from __future__ import annotations

import re

from cirf.records import Problem
from cirf.tasks.answers import mentions, parse_answer
from cirf.tasks.numerals import find_numbers, plain
from cirf.tasks.steps.calculations import plain_step

_LETTER_FRONT = re.compile(
    r"^\W*(?:(?:option\s+|choice\s+)?\(?([A-Z])(?:[).:](?=\s|$)|\s+-\s|\)|:)|(?:option|choice)\s+([A-Z])\b(?!['’]))",
    re.IGNORECASE,
)
_DIFFERENCE = re.compile(r"\W*[A-Za-z]\s+-\s+[$(]*(?:[0-9]|[A-Za-z]\b)")  # "B - 5 = 7" is no option


def option_discussed(segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
    """The letter of the option a step is about or settles on; empty if it names none or several."""
    return option_at_front(segment, problem) or option_named(segment, problem.choices or ())


def option_at_front(segment: str, problem: Problem) -> str:
    """The letter that a step opens with, as in ``B) It is too far.`` and ``Option B is wrong.``"""
    text = plain(segment)
    front = _LETTER_FRONT.match(text)
    letter = (front[1] or front[2]).upper() if front and not _DIFFERENCE.match(text) else ""
    return letter if letter and ord(letter) - 65 < len(problem.choices or ()) else ""


def option_named(segment: str, choices: tuple[str, ...]) -> str:
    """The letter of the option that a step begins with, settles on or names alone."""
    text = plain_step(segment)
    named = mentions(text, choices)
    if named and not text[: named[0][0]].strip(" \"'“‘(-*"):  # the step begins with an option's text
        return chr(65 + named[0][2])
    concluded = parse_answer("option", segment, choices)
    if concluded:
        return concluded
    indices = {index for _, _, index in named}
    return chr(65 + indices.pop()) if len(indices) == 1 else ""


def worded(choices: tuple[str, ...]) -> tuple[str, ...]:
    """The options' texts, empty where one is an amount: ``24 km/h`` in a step is what it works out, not what it chooses."""
    return tuple("" if find_numbers(plain(choice)) else choice for choice in choices)
