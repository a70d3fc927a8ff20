"""The sources and licences of a model's or a data set's data: a table of both kinds of cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from cirf.store.paths import without_folders
from cirf.tasks import JSONL, OWN, TASKS, get

UNSAID = "unknown to `cirf`; ask the author"
AS_PROBLEMS = "as the problems"


class Source(NamedTuple):
    """A part of the data: the task or ``rationales``, where it comes from (Markdown), its licence as hubs write it (empty: not
    known), and whether it is for evaluation only."""

    name: str
    origin: str
    licence: str
    evaluation_only: bool = False


def sources(recipe: Mapping[str, Any]) -> list[Source]:
    """The sources of a resolved recipe's data (``model_dump(mode="json")``); files by name without folders."""
    return [*map(_task, recipe["problems"]["tasks"]), *_rationales(recipe.get("rationales") or {})]


def licence_of(parts: Sequence[Source]) -> str | None:
    """The licence of all training data; ``None`` if they differ or one is unknown."""
    found = {source.licence for source in parts if not source.evaluation_only and source.licence != AS_PROBLEMS}
    return found.pop() if len(found) == 1 and "" not in found else None


def _task(entry: Mapping[str, Any]) -> Source:
    task, name = entry["task"], entry.get("name") or entry["task"]
    if task == JSONL or task.endswith(OWN) or task not in TASKS:
        files = [PurePath(entry[key]).name for key in ("train_file", "test_file") if entry.get(key)]
        return Source(name, f"rows of the maker's own ({', '.join(files)})" if files else "rows of the maker's own", "")
    known = get(task)
    if known.hub is None:
        return Source(name, f"{known.title}: problems made by `cirf`", known.licence)
    hub = known.hub.id
    return Source(name, f"[{hub}](https://huggingface.co/datasets/{hub})", known.licence, known.evaluation_only)


def _rationales(section: Mapping[str, Any]) -> list[Source]:
    found = []
    if section.get("source") in ("auto", "files"):
        found = [Source("rationales", f"a file, {PurePath(name).name}", "") for name in section.get("files", ())]
    if section.get("source") == "teacher":
        models = dict.fromkeys(endpoint["model"] for endpoint in section["teacher"]["endpoints"])
        found = [Source("rationales", f"written by {without_folders(model)}", "") for model in models]
    return found or [Source("rationales", "the solutions that come with the problems", AS_PROBLEMS)]
