"""The step that each group of thoughts replaces, which is the decoder's target (SIM-CoT, Wei et al. 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cirf.lm.prompt import encode, sanitise


def aligned(steps: Sequence[str], count: int, rest: str = "") -> list[str]:
    """The target of each of ``count`` groups of thoughts: one step each, and the last group all that are left.

    With fewer steps than groups, the others get ``rest``::

        steps      3 groups                4 groups, rest "72"
        a b c d    [a] [b] [c d]           [a] [b] [c] [d]
        a b        [a] [b] [rest]          [a] [b] [72] [72]
    """
    if not count:
        return []
    own = [*steps[: count - 1], "\n".join(steps[count - 1 :])] if len(steps) >= count else list(steps)
    return own + [rest] * (count - len(own))


def groups_of(tokenizer: Any, texts: Sequence[str], end: int) -> tuple[tuple[int, ...], ...]:
    """Texts as ids with the end token; nothing of an empty one."""
    return tuple((*encode(tokenizer, sanitise(text, tokenizer)), end) if text else () for text in texts)
