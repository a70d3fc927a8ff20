"""Recipes and sweeps written as YAML: bare, or with a comment on every key that says what it means.

The comments come from the schema (``recipe.py``, ``sweep.py``) by way of ``recipe_keys.py``; nothing about a single key stands
here. After a change of the schema's texts, ``python -m cirf.recipe_text recipes/*.yaml sweeps/*.yaml`` brings the comments of
recipes up to date; the reasons given for single values (``Here: ...``) stay.
"""

from __future__ import annotations

import pathlib
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from cirf import recipe_keys
from cirf.recipe import Recipe, Section
from cirf.recipe_keys import KeyRow, dotted
from cirf.sweep import Sweep
from cirf.yaml_text import Path, block, inline, parse, scalar, spread

_WIDTH = 118
_REASON = "Here: "
_RECIPE = (
    "# The recipe {name}. The comment on a key: what it means, what it takes, its unit, its default and its place",
    "# in the paper (CIRF: Tokenizing Chain-of-Thoughts into Reusable Functional Units). Another value for one run:",
    "# cirf run FILE --set finetune.epochs=1",
)
_SWEEP = (
    "# The sweep {name}: several runs of one recipe (docs/sweeps.md). The comment on a key: what it means, what it takes",
    "# and its default. What it would do: cirf sweep FILE --dry-run",
)


def dump(recipe: Recipe | Sweep) -> str:
    """The recipe as YAML: every key, in the schema's order. ``parse(dump(recipe)) == recipe``."""
    return "\n".join(_section(recipe, (), "", None, type(recipe))) + "\n"


def commented(recipe: Recipe | Sweep, why: Mapping[str, str] | None = None) -> str:
    """The recipe as YAML in which a comment on every key gives its meaning, unit, default and place in the paper.

    ``why`` adds, by dotted key, why the value is what it is. A second and later entry of a list names just the keys
    that differ from their defaults. Raises ``ValueError`` for a ``why`` of a key that is not written.
    """
    left = dict(why or {})
    header = [*(_SWEEP if isinstance(recipe, Sweep) else _RECIPE), ""]
    header[0] = header[0].format(name=recipe.name)
    body = list(_section(recipe, (), "", left, type(recipe)))
    if left:
        raise ValueError(f"no such key in the recipe: {', '.join(left)}")
    return "\n".join([*header, *body]) + "\n"


def reasons(text: str, schema: type[Section] = Recipe) -> dict[str, str]:
    """The reasons that the comments of a recipe give for its values, by dotted key: ``commented`` takes them back."""
    lines = text.splitlines()
    found = {}
    for path, number in parse(text).lines.items():
        located = recipe_keys.locate(path, schema)
        if located is None or located[0] not in recipe_keys.by_key(schema) or located[0].count(".") + 1 != len(path):
            continue
        comment = lines[number - 1].partition("  # ")[2]
        if not comment:
            first = number - 1
            while first and lines[first - 1].lstrip().startswith("#"):
                first -= 1
            comment = " ".join(line.strip().removeprefix("#").strip() for line in lines[first : number - 1])
        reason = comment.partition(_REASON)[2]
        if reason:
            found[dotted(path)] = reason
    return found


def _section(section: Section, prefix: Path, indent: str, why: dict[str, str] | None, schema: type[Section]) -> Iterator[str]:
    """The lines of a section. ``why`` is consumed as its keys are written; ``None`` writes no comments."""
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        key = (*prefix, name)
        if why is not None:
            if not prefix and isinstance(value, Section):
                yield ""
            yield from _comment(key, value, indent, why.pop(dotted(key), ""), schema)
        inner, many = recipe_keys.inner_section(info)
        if inner is None or (many and not value):
            yield _pair(name, value, indent)
        elif not many:
            yield f"{indent}{name}:"
            yield from _section(value, key, f"{indent}  ", why, schema)
        elif isinstance(value, dict):
            yield f"{indent}{name}:"
            for position, (chosen, each) in enumerate(value.items()):
                if why is not None:
                    yield f"{indent}  # For {scalar(chosen)} alone."
                lines = list(_entry(each, (*key, chosen), f"{indent}    ", why, schema, first=not position))
                yield f"{indent}  {scalar(chosen)}:{'' if lines else ' {}'}"
                yield from lines
        else:
            yield f"{indent}{name}:"
            for position, each in enumerate(value):
                lines = list(_entry(each, (*key, position), f"{indent}    ", why, schema, first=not position))
                start = next(number for number, line in enumerate(lines) if not line.lstrip().startswith("#"))
                yield from (line[2:] for line in lines[:start])
                yield f"{indent}  - {lines[start].lstrip()}"
                yield from lines[start + 1 :]


def _entry(
    section: Section, prefix: Path, indent: str, why: dict[str, str] | None, schema: type[Section], *, first: bool
) -> Iterator[str]:
    """One of many sections: in full where it is the first or bare, else just what differs, with short comments beside."""
    if why is None or first:
        yield from _section(section, prefix, indent, why, schema)
        return
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if info.is_required() or value != info.get_default():
            reason = why.pop(dotted((*prefix, name)), "")
            beside = _row((*prefix, name), schema).meaning.partition(". ")[0].rstrip(".") + "."
            beside += f" {_REASON}{reason}" if reason else ""
            pair = _pair(name, value, indent)
            if "\n" in pair:
                yield f"{indent}# {beside}"
                yield pair
            else:
                yield f"{pair}  # {beside}"


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


def _row(path: Path, schema: type[Section]) -> KeyRow:
    located = recipe_keys.locate(path, schema)
    assert located is not None  # the path comes from the schema
    return recipe_keys.by_key(schema)[located[0]]


def _comment(key: Path, value: Any, indent: str, reason: str, schema: type[Section]) -> Iterator[str]:
    row = _row(key, schema)
    parts = [row.meaning]
    if row.type.startswith("one of"):
        parts.append(row.type[0].upper() + row.type[1:] + ".")
    if row.unit:
        parts.append(f"Unit: {row.unit}.")
    if not isinstance(value, Section):
        parts.append(f"Default: {row.default}." if row.default else "Must be given.")
    if row.paper:
        parts.append(f"Paper: {row.paper}.")
    if reason:
        parts.append(_REASON + reason)
    for line in textwrap.wrap(" ".join(parts), _WIDTH - len(indent) - 2, break_long_words=False, break_on_hyphens=False):
        yield f"{indent}# {line}"


def _refresh(files: list[str]) -> None:
    from cirf import recipe_io, sweep_io
    from cirf.files import write_atomic

    for name in files:
        path = pathlib.Path(name)
        text = path.read_text(encoding="utf-8")
        read: Recipe | Sweep = sweep_io.load(name).sweep if sweep_io.is_sweep(text) else recipe_io.load(name)
        write_atomic(path, commented(read, reasons(text, type(read))))


if __name__ == "__main__":
    _refresh(sys.argv[1:])
