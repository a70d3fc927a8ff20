"""Places on somebody's machine, in what is written for others: a card, a recipe, a record.

A worked example: ``{"model": "/home/ann/models/base", "task": "gsm8k"}`` is published as ``{"model": "base", "task": "gsm8k"}``.
"""

from __future__ import annotations

import re
from typing import Any

_WINDOWS = re.compile(r"[A-Za-z]:[/\\].+", re.DOTALL)


def is_place(text: str) -> bool:
    """Whether a text as a whole is an absolute path, or one from a home folder: ``/a``, ``~/a``, ``C:\\a``."""
    if "\n" in text or len(text) > 4096:
        return False
    return bool(_WINDOWS.fullmatch(text)) or (text.startswith(("/", "~/")) and text.strip("/~ ") != "")


def without_folders(value: Any) -> Any:
    """The same lists, dicts and texts with each place by its last part alone; keys of dicts stay."""
    if isinstance(value, dict):
        return {key: without_folders(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(one) for one in value]
    if isinstance(value, str) and is_place(value):
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return value


def places_in(value: Any) -> list[str]:
    """Every text in lists and dicts that is a place."""
    if isinstance(value, dict):
        return [place for one in value.values() for place in places_in(one)]
    if isinstance(value, list | tuple):
        return [place for one in value for place in places_in(one)]
    return [value] if isinstance(value, str) and is_place(value) else []
