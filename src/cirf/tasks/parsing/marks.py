"""Text around an answer that is not part of it: marks of the end of a turn, tags, another question, a check, an explanation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cirf.tasks.parsing.anchors import SENTENCE_END

_END = re.compile(
    r"</s>|<eos>|<end_of_turn>|<\|(?:im_end|endoftext|end_of_text|eot_id|eom_id|end|return|eot)\|>|<｜end▁of▁sentence｜>|\[/INST\]",
    re.IGNORECASE,
)
_START = re.compile(
    r"<\|(?:im_start|start_header_id)\|>(?:[ \t]*(?:system|user|assistant))?(?:<\|end_header_id\|>)?|"
    r"<start_of_turn>(?:model|user)?|<s>|<bos>|<\|(?:assistant|begin_of_text)\|>",
    re.IGNORECASE,
)
_CLOSING_TAG = re.compile(r"</(?:final_)?answer>\s*$", re.IGNORECASE)
_OPENING_TAG = re.compile(r"<(?:final_)?answer>", re.IGNORECASE)
_EXPLAINS = re.compile(
    r"\s*(\S[^\n]*)\n[\s*_#]*(?:explanation|explained|reason|reasoning|rationale|justification|note)\b[*_]*\s*:", re.IGNORECASE
)
_ASKS = re.compile(  # a line that opens another question
    r"^(?P<mark>[ \t>]*[#*_]*[ \t]*)(?:here(?:[’']s|[ \t]+is)[ \t]+)?"
    r"(?:(?:an?|the)[ \t]+)?(?:(?:next|new|another|similar|related|follow-?up|word|math)[ \t]+){0,3}"
    r"(?:(?P<asks>question|q|query|prompt|human|user|frage|pregunta|domanda|pergunta|вопрос|问题|問題)|"
    r"(?P<sets>problem|exercise|example|input|instruction|task))"
    r"[ \t]*#?[ \t]*\d{0,4}[ \t]*(?:[*_]*[:：][*_]*|[.)](?=[ \t])|[*_]*$)|^[ \t]*\[INST\]",
    re.IGNORECASE | re.MULTILINE,
)
_PARAGRAPH = re.compile(r"\n(?:[ \t]*(?:[-*_=]{3,}[ \t]*)?\n)+|\n[ \t]*[-*_=]{3,}[ \t]*\n")
_ASKING = re.compile(r"(?:how|what|which|who|when|where|find)\b", re.IGNORECASE)
_FINAL = re.compile(r"^[ \t]*####[ \t]*[-$€£]?\d[\d.,]*%?[ \t]*$", re.MULTILINE)
_CORRECTS = re.compile(
    r"\b(?:wait|wrong|mistake|incorrect|correct(?:ion|ed)|actually|sorry|oops|instead|re-?check)", re.IGNORECASE
)
_GIVEN = re.compile(r"[\W_]*(?:given|known|context|passage|story|facts?|data|background|premises?)\b[^\n]*:", re.IGNORECASE)
_CHECKS = re.compile(
    r"(?:^|(?<=[.!?])[ \t]+)[ \t>#*_(]*(?:let(?:[’']s|[ \t]+(?:me|us))[ \t]+)?"
    r"(?:(?:to[ \t]+|quick[ \t]+|sanity[ \t]+|double[- ]?)?"
    r"(?:check|checking|verify|verification|proof|remark|hint)|"
    r"(?P<note>(?:side[ \t]*)?notes?|(?P<tip>tips?|fun[ \t]+fact)|n\.?b\.?|p\.?s\.?))"
    r"(?:[ \t]+(?:this|that|it|the|our|my|answer|result|work))*[*_]*[ \t]*[:：]|^[ \t>#*_(]*(?P<postscript>P\.[ ]?S\.)(?=[ \t])",
    re.IGNORECASE | re.MULTILINE,
)
_APART = re.compile(r"\n[ \t]*\n[ \t]*\Z")
_ADVICE = re.compile(r"(?!\W*\d|.*\b(?:total|answer)\b)[^\n=]*", re.IGNORECASE)
_FEW = 4  # words of an answer on its own line above its explanation


def unmarked(text: str) -> str:
    """The text up to the mark that ends a model's turn, such as ``</s>`` or ``<|im_end|>``, without the one that begins it.

    Text after the end is another turn, which may answer another question. A text of marks alone stays unchanged: they may be the
    answer.
    """
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


def without_explanation(text: str) -> str:
    """The first line if it has a few words and the next line introduces an explanation; else the text."""
    match = _EXPLAINS.match(text)
    return match[1] if match and len(match[1].split()) <= _FEW else text


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
