"""The answer of a rationale, read only if the text states outright that it is the answer.

Prose is full of numbers and of the word "a", so guessed answers would drop good rationales. An anchored statement counts (``####
72``, ``\\boxed{72}``, ``the answer is 72``), and of it only what can be read one way. Without one, the number that the last
sentence works out may confirm the answer (``80 + 6 = 86 minutes``), and may deny it only where the sentence is a conclusion (``So
the result is 86 minutes``).
"""

from __future__ import annotations

import re
from dataclasses import replace

from cirf.rationales.segmentation import clean_segments
from cirf.records import AnswerKind, Problem
from cirf.tasks.parsing.answers import anchors, number_value
from cirf.tasks.parsing.numeric import in_full
from cirf.tasks.steps import calculated
from cirf.tasks.task import Task
from cirf.text.normalise import normalise
from cirf.text.numerals import UNREAD, find_numbers, number_text, plain_numbers, with_points
from cirf.text.sentences import sentences

_ANCHOR = re.compile(r"answer|\\boxed|####", re.IGNORECASE)
_ANSWER_LINE = re.compile(r"(?:^|\s)#### ?([^\n]+)\s*\Z")
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_ANNOUNCED = re.compile(
    r"\b(?:final |correct |right |best )?answer(?: (?:here|now|to (?:the|this) (?:question|problem)))?(?: ?:| is:?)"
    r"(?: |\n+(?=[^\n]+\Z))(?:therefore |thus |then |still )?([^\n]+)"
    r"|\banswer to whether [^\n.]*? is (yes|no)\b",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(
    r"^\W*(?:so|therefore|thus|hence|in total|altogether|in conclusion)\b"
    r"|\b(?:answer|result|total) (?:is|was|would be|will be|should be|comes to|equals)\b",
    re.IGNORECASE,
)
_UNSURE = re.compile(r"\b(?:above|below|over|under|than|least|most|between|if|not|would have)\b|\d \d{3}\b", re.IGNORECASE)
_SCALE = re.compile(r" (?:hundred|thousand|million|billion|trillion)$")  # often part of the question's unit
_UNITS = (60, 100, 1000)  # hours and minutes, dollars and cents, kilometres and metres
_LONGEST_TEXT = 80
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_NUMBER = re.compile(r"(?<![\w.])[-+]?[$€£]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_LETTER = re.compile(r"(?:option |choice )?(?:\(([A-Z])\)|([A-Z])(?![\w']))")
_YES_NO = re.compile(r"(?:yes|no|true|false)\b", re.IGNORECASE)


def stated_answer(text: str, problem: Problem, task: Task) -> str | None:
    """The canonical answer that a rationale states, by its last anchored statement; ``None`` where it states none readable."""
    text, task = _in_points(text, problem, task)
    if not _ANCHOR.search(text):
        return None
    if task.kind(problem) == "latex":
        return task.parse(text, problem) if anchors(text) else None
    line = _ANSWER_LINE.search(text)
    if line is not None:
        return task.parse(line[1].strip(), problem)
    plain = normalise(text)
    boxed = [(match.start() / max(1, len(text)), match[1]) for match in _BOXED.finditer(text)]
    announced = [(match.start() / max(1, len(plain)), match[1] or match[2]) for match in _ANNOUNCED.finditer(plain)]
    for _, statement in sorted(boxed + announced, reverse=True):
        words = _readable(statement, task.kind(problem), problem)
        if words is not None:
            return task.parse(words, problem)
    return None


def closes_with(text: str, problem: Problem, task: Task) -> bool | None:
    """Whether the last sentence comes to the problem's number; ``None`` where it comes to none, or to another that need not
    be the answer: the sentence is no conclusion or does not give it outright, the text holds the right number elsewhere, or
    the two differ by a unit or by rounding alone.
    """
    text, task = _in_points(text, problem, task)
    steps = clean_segments(text, "auto")[1] if task.kind(problem) == "number" else []
    right = number_value(problem.answer)
    if not steps or right is None:
        return None
    last = plain_numbers(sentences(steps[-1][0])[-1])
    concludes = _CONCLUDES.search(last) is not None
    found = _SCALE.sub("", calculated(last, problem, ()))
    numbers = sorted({number.value for number in find_numbers(last)})
    value = number_value(found) if found else numbers[0] if concludes and len(numbers) == 1 else None
    if value is None or UNREAD in last:
        return None
    if task.equal(number_text(value), problem):
        return True
    outright = (last.count("=") == 1 or numbers == [value]) and _UNSURE.search(last) is None
    elsewhere = any(number.value == right for number in find_numbers(plain_numbers(text)))
    same = abs(value - right) < 1 or any(value in (right * size, right / size) for size in _UNITS)
    return False if concludes and outright and not elsewhere and not same else None


def _in_points(text: str, problem: Problem, task: Task) -> tuple[str, Task]:
    """A rationale with numbers in our notation, and the task to read it by."""
    if not task.decimal_commas or task.kind(problem) != "number":
        return text, task
    return with_points(text), replace(task, decimal_commas=False)


def _readable(statement: str, kind: AnswerKind, problem: Problem) -> str | None:
    """The part of a statement that can only be the answer, in a form that any reader takes for it; else ``None``."""
    if kind == "text" and "\\" in statement:
        return statement if len(statement) <= _LONGEST_TEXT else None
    plain = normalise(statement).strip(" \"'")
    end = _SENTENCE_END.search(plain)
    first = plain[: end.start()] if end is not None else plain
    if kind == "number":
        tail = in_full(plain_numbers(first.rsplit("=", 1)[-1], answer=True))
        found = {number.strip("$€£+").rstrip(",").replace(",", "") for number in _NUMBER.findall(tail)}
        return found.pop() if len(found) == 1 and UNREAD not in tail else None
    if kind == "option":
        letter = _LETTER.match(plain)
        article = letter and letter[2] == "A" and re.match(r" [a-z]", plain[letter.end() :])  # "A place to sit"
        if letter is not None and not article:
            return letter[1] or letter[2]
        choices = [choice.casefold() for choice in problem.choices or ()]
        return chr(ord("A") + choices.index(first.casefold())) if choices.count(first.casefold()) == 1 else None
    if kind == "yesno":
        word = _YES_NO.match(plain)
        return word[0] if word is not None else None
    return first if len(first) <= _LONGEST_TEXT else None
