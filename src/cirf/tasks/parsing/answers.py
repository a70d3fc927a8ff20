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

import itertools
import re
from collections.abc import Iterator, Sequence

from cirf.records import AnswerKind
from cirf.tasks.parsing.anchors import SENTENCE_END, anchors
from cirf.tasks.parsing.latex import parse_latex, same_latex
from cirf.tasks.parsing.numeric import number_value, parse_number, same_number
from cirf.tasks.parsing.options import mentions, parse_option
from cirf.tasks.parsing.sequences import parse_brackets, parse_list, same_brackets
from cirf.tasks.parsing.texts import normalise_text, parse_text, same_text
from cirf.tasks.parsing.words import parse_truth, parse_validity, parse_yesno

__all__ = ["anchors", "equal_answers", "mentions", "normalise_text", "number_value", "parse_answer"]

READING = 11
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
        explained = _EXPLAINS.match(text)  # a first line of a few words above its explanation
        text = explained[1] if explained and len(explained[1].split()) <= _FEW_WORDS else text
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
    """Whether two canonical answers are the same. Numbers by value, whole ones exactly and others to 1e-6 (relative above 1);
    LaTeX by value (see ``cirf.tasks.parsing.latex``); brackets by the brackets alone; text after ``normalise_text``, and a number
    in it with or without its unit; all else exactly."""
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


_END = re.compile(
    r"</s>|<eos>|<end_of_turn>|<\|(?:im_end|endoftext|end_of_text|eot_id|eom_id|end|return|eot)\|>|<｜end▁of▁sentence｜>|\[/INST\]",
    re.I,
)
_START = re.compile(
    r"<\|(?:im_start|start_header_id)\|>(?:[ \t]*(?:system|user|assistant))?(?:<\|end_header_id\|>)?|"
    r"<start_of_turn>(?:model|user)?|<s>|<bos>|<\|(?:assistant|begin_of_text)\|>",
    re.I,
)
_CLOSING_TAG = re.compile(r"</(?:final_)?answer>\s*$", re.I)
_OPENING_TAG = re.compile(r"<(?:final_)?answer>", re.I)
_EXPLAINS = re.compile(
    r"\s*(\S[^\n]*)\n[\s*_#]*(?:explanation|explained|reason|reasoning|rationale|justification|note)\b[*_]*\s*:", re.I
)
_ASKS = re.compile(  # a line that opens another question
    r"^(?P<mark>[ \t>]*[#*_]*[ \t]*)(?:here(?:[’']s|[ \t]+is)[ \t]+)?"
    r"(?:(?:an?|the)[ \t]+)?(?:(?:next|new|another|similar|related|follow-?up|word|math)[ \t]+){0,3}"
    r"(?:(?P<asks>question|q|query|prompt|human|user|frage|pregunta|domanda|pergunta|вопрос|问题|問題)|"
    r"(?P<sets>problem|exercise|example|input|instruction|task))"
    r"[ \t]*#?[ \t]*\d{0,4}[ \t]*(?:[*_]*[:：][*_]*|[.)](?=[ \t])|[*_]*$)|^[ \t]*\[INST\]",
    re.I | re.M,
)
_PARAGRAPH = re.compile(r"\n(?:[ \t]*(?:[-*_=]{3,}[ \t]*)?\n)+|\n[ \t]*[-*_=]{3,}[ \t]*\n")
_ASKING = re.compile(r"(?:how|what|which|who|when|where|find)\b", re.I)
_FINAL = re.compile(r"^[ \t]*####[ \t]*[-$€£]?\d[\d.,]*%?[ \t]*$", re.M)
_CORRECTS = re.compile(r"\b(?:wait|wrong|mistake|incorrect|correct(?:ion|ed)|actually|sorry|oops|instead|re-?check)", re.I)
_GIVEN = re.compile(r"[\W_]*(?:given|known|context|passage|story|facts?|data|background|premises?)\b[^\n]*:", re.I)
_CHECKS = re.compile(
    r"(?:^|(?<=[.!?])[ \t]+)[ \t>#*_(]*(?:let(?:[’']s|[ \t]+(?:me|us))[ \t]+)?"
    r"(?:(?:to[ \t]+|quick[ \t]+|sanity[ \t]+|double[- ]?)?"
    r"(?:check|checking|verify|verification|proof|remark|hint)|"
    r"(?P<note>(?:side[ \t]*)?notes?|(?P<tip>tips?|fun[ \t]+fact)|n\.?b\.?|p\.?s\.?))"
    r"(?:[ \t]+(?:this|that|it|the|our|my|answer|result|work))*[*_]*[ \t]*[:：]|^[ \t>#*_(]*(?P<postscript>P\.[ ]?S\.)(?=[ \t])",
    re.I | re.M,
)
_APART = re.compile(r"\n[ \t]*\n[ \t]*\Z")
_ADVICE = re.compile(r"(?!\W*\d|.*\b(?:total|answer)\b)[^\n=]*", re.I)
_FEW_WORDS = 4  # words of an answer on its own line above its explanation


