"""The keys of a recipe as data: their meanings, types, and suggestions for misspelt keys.

Everything is read from the schema in ``schema.py``, or from another ``schema``, such as that of sweeps; nothing here is about a
single key. Keys are dotted paths in which ``*`` is any list position or user-chosen name: ``problems.tasks.*.train``.
"""

import json
import textwrap
import types
import typing
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic.fields import FieldInfo

from cirf.recipe.schema import Recipe, Section
from cirf.recipe.yaml import Path, inline, scalar

_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", types.NoneType: "null"}
_SHARES, _LONG_WORD = 0.76, 5  # likeness of names that share a word of so many letters
_CLOSE_ENOUGH = 0.6  # difflib's own cutoff for a match worth showing


class KeyRow(NamedTuple):
    """One key: dotted path, type in words, default as YAML (empty: must be given), meaning, unit, place in the paper."""

    key: str
    type: str
    default: str
    meaning: str
    unit: str
    paper: str

    @property
    def parent(self) -> str:
        return self.key.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        return self.key.rpartition(".")[2]


@cache
def rows(schema: type[Section] = Recipe) -> tuple[KeyRow, ...]:
    """Every key of the schema, sections and the keys within, in the schema's order."""
    return tuple(rows_of(schema))


@cache
def by_key(schema: type[Section] = Recipe) -> dict[str, KeyRow]:
    return {row.key: row for row in rows(schema)}


def rows_of(section: type[Section], prefix: str = "", defaults: Section | None = None) -> Iterator[KeyRow]:
    """Every key of a section and of those within, in order; its ``defaults`` where the group that holds it has its own."""
    for name, info in section.model_fields.items():
        default = info.get_default() if defaults is None else getattr(defaults, name)
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        yield KeyRow(
            key=prefix + name,
            type=expected(info),
            default="" if info.is_required() or isinstance(default, Section) else inline(default),
            meaning=info.description or "",
            unit=str(extra.get("unit", "")),
            paper=str(extra.get("paper", "")),
        )
        inner, many = inner_section(info)
        if inner is not None:
            held = default if isinstance(default, Section) else None
            yield from rows_of(inner, f"{prefix}{name}.*." if many else f"{prefix}{name}.", held)


def inner_section(info: FieldInfo) -> tuple[type[Section] | None, bool]:
    """The section that a field holds, and whether it holds many of them (a list, or names of the user's choosing)."""
    annotation = info.annotation
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation, False
    for part in typing.get_args(annotation):
        if isinstance(part, type) and issubclass(part, Section):
            return part, True
    return None, False


def expected(info: FieldInfo) -> str:
    """The type of a key, in words: ``a number above 0``, ``one of cirf, think``, ``a list of text``."""
    return _words(info.annotation, list(info.metadata))


def _words(annotation: Any, limits: list[Any]) -> str:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return "a group of keys"
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        own = [limit for item in args[1:] for limit in (item.metadata if isinstance(item, FieldInfo) else [item])]
        return _words(args[0], [*own, *limits])
    if origin in (typing.Union, types.UnionType):
        parts = [_words(part, [] if part is types.NoneType else limits) for part in args]
        return " or ".join(dict.fromkeys(parts))
    if origin is Literal:
        return f'"{args[0]}"' if len(args) == 1 else "one of " + ", ".join(map(inline, args))
    if origin is tuple:
        return f"a list of {_plural(_words(args[0], []))}" + (", at least one" if _limit(limits, "min_length") else "")
    if annotation is Any:
        return "any value"
    if origin is dict:
        return f"a mapping of NAME to {_words(args[1], [])}"
    return _WORDS.get(annotation, str(annotation)) + _range(limits)


def _plural(words: str) -> str:
    for one, many in (
        ("a whole number", "whole numbers"),
        ("a number", "numbers"),
        ("a group", "groups"),
        ("a mapping", "mappings"),
    ):
        if words.startswith(one):
            return many + words[len(one) :]
    return words


def _limit(limits: list[Any], name: str) -> Any:
    return next((getattr(limit, name) for limit in limits if getattr(limit, name, None) is not None), None)


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _range(limits: list[Any]) -> str:
    low, above, high, below, pattern = (_limit(limits, name) for name in ("ge", "gt", "le", "lt", "pattern"))
    if pattern is not None:
        return f" that matches {pattern}"
    if low is not None and high is not None:
        return f" from {_number(low)} to {_number(high)}"
    if low is not None and below is not None:
        return f" from {_number(low)} to below {_number(below)}"
    if above is not None:
        return f" above {above:g}" + (f" and at most {_number(high)}" if high is not None else "")
    return f" of at least {low:g}" if low is not None else ""


def locate(path: Path, schema: type[Section] = Recipe) -> tuple[str, type[Section] | None] | None:
    """The schema's key for a path, positions and chosen names as ``*``, and the section it holds, if it holds one. A path into a
    plain value (an item of a list of numbers) gives the value's key; an unknown path gives ``None``."""
    section: type[Section] | None = schema
    choice = False  # whether the next part is a position or a name of the user's choosing
    parts: list[str] = []
    for part in path:
        if choice:
            parts.append("*")
            choice = False
        elif section is None:
            break
        elif part not in section.model_fields:
            return None
        else:
            parts.append(str(part))
            section, choice = inner_section(section.model_fields[str(part)])
    return ".".join(parts), None if choice else section


def nearest(path: Path, schema: type[Section] = Recipe) -> str:
    """A hint for a key that does not exist: the nearest valid one, of its section if one is near there, or all keys of its
    section. A right name in the wrong place gives every section that has it."""
    above, leaf = path[:-1], str(path[-1])
    located = locate(above, schema)
    parent = located[0] if located else dotted(above)
    siblings = [row for row in rows(schema) if row.parent == parent]
    hits = [row for row in rows(schema) if row.leaf == leaf] or _near(leaf, siblings) or _near(leaf, rows(schema))
    hits = [row for row in hits if "*" not in row.key or row in siblings] or hits
    if not hits:
        named = ", ".join(row.leaf for row in siblings)
        return f"the keys of {dotted(above) or f'a {schema.__name__.lower()}'} are {named}"
    return "did you mean " + " or ".join(dotted((*above, row.leaf)) if row in siblings else row.key for row in hits) + "?"


def _near(typed: str, among: Sequence[KeyRow]) -> list[KeyRow]:
    """The rows of the likeliest names; none if even these are unlike."""
    scores = [_likeness(typed, row.leaf) for row in among]
    best = max(scores, default=0.0)
    return [row for row, score in zip(among, scores, strict=True) if score == best >= _CLOSE_ENOUGH]


def _likeness(typed: str, key: str) -> float:
    typed, words = typed.lower().replace("-", "_"), key.lower().split("_")
    if len(typed) > 1 and typed == "".join(word[0] for word in words):  # lr, bs
        return 0.9
    shared = any(len(word) >= _LONG_WORD for word in {*typed.split("_")} & {*words})  # trace_cap and max_trace_tokens
    return max(SequenceMatcher(None, typed, key.lower()).ratio(), _SHARES * shared)


def dotted(path: Path) -> str:
    return ".".join(map(str, path))


def found(value: Any) -> str:
    """A value for a message: a text in quotes, shortened if long."""
    if isinstance(value, dict):
        return "a group of keys"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, str):
        return json.dumps(textwrap.shorten(value, 60, placeholder="...") if len(value) > 60 else value, ensure_ascii=False)
    return scalar(value)
