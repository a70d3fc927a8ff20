"""The answer a rationale comes to, read only where the text says outright that it is the answer.

Prose is full of numbers and of the word "a"; an answer guessed from it would drop good rationales. So only an anchored
statement counts (``#### 72``, ``\\boxed{72}``, ``the answer is 72``), and of it only what can be read one way.
"""

from __future__ import annotations

import re

from cirf.rationales.normalise import normalise
from cirf.records import AnswerKind, Problem
from cirf.tasks.task import Task

_ANCHOR = re.compile(r"answer|\\boxed|####", re.IGNORECASE)
_ANSWER_LINE = re.compile(r"(?:^|\n) ?#### ?([^\n]+)\s*\Z")
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_ANNOUNCED = re.compile(
    r"\b(?:final |correct |right |best )?answer(?: (?:here|now|to (?:the|this) (?:question|problem)))?(?: ?:| is:?)"
    r"(?: |\n+(?=[^\n]+\Z))(?:therefore |thus |then |still )?([^\n]+)"
    r"|\banswer to whether [^\n.]*? is (yes|no)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_NUMBER = re.compile(r"(?<![\w.])[-+]?[$€£]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_LETTER = re.compile(r"(?:option |choice )?(?:\(([A-Z])\)|([A-Z])(?![\w']))")
_YES_NO = re.compile(r"(?:yes|no|true|false)\b", re.IGNORECASE)


def stated_answer(text: str, problem: Problem, task: Task) -> str | None:
    """The canonical answer that a rationale states, by its last anchored statement; ``None`` where it states none readable."""
    if not _ANCHOR.search(text):
        return None
    line = _ANSWER_LINE.search(text)
    if line is not None:
        return task.parse(line[1].strip(), problem)
    statements = _statements(text)
    for statement in reversed(statements):
        words = _readable(statement, task.answer, problem)
        if words is not None:
            return task.parse(words, problem)
    return None


def _statements(text: str) -> list[str]:
    boxed = [(match.start() / max(1, len(text)), match[1]) for match in _BOXED.finditer(text)]
    plain = normalise(text)
    announced = [(match.start() / max(1, len(plain)), match[1] or match[2]) for match in _ANNOUNCED.finditer(plain)]
    return [statement for _, statement in sorted(boxed + announced)]


def _readable(statement: str, kind: AnswerKind, problem: Problem) -> str | None:
    """The part of a statement that can only be the answer, in a form that any reader takes for it; else ``None``."""
    plain = normalise(statement).strip(" \"'")
    end = _SENTENCE_END.search(plain)
    first = plain[: end.start()] if end is not None else plain
    if kind == "number":
        tail = first.rsplit("=", 1)[-1]
        found = {number.strip("$€£+").rstrip(",").replace(",", "") for number in _NUMBER.findall(tail)}
        return found.pop() if len(found) == 1 else None
    if kind == "option":
        letter = _LETTER.match(plain)
        if letter is not None and not _is_article(plain, letter):
            return letter[1] or letter[2]
        choices = [choice.casefold() for choice in problem.choices or ()]
        return chr(ord("A") + choices.index(first.casefold())) if choices.count(first.casefold()) == 1 else None
    if kind == "yesno":
        word = _YES_NO.match(plain)
        return word[0] if word is not None else None
    return first if len(first) <= 80 else None


def _is_article(text: str, letter: re.Match[str]) -> bool:
    """Whether the letter is the word "A" that opens a phrase, as in "A place to sit"."""
    return letter[2] == "A" and re.match(r" [a-z]", text[letter.end() :]) is not None
