"""The settings of a model's training, from its own record, since the run's recipe may have changed. Warnings about
test questions that the models of an evaluation were trained on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cirf.recipe.schema import Override
from cirf.store.files import hash_json, load_object

_HASH = re.compile(r"[0-9a-f]{64}")


def read_settings(folder: Path) -> dict[str, Any] | None:
    """The settings of a model's folder, as its ``stage.json`` has them; ``None`` where it has none.

    ``{"finetune": {...}, "override": {...} or None, "seed", "backbone": {...}, "vocabulary": {...}}``, the last only for a
    functional method. ``backbone`` holds ``model`` where it is known by name (a folder may be known by hash only).
    """
    section = (load_object(folder / "stage.json") or {}).get("section")
    if not isinstance(section, dict):
        return None
    backbone = dict(section.get("backbone") or {})
    content = backbone.pop("content", None)
    named = (load_object(folder / "functions.json") or {}).get("backbone")
    return section | {"backbone": {**_name(content), **({"model": named} if named else {}), **backbone}}


def _name(content: str | None) -> dict[str, str | None]:
    """A backbone's name from its identification in a stage's key; empty for a folder, which is identified by a hash."""
    from cirf.assets import ASSETS, published_hash
    from cirf.assets.catalogue import PREFIX

    bundled = {published_hash(PREFIX + asset): PREFIX + asset for asset in ASSETS}
    if content in bundled:
        return {"model": bundled[content]}
    if content is None or _HASH.match(content):
        return {}
    model, _, revision = content.partition("@")
    return {"model": model, "revision": revision or None}


def as_trained(
    recipe: Mapping[str, Any], settings: Mapping[str, Any] | None, method: str, codebook: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A run's recipe with the settings of ``method``'s actual training. ``settings`` is `read_settings`'s, ``codebook`` the part
    of ``report.json`` (for a method that uses it). Other keys are the recipe's."""
    found = dict(recipe)
    if settings and found:
        overrides = {name: keys for name, keys in found["finetune"]["overrides"].items() if name != method}
        if settings.get("override"):
            overrides[method] = Override.model_validate(settings["override"]).model_dump(mode="json")
        if not overrides.get(method, {}).get("learning_rate"):
            found["finetune"] = {**found["finetune"], "learning_rates": []}  # unless the model's own settings name them
        own = settings.get("finetune", {})
        whole = {"trial_epochs": None} if own.get("learning_rates") else {}  # unless they say that trials were short
        found["finetune"] = {**found["finetune"], **whole, **own, "overrides": overrides}
        found["seed"] = settings.get("seed", found["seed"])
        found["backbone"] = {**found["backbone"], **settings.get("backbone", {})}
        if "vocabulary" in settings:  # published archives lack it: there the model wrote the opening delimiter
            found["vocabulary"] = {**found["vocabulary"], "opening": "written", **settings["vocabulary"]}
    if codebook and found:
        found["codebook"] = {**found["codebook"], **codebook["settings"]}
        found["embeddings"] = {**found["embeddings"], **codebook["embedder"]}
    return found


def seen_before(overlap: Mapping[str, Any]) -> list[str]:
    """Facts about models trained elsewhere, from the ``overlap`` of ``problems.json``: a sentence per task and run for all
    methods whose models were trained there, and one for those with unknown training data."""
    sentences = []
    same: dict[str, list[dict[str, Any]]] = {}
    for row in overlap.get("models", ()):
        same.setdefault(hash_json({**row, "methods": None}), []).append(row)
    for rows in same.values():
        row, who = rows[0], ", ".join(method for one in rows for method in one["methods"])
        if not row["known"]:
            sentences.append(f"{who}: the model's training data are unknown, so they were not searched for test questions")
        for task, found in row["tasks"].items():
            near = f"share {overlap['words']} words in a row with one that was"
            of = f"{row['questions']:,} questions of {', '.join(row['runs'])}"
            counts = f"{found['exact']:,} were trained on and {found['near']:,} {near}"
            sentences.append(f"{who}: of {found['test']:,} test questions of {task}, {counts} ({of})")
    return sentences
