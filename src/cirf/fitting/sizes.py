"""How large a model is by its name, for one that is not on this machine: 1.7 billion for ``Qwen/Qwen3-1.7B``."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(?<![\d.])(\d{1,4}(?:\.\d{1,3})?)\s?([bm])(?![a-z])", re.IGNORECASE)


def size_in_name(model: str) -> int | None:
    """The parameters that a model's name speaks of; ``None`` where it names no number."""
    found = _SIZE.search(model.rpartition("/")[2])
    return None if found is None else int(float(found[1]) * (10**9 if found[2] in "bB" else 10**6)) or None


def in_words(parameters: int) -> str:
    """``494 million``, ``1.7 billion``."""
    if parameters < 1_000_000:
        return f"{parameters:,}"
    return f"{parameters / 1e9:.1f} billion" if parameters >= 999_500_000 else f"{parameters / 1e6:.0f} million"
