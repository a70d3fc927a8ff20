r"""Parsing answers from model outputs, and comparing two answers.

What follows the end of a turn (``</s>``, ``<|im_end|>``) is not read, and neither is what follows an answer: another
question (``Q: ...`` on its own line), or a last paragraph that checks the answer or notes something. First the
**anchored** answer: ``#### x``, ``\boxed{x}``, ``<answer>x</answer>``, ``The answer is x``, ``Answer: x``; the last
anchor that can be read wins. A ``####`` line that holds no answer is a heading, and "the answer is clear" is no anchor.
A number, option or formula that an anchor denies is none, and where the last anchor offers several numbers or options
(``18 or 19``, ``A, B``) nothing is read. Without an anchor:

* number: of the last sentence with numbers the right side of its last equation, else its only bold
  number, else its last one; plain powers are worked out;
* option: a text that is nothing but a letter (``c``, ``(C)``, ``C. anger``) or one option's text, or starts with a marked
  letter, or ends in a line or a verdict that is one ("Therefore, C"); else the only option that the last sentence names,
  unless it says "not";
* yesno, truth: the last clear *yes*, *no*, *true* or *false* ("no longer" and "yes or no" are not clear), but not one that the
  reason for another names;
* validity: the last *valid* or *invalid* in the same way ("not valid" is invalid; "whether it is valid" says nothing);
* list: the longest row of the question's own words, a repetition of the question's list last;
* brackets: the last line's row of brackets that closes, not those that prose names;
* latex: the last formula that the last sentence with one sets apart, else a text that is nothing but a formula or a number;
* text: the text itself if it is one line, else its last line.

An unreadable answer is ``None``, which is not the same as wrong. No letter inside a word and no article is ever an option.
Each kind is a file of ``cirf.tasks.parsing``, which has the details.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from cirf.records import AnswerKind
from cirf.tasks.parsing.anchors import anchors
from cirf.tasks.parsing.latex import parse_latex, same_latex
from cirf.tasks.parsing.marks import before_a_check, other_questions, unmarked, without_explanation
from cirf.tasks.parsing.numeric import number_value, parse_number, same_number
from cirf.tasks.parsing.options import mentions, parse_option
from cirf.tasks.parsing.sequences import parse_brackets, parse_list, same_brackets
from cirf.tasks.parsing.texts import normalise_text, parse_text, same_text
from cirf.tasks.parsing.words import parse_truth, parse_validity, parse_yesno

__all__ = ["anchors", "equal_answers", "mentions", "normalise_text", "number_value", "parse_answer"]

READING = 6
"""Raised with the tasks' versions when parsing changes: a user's own task has no version of ours, and this one triggers parsing
its answers again."""
_CHECKED: frozenset[AnswerKind] = frozenset({"number", "option", "yesno", "truth", "validity"})
_FEW = 4  # questions and checks that are read: a model in a loop writes thousands


def parse_answer(kind: AnswerKind, text: str, choices: Sequence[str] | None = None, question: str = "") -> str | None:
    """The canonical answer of that kind in ``text``; ``None`` if there is none that can be read safely. ``choices`` are the
    options' texts, for options; ``question``: gives the words of a list, and which brackets an answer may repeat."""
    text = unmarked(text)
    for before, apart, asks in itertools.islice(other_questions(text), _FEW):
        anchored = bool(anchors(before))
        if not (anchored or asks) or " ".join(before.split()) in " ".join(question.split()):  # the question is repeated
            continue
        found = _read(kind, before, choices, question)
        if anchored or (found is not None and apart):
            return found
        if found is not None:  # an answer, or the subject of the next question
            rest = _read(kind, text[len(before) :], choices, question)
            return found if rest is None or equal_answers(kind, rest, found) else None
    return _read(kind, text, choices, question)


def _read(kind: AnswerKind, text: str, choices: Sequence[str] | None, question: str, checks: int = _FEW) -> str | None:
    if kind in _CHECKED and checks:
        before, check = before_a_check(text)
        if before != text and not anchors(check) and (kind == "number" or anchors(before)):
            found = _read(kind, before, choices, question, checks - 1)
            if found is not None:
                return found
    if not anchors(text):
        text = without_explanation(text)
    match kind:
        case "number":
            return parse_number(text)
        case "option":
            return parse_option(text, choices)
        case "yesno":
            return parse_yesno(text)
        case "truth":
            return parse_truth(text)
        case "validity":
            return parse_validity(text)
        case "list":
            return parse_list(text, question)
        case "brackets":
            return parse_brackets(text, question)
        case "latex":
            return parse_latex(text)
    return parse_text(text)


def equal_answers(kind: AnswerKind, parsed: str, gold: str) -> bool:
    """Whether two canonical answers are the same.

    Numbers by value, whole ones exactly and others to 1e-6 (relative above 1); LaTeX by value (see
    ``cirf.tasks.parsing.latex``); brackets by the brackets alone; text after ``normalise_text``, and a number in it with or
    without its unit; all else exactly.
    """
    match kind:
        case "number":
            return same_number(parsed, gold)
        case "latex":
            return same_latex(parsed, gold)
        case "brackets":
            return same_brackets(parsed, gold)
        case "text":
            return same_text(parsed, gold)
    return parsed == gold
