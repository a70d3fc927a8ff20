"""A short recipe as YAML: only the chosen values, each with its reason.

``draft(["Made by hand."], [Choice("codebook.size", 32, "1,140 steps: 35 a functional token")])``::

    # Made by hand.
    codebook:
      size: 32  # 1,140 steps: 35 a functional token
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cirf.recipe.yaml import inline

_WIDTH = 118


@dataclass(frozen=True, slots=True)
class Choice:
    """A recipe's key by its dotted path (a number is a place in a list), its value, and the reason."""

    key: str
    value: Any
    why: str


def draft(header: Sequence[str], choices: Sequence[Choice]) -> str:
    """The recipe of these choices, in their order; keys of one section must be adjacent."""
    return "".join(f"{line}\n" for line in (*(f"# {line}" for line in header), *_lines(choices)))


def _lines(choices: Sequence[Choice]) -> Iterator[str]:
    before: tuple[str, ...] = ()
    for choice in choices:
        *above, name = choice.key.split(".")
        opened = _shared(before, above)
        mark = ""
        for depth, part in enumerate(above):
            if depth < opened:
                continue
            if part.isdigit():
                mark = "- "
            else:
                yield f"{_indent(above[:depth])}{part}:"
        before = tuple(above)
        indent = _indent(above)
        line = f"{indent.removesuffix('  ') + mark if mark else indent}{name}: {inline(choice.value)}"
        commented = f"{line}  # {choice.why}"
        if len(commented) <= _WIDTH:
            yield commented
        else:
            yield f"{indent.removesuffix('  ') if mark else indent}# {choice.why}"
            yield line


def _shared(before: Sequence[str], above: Sequence[str]) -> int:
    """How many of the sections around a key are open already."""
    count = 0
    while count < min(len(before), len(above)) and before[count] == above[count]:
        count += 1
    return count


def _indent(above: Sequence[str]) -> str:
    return "  " * len(above)
