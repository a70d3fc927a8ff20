"""What surrounds an answer and is none of it: marks of the end of a turn, tags, and an explanation that follows."""

from __future__ import annotations

import re

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
    r"\s*(\S[^\n]*)\n[\s*_#]*(?:explanation|explained|reason|reasoning|rationale|justification|note)\b[*_]*\s*:",
    re.IGNORECASE,
)
_FEW = 4  # words of an answer that stands alone above its explanation


def unmarked(text: str) -> str:
    """The text up to the mark that ends a model's turn, such as ``</s>`` or ``<|im_end|>``, without the one that begins it.

    What a model writes behind its end is another turn, in which it may well answer another question. A text of marks alone
    stays as it is: they may be what was asked for.
    """
    told = text
    for match in _START.finditer(text):
        if text[: match.start()].strip():
            told = text[: match.start()]
            break
        told = text[match.end() :]
    told = next((told[: end.start()] for end in _END.finditer(told) if told[: end.start()].strip()), told)
    if not _OPENING_TAG.search(told):
        told = _CLOSING_TAG.sub("", told)
    return told if told.strip() else text


def without_explanation(text: str) -> str:
    """The first line, where it is a word or a few and the next line says that it explains it; else the text."""
    match = _EXPLAINS.match(text)
    return match[1] if match and len(match[1].split()) <= _FEW else text
