"""Shared prefixes of a method's prompts: part of the key of the answers, and computed once per model.

A method declares them by `Method.openings`; other methods' prompts are read as usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.store.files import hash_json

if TYPE_CHECKING:
    from cirf.lm.decoding.prefix_cache import Beginnings
    from cirf.methods.base import Method
    from cirf.tasks.task import Task


def openings_of(method: Method, tasks: Mapping[str, Task]) -> dict[str, tuple[str, ...]]:
    """The openings of a method's prompts to each task that has any; empty for a method whose prompts have none."""
    summary = {name: method.openings(task) for name, task in tasks.items()}
    return {name: openings for name, openings in summary.items() if openings}


def key(methods: Iterable[Method], tasks: Mapping[str, Task]) -> dict[str, Any]:
    """The entry for the openings of some methods in the key of a stage; empty if none has any."""
    found = {method.name: openings_of(method, tasks) for method in methods}
    summary = {name: hash_json(openings) for name, openings in found.items() if openings}
    return {"openings": summary} if summary else {}


def beginnings(method: Method, tasks: Mapping[str, Task], model: Any, tokenizer: Any, source: Path | str) -> Beginnings | None:
    """Computes the beginning of a method's prompts to the model of ``source``, if not token by token: its thoughts, or a cache of
    its openings."""
    thinking = method.beginnings(model, tokenizer, source)
    if thinking is not None:
        return thinking
    found = openings_of(method, tasks)
    if not found:
        return None
    from cirf.lm.decoding.prefix_cache import Prefixes
    from cirf.lm.prompt import prompt_text

    texts = dict.fromkeys(text for openings in found.values() for text in openings)
    return Prefixes(model, tokenizer, [prompt_text(tokenizer, text) for text in texts])
