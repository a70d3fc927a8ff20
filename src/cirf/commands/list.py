"""``recipes``, ``tasks``, ``methods`` and ``env``: listings."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from cirf.environment import conflicts, describe
from cirf.errors import CirfError
from cirf.methods import METHODS, named
from cirf.methods.base import Method
from cirf.recipe import sweep
from cirf.recipe.keys import rows as schema_rows
from cirf.recipe.keys import rows_of
from cirf.recipe.load import load, shipped
from cirf.recipe.yaml import inline
from cirf.tasks import get, names


def _show(rows: list[dict[str, Any]], as_json: bool, columns: tuple[str, ...]) -> None:
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    widths = [max(len(str(row[column] or "")) for row in rows) for column in columns[:-1]]
    for row in rows:
        left = "  ".join(str(row[column] or "").ljust(width) for column, width in zip(columns, widths, strict=False))
        print(f"{left}  {row[columns[-1]] or ''}")


def recipes(name: str | None, schema: bool, as_json: bool) -> None:
    if schema:
        fields = ("key", "type", "default", "meaning", "unit", "paper")
        _show([dict(zip(fields, row, strict=True)) for row in schema_rows()], as_json, ("key", "type", "default", "meaning"))
        return
    there = shipped()
    if name is not None:
        if name not in there:
            raise CirfError(f"recipes: no shipped recipe {name!r} (available: {', '.join(there)})")
        text = (
            json.dumps(load(name).model_dump(mode="json"), indent=2) + "\n"
            if as_json
            else there[name].read_text(encoding="utf-8")
        )
        print(text, end="")
        return
    rows = [{"name": key, "notes": load(key).notes.strip(), "path": str(path)} for key, path in there.items()]
    if not as_json:  # a line each: the first sentence
        rows = [row | {"notes": _first_sentence(row["notes"])} for row in rows]
    _show(rows, as_json, ("name", "notes"))


def sweeps(as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    for name, path in sweep.shipped().items():
        loaded = sweep.load(name)
        notes, points = loaded.sweep.notes.strip(), len(loaded.points())
        rows.append({"name": name, "runs": points, "notes": notes, "path": str(path)})
    if not as_json:
        rows = [row | {"runs": f"{row['runs']} runs", "notes": _first_sentence(row["notes"])} for row in rows]
    _show(rows, as_json, ("name", "runs", "notes"))


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0]


def tasks(as_json: bool) -> None:
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
    _show(rows, as_json, ("name", "title", "answer", "source", "splits", "summary"))


def _briefly(kinds: Sequence[str]) -> str:
    return kinds[0] if len(kinds) == 1 else f"{len(kinds)} kinds"


def methods(name: str | None, as_json: bool) -> None:
    if name is not None:
        variant = {} if name in METHODS else _variants().get(name, {})
        if variant and as_json:
            print(json.dumps(variant, indent=2, ensure_ascii=False))
        elif variant:
            _show([variant], False, ("name", "summary"))
        else:
            _method(named(name), as_json)
        return
    rows = [{"name": name, "trained": method.trained, "summary": method.summary} for name, method in METHODS.items()]
    _show(rows, as_json, ("name", "summary"))
    if not as_json:
        print("\nVariants in shipped recipes:")
        _show([*_variants().values()], as_json, ("name", "summary"))


def _variants() -> dict[str, dict[str, Any]]:
    """The variants in shipped recipes that are no methods: tables of results name them too."""
    found: dict[str, dict[str, Any]] = {}
    for recipe in shipped():
        for name, variant in load(recipe).variants.items():
            if name not in METHODS and variant.reward is None:
                row: dict[str, Any] = {"name": name, "method": variant.method, "settings": dict(variant.settings), "recipes": []}
                found.setdefault(name, row)["recipes"].append(recipe)
    for row in found.values():
        row["summary"] = f"{row['method']} with {inline(row['settings'])}, in {', '.join(row['recipes'])}"
    return found


def _method(method: type[Method], as_json: bool) -> None:
    settings = [
        {
            "name": row.key,
            "type": row.type,
            "default": row.default,
            "unit": row.unit,
            "meaning": row.meaning,
            "answering": row.key in method.answering,
        }
        for row in rows_of(method.Settings)
    ]
    presets = {
        preset: {"settings": dict(found.settings), "training": found.training.model_dump(mode="json", exclude_none=True)}
        for preset, found in method.presets.items()
    }
    if as_json:
        details = {"name": method.name, "summary": method.summary, "trained": method.trained, "functional": method.functional}
        print(json.dumps(details | {"settings": settings, "presets": presets}, indent=2, ensure_ascii=False))
        return
    print(f"{method.name}: {method.summary}")
    if not settings:
        print("\nIt has no settings.")
    for row in settings:
        default = f"Default: {row['default']}." if row["default"] else "Must be given."
        unit = f" Unit: {row['unit']}." if row["unit"] else ""
        when = " Matters only when answering." if row["answering"] else ""
        print(f"\n{row['name']}: {row['type']}. {default}{unit}{when}")
        print(_filled(str(row["meaning"])))
    for preset, parts in presets.items():
        print(f"\npreset {preset}")
        for part, keys in parts.items():
            if keys:
                print(_filled(f"{part}: " + ", ".join(f"{key}: {inline(value)}" for key, value in keys.items())))
    if not presets:
        print("\nIt has no presets: it is trained as the recipe's finetune says." if method.trained else "\nIt is not trained.")


def _filled(text: str) -> str:
    return textwrap.indent(textwrap.fill(text, 100, break_on_hyphens=False), "    ")


def env(as_json: bool) -> None:
    there = describe() | {"conflicts": conflicts()}
    if as_json:
        print(json.dumps(there, indent=2))
        return
    for key, value in there.items():
        if isinstance(value, dict):
            print(f"{key}:")
            for inner, text in value.items():
                print(f"  {inner:36} {text}")
        elif isinstance(value, list):
            print(f"{key}:", *(value or ["none"]), sep="\n  ")
        else:
            print(f"{key:38} {value}")
