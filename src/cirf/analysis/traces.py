"""Parsing functional tokens in text, for display.

``<cirf><cirf_016>48<cirf_023>72</cirf>72`` is the trace ``[(16, "48"), (23, "72")]``. `lm.vocabulary` reads traces too, but
importing it imports torch, which takes seconds that a report does not need. A test checks that the two agree.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"<cirf_(\d{3,})>")
_EDGE = re.compile(r"<(?:cirf|think)>")
_END = re.compile(r"</(?:cirf|think)>")


def read_codes(output: str) -> list[tuple[int | None, str]]:
    """Each functional token of a trace with the text after it, up to the closing delimiter.

    A token without a result has an empty text; text before the first token has ``None``.
    """
    body = _EDGE.sub("", _END.split(output, maxsplit=1)[0])
    before, *parts = _TOKEN.split(body)
    alone: list[tuple[int | None, str]] = [(None, before.strip())] if before.strip() else []
    return alone + [(int(code), result.strip()) for code, result in zip(parts[::2], parts[1::2], strict=True)]


def is_functional(output: str) -> bool:
    """Whether a text holds functional tokens at all."""
    return _TOKEN.search(output) is not None
