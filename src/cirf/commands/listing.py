"""``recipes``, ``tasks``, ``methods`` and ``env``: what there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cirf.errors import CirfError


def _show(rows: list[dict[str, Any]], as_json: bool, columns: tuple[str, ...]) -> None:
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    widths = [max(len(str(row[column] or "")) for row in rows) for column in columns[:-1]]
    for row in rows:
        left = "  ".join(str(row[column] or "").ljust(width) for column, width in zip(columns, widths, strict=False))
        print(f"{left}  {row[columns[-1]] or ''}")


def recipes(name: str | None, schema: bool, as_json: bool) -> None:
    """The shipped recipes, one of them, or the schema of all."""
    from cirf.recipe_io import load, schema_rows, shipped

    if schema:
        fields = ("key", "type", "default", "meaning", "unit", "paper")
        _show([dict(zip(fields, row, strict=True)) for row in schema_rows()], as_json, ("key", "type", "default", "meaning"))
        return
    there = shipped()
    if name is not None:
        if name not in there:
            raise CirfError(f"recipes: there is no shipped recipe {name!r} (there are: {', '.join(there)})")
        text = (
            json.dumps(load(name).model_dump(mode="json"), indent=2) + "\n"
            if as_json
            else there[name].read_text(encoding="utf-8")
        )
        print(text, end="")
        return
    rows = [{"name": key, "notes": load(key).notes.strip(), "path": str(path)} for key, path in there.items()]
    if not as_json:  # a line each: the first sentence
        rows = [row | {"notes": " ".join(row["notes"].split()).partition(". ")[0]} for row in rows]
    _show(rows, as_json, ("name", "notes"))


def tasks(as_json: bool) -> None:
    """The tasks."""
    from cirf.tasks import get, names

    rows: list[dict[str, Any]] = []
    for name in names():
        task = get(name)
        made = {
            "name": name,
            "title": task.title,
            "answer": task.answer,
            "answers": task.all_kinds,
            "source": task.hub.id if task.hub else "generated",
            "revision": task.hub.revision if task.hub else None,
            "splits": ["test"] if task.evaluation_only else ["train", "test"],
            "subsets": [part.config for part in task.hub.parts("test") if part.config] if task.hub else [],
            "version": task.version,
            "cap": task.cap,
            "summary": task.summary,
        }
        rows.append(made)
    if not as_json:
        rows = [row | {"answer": _briefly(row["answers"]), "splits": ", ".join(row["splits"])} for row in rows]
    _show(rows, as_json, ("name", "title", "answer", "source", "splits", "version", "summary"))


def _briefly(kinds: Sequence[str]) -> str:
    return kinds[0] if len(kinds) == 1 else f"{len(kinds)} kinds"


def methods(as_json: bool) -> None:
    """The methods."""
    from cirf.methods import METHODS

    rows = [{"name": name, "trained": method.trained, "summary": method.summary} for name, method in METHODS.items()]
    _show(rows, as_json, ("name", "summary"))


def env(as_json: bool) -> None:
    """Versions, hardware, the cache and its models."""
    from cirf.environment import describe

    there = describe()
    if as_json:
        print(json.dumps(there, indent=2))
        return
    for key, value in there.items():
        if isinstance(value, dict):
            print(f"{key}:")
            for inner, text in value.items():
                print(f"  {inner:32} {text}")
        else:
            print(f"{key:34} {value}")
