"""The answer in words that a step concludes with: ``no`` in ``9 is divisible by 3. Hence no.``"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cirf.records import AnswerKind, Problem
from cirf.tasks.answers import anchors, normalise_text, parse_answer
from cirf.tasks.steps.calculations import CONCLUDES, SENTENCES, plain_step

_SAYS_YES_OR_NO = re.compile(r"\W*(?:yes|no|true|false|valid|invalid)\b", re.IGNORECASE)
_CLOSED_SETS: Mapping[str, AnswerKind] = {
    **dict.fromkeys(("yes", "no"), "yesno"),
    **dict.fromkeys(("True", "False"), "truth"),
    **dict.fromkeys(("valid", "invalid"), "validity"),
}
_SINGLES_OUT = re.compile(r"\bonly\b|\bof the (?:above|given|listed)\b", re.IGNORECASE)
_ARTICLE = re.compile(r"\A(?:an?|the)\s+", re.IGNORECASE)


def concluded(segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
    """For answers in words: an anchored answer, else a *yes* or *no* (*True*, *valid*, ...) that a sentence concludes with or
    opens with, else the answer where a sentence that concludes, or singles something out, names it, be it in the plural; empty
    where the step does not conclude. An anchored text counts only where it is the problem's answer."""
    kind = _CLOSED_SETS.get(problem.answer)
    if anchors(segment):
        said = parse_answer(kind or "text", segment) or ""
        return said if kind else problem.answer if said and _is_answer(said, problem.answer) else ""
    if kind:
        for sentence in reversed(SENTENCES.split(plain_step(segment))):
            concludes = CONCLUDES.match(sentence) or _SAYS_YES_OR_NO.match(sentence)
            if concludes and (found := parse_answer(kind, sentence)):
                return found
        return ""
    named = re.compile(rf"(?<!\w){re.escape(problem.answer)}(?:s|es)?(?!\w)", re.IGNORECASE) if problem.answer.strip() else None
    for sentence in reversed(SENTENCES.split(plain_step(segment))):
        if named is not None and (CONCLUDES.match(sentence) or _SINGLES_OUT.search(sentence)) and named.search(sentence):
            return problem.answer
    return ""


def judges(problem: Problem) -> bool:
    """Whether a problem asks for *yes* or *no*, *True* or *False*, *valid* or *invalid*."""
    return problem.answer in _CLOSED_SETS


def singles_out(segment: str) -> bool:
    """Whether a step says that only one thing, or one of those above, is so."""
    return _SINGLES_OUT.search(plain_step(segment)) is not None


def _is_answer(found: str, answer: str) -> bool:
    """Whether a text is the answer, articles and the plural apart."""
    said, expected = (_ARTICLE.sub("", normalise_text(text)) for text in (found, answer))
    if not expected:  # nothing but signs
        return found.strip() == answer.strip()
    return said in (expected, f"{expected}s", f"{expected}es")