def unmarked(text: str) -> str:
    """The text up to the mark that ends a model's turn, such as ``</s>`` or ``<|im_end|>``, without the one that begins it. Text
    after the end is another turn, which may answer another question. A text of marks alone stays unchanged: they may be the
    answer."""
    said = text
    for match in _START.finditer(text):
        if text[: match.start()].strip():
            said = text[: match.start()]
            break
        said = text[match.end() :]
    said = next((said[: end.start()] for end in _END.finditer(said) if said[: end.start()].strip()), said)
    if not _OPENING_TAG.search(said):
        said = _CLOSING_TAG.sub("", said)
    return said if said.strip() else text


def other_questions(text: str) -> Iterator[tuple[str, bool, bool]]:
    """The text before each line that opens another question (``Question:``, ``Q:``, ``Problem 2:``), with whether a blank line
    separates them, and whether the line's word means a question; not before one that opens the text or that the text
    announces. Also before a paragraph that poses one without such a word, and after a line ``#### 17`` that nothing corrects."""
    opened = {match.end(): False for match in _PARAGRAPH.finditer(text) if _poses(text[match.end() :].partition("\n")[0])}
    final = _FINAL.search(text)
    if final and not _CORRECTS.search(text, final.end()):
        opened |= {final.end(): False}
    opened |= {match.start(): match["sets"] is None for match in _ASKS.finditer(text)}
    for place, asks in sorted(opened.items()):
        before = text[:place]
        if before.strip() and not _GIVEN.match(before) and not before.rstrip(" \t\n*_#").endswith((":", "：")):
            yield before, re.search(r"\n[ \t]*\n[ \t]*\Z", before) is not None, asks


def _poses(line: str) -> bool:
    """Whether a line states numbers and then asks something: ``Ann has 5 cups and buys 4. How many has she?``"""
    if not line.rstrip().endswith("?"):
        return False
    *given, asked = SENTENCE_END.split(line.strip())
    return _ASKING.match(asked.strip()) is not None and any(re.search(r"[^\W\d]\D*\d", sentence) for sentence in given)


def before_a_check(text: str) -> tuple[str, str]:
    """The text without a last paragraph that checks the answer or notes something (``Check: 18 + 2 = 20.``), and that paragraph
    if it is a check; empty where it is a note or there is none."""
    for match in _CHECKS.finditer(text):
        after = text[match.end() :].strip()
        if match["tip"] and not (_APART.search(text, 0, match.start()) and _ADVICE.fullmatch(after)):  # "Tip: $6", of a bill
            continue
        if text[: match.start()].strip() and "\n\n" not in after:
            return text[: match.start()], "" if match["note"] or match["postscript"] else after
    return text, ""
