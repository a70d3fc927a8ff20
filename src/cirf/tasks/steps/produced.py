"""What a step produced, told by what the step says and not by what the final answer is."""

from __future__ import annotations

import re

from cirf.records import Problem
from cirf.tasks.answers import anchors, number_value
from cirf.tasks.numerals import plain
from cirf.tasks.steps.calculations import in_words, numbers_in, told_first, written_out
from cirf.tasks.steps.conclusions import concluded, judges, singles_out
from cirf.tasks.steps.equations import introduced, unsolved, unworked
from cirf.tasks.steps.options import option_at_front, option_named, worded
from cirf.tasks.steps.states import coin_state, state

_COIN = re.compile(r"\bcoin\b[^?]*\b(?:heads|tails)\b", re.IGNORECASE)
_ANSWER_TO = re.compile(r"\banswer to\b[^.?!\n]*", re.IGNORECASE)
_LABEL = re.compile(  # a number in front of a colon: "Day 1: ...", "divide by 20: ..."
    r"(?P<lead>^\W*(?:[A-Za-z]+\s)?|\b(?:by|day|week|month|year|round|case|part|step|row|line|box|person|option)\s)"
    r"\$?\d[\d,]*(?:\.\d+)?\s?(?=:(?:[\s*]|$))",
    re.IGNORECASE | re.MULTILINE,
)
_JUDGED = re.compile(  # what is said of a number: "91 is not prime"
    r"\d\s+(?:is|are)(?:n['’]t\b|\s(?:also\s|thus\s|therefore\s|indeed\s)?(?:not|an?|prime|composite|even|odd|divisible|greater"
    r"|larger|bigger|smaller|less|more|fewer|higher|lower|equal|enough|sufficient|possible|impossible)\b)",
    re.IGNORECASE,
)
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

    A step that names the side of the coin and answers too has the side. A number in front of a colon is a label (``Day 1:``),
    and one of which something is said (``91 is not prime``) is no result where the question asks for *yes* or *no*. A step that
    says what the answer is, or in a problem with a text for an answer singles something out, has no state.

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
    outright = answers = bool(anchors(segment))
    coin = _COIN.search(problem.question) is not None
    if choices:
        found = option_named(segment, choices if outright else worded(choices))
    elif number_value(problem.answer) is None:
        found = concluded(segment, problem, previous)
        if found and coin:
            found = coin_state(_ANSWER_TO.sub("", segment), problem, ()) or found
        answers = answers or (not judges(problem) and singles_out(segment))
    else:
        outright = False  # the answer is what is calculated
    told = _LABEL.sub(r"\g<lead>", segment)
    judged = judges(problem) and _JUDGED.search(plain(segment)) is not None
    return (
        found
        or introduced(segment)
        or ("" if outright or judged else in_words(told, previous))
        or (coin_state(segment, problem, previous) if coin else "")
        or ("" if judged else told_first(told, numbers_in(problem.question, *previous)))
        or unworked(segment, previous)
        or ("" if answers or numbers_in(segment) else state(segment, problem, previous))
    )
