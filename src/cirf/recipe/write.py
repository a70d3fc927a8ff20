"""Recipes and sweeps written as YAML, every key in full: the copy that a run keeps with its artefacts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cirf.recipe import keys as recipe_keys
from cirf.recipe.schema import Recipe, Section
from cirf.recipe.sweep import Sweep
from cirf.recipe.yaml import block, inline, scalar, spread

_WIDTH = 118


def dump(recipe: Recipe | Sweep) -> str:
    """The recipe as YAML: every key, in the schema's order. ``parse(dump(recipe)) == recipe``."""
    return "\n".join(_section(recipe, "")) + "\n"


def _section(section: Section, indent: str) -> Iterator[str]:
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        inner, many = recipe_keys.inner_section(info)
        if inner is None or (many and not value):
            yield _pair(name, value, indent)
            continue
        yield f"{indent}{name}:"
        if not many:
            yield from _section(value, f"{indent}  ")
        elif isinstance(value, dict):
            for chosen, each in value.items():
                lines = list(_section(each, f"{indent}    "))
                yield f"{indent}  {scalar(chosen)}:{'' if lines else ' {}'}"
                yield from lines
        else:
            for each in value:
                first, *others = _section(each, f"{indent}    ")
                yield f"{indent}  - {first.lstrip()}"
                yield from others


def _pair(name: str, value: Any, indent: str) -> str:
    text = _value(value, indent)
    return f"{indent}{name}:{text}" if text.startswith("\n") else f"{indent}{name}: {text}"


def _value(value: Any, indent: str) -> str:
    if isinstance(value, str):
        return block(value, f"{indent}  ") or scalar(value)
    line = inline(value)
    if isinstance(value, tuple) and len(indent) + len(line) > _WIDTH - 30:
        return "".join(f"\n{indent}  - {inline(item)}" for item in value)
    if isinstance(value, dict):
        return spread(value, f"{indent}  ", _WIDTH - 30).removeprefix(" ")
    return line
