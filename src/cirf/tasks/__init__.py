"""The tasks, by name. A new one is a file and a line here; its module is imported when it is asked for."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from cirf.errors import CirfError
from cirf.user_code import OWN

if TYPE_CHECKING:
    from cirf.recipe import Problems
    from cirf.tasks.task import Task

MODULES = {
    "gsm8k": "cirf.tasks.gsm8k",
    "svamp": "cirf.tasks.svamp",
    "multiarith": "cirf.tasks.multiarith",
    "coin_flip": "cirf.tasks.coin_flip",
    "commonsense_qa": "cirf.tasks.commonsense_qa",
    "math500": "cirf.tasks.math500",
    "bbh": "cirf.tasks.bbh",
    "strategyqa": "cirf.tasks.strategyqa",
    "scienceqa": "cirf.tasks.scienceqa",
    "made_coin_flip": "cirf.tasks.made_coin_flip",
    "chain_sum": "cirf.tasks.chain_sum",
    "leg_counting": "cirf.tasks.leg_counting",
    "gsm_symbolic": "cirf.tasks.gsm_symbolic",
}

JSONL = "jsonl"
"""The name that stands in a recipe for a user's own file."""

__all__ = ["JSONL", "MODULES", "OWN", "get", "names", "resolve"]


def names() -> tuple[str, ...]:
    """Every registered task's name (``jsonl`` is none: its tasks are built from the recipe)."""
    return tuple(MODULES)


def get(name: str) -> Task:
    """The task of that name, or in the Python file of that path; ``CirfError`` names the nearest one if there is none."""
    if name.endswith(OWN):
        from cirf.tasks.own import load_task

        return load_task(name)
    if name not in MODULES:
        known = (*MODULES, JSONL)
        near = difflib.get_close_matches(name, known, 1, 0.0)
        raise CirfError(f"problems.tasks: there is no task {name!r}; the nearest is {near[0]!r} (all: {', '.join(known)})")
    task: Task = importlib.import_module(MODULES[name]).TASK
    return task


def resolve(section: Problems, lenient: bool = False) -> dict[str, Task]:
    """The tasks of a recipe by table name (``entry.name`` or ``entry.task``); ``jsonl`` ones are built from their files.

    ``lenient``: rows of these files that cannot be used are passed over instead of raised, as where the recipe allows some.
    """
    found = {}
    for entry in section.tasks:
        name = entry.name or entry.task
        if entry.task == JSONL:
            from cirf.tasks.jsonl import build_task

            found[name] = build_task(entry, section.data, lenient or section.unusable > 0)
        else:
            found[name] = get(entry.task)
    return found
