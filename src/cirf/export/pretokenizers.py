"""Which of llama.cpp's pre-tokenizers a tokenizer has, detected by its behaviour and not by its name.

The same vocabulary with another pre-tokenizer gives other ids for the same text, and a model that was trained on one reads the
other badly, without any error. So a tokenizer is tested on a text that the known ways split differently.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cirf.errors import CirfError

PROBE = "It's 2024,  I'VE 7\t\tof\n\n them\n "
"""Contractions in both cases, a number of four digits, several blanks, tabs and line ends between words."""

_DIGITS = ("It", "'s", " ", "2", "0", "2", "4", ",", " ", " I")
_WORDS = ("\t", "\tof", "\n\n", " them", "\n", " ")
_BYTES = ("\t", "\t", "of", "\n\n", " them", "\n ")
_WAYS: dict[str, tuple[str, ...]] = {
    "gpt-2": ("It", "'s", " 2024", ",", " ", " I", "'", "VE", " 7", *_BYTES),
    "smollm": (*_DIGITS, "'", "VE", " ", "7", *_BYTES),
    "qwen2": (*_DIGITS, "'VE", " ", "7", *_WORDS),
    "llama-bpe": ("It", "'s", " ", "202", "4", ",", " ", " I", "'VE", " ", "7", *_WORDS),
}


def cut(tokenizer: Any, text: str = PROBE) -> tuple[str, ...]:
    """The pieces of a text before BPE."""
    before = tokenizer.backend_tokenizer.pre_tokenizer
    return tuple(text[start:end] for _, (start, end) in before.pre_tokenize_str(text)) if before is not None else (text,)


def name_of(tokenizer: Any, source: Path | str) -> str:
    """llama.cpp's name of the pre-tokenizer; ``CirfError`` for an unknown one."""
    pieces = cut(tokenizer)
    for name, way in _WAYS.items():
        if pieces == way:
            return name
    raise CirfError(f"{source}: its pre-tokenizer is not supported; llama.cpp's convert_hf_to_gguf.py may support it")
