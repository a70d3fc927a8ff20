"""Checks of the API's inputs: rows, lists and settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from cirf.errors import CirfError
from cirf.recipe.load import validated
from cirf.recipe.schema import Section
from cirf.recipe.yaml import Document
from cirf.records import AnswerKind, Problem
from cirf.tasks import get
from cirf.tasks.own_rows import rows_in_memory
from cirf.tasks.task import Task

Row = Mapping[str, Any] | Problem
"""A question: a mapping with ``question``, ``answer`` and where needed ``rationale``, ``choices`` and ``id``, or a record."""

_Item = TypeVar("_Item")
_Chosen = TypeVar("_Chosen", bound=Section)


def listed(items: Iterable[_Item], where: str, what: str) -> list[_Item]:
    """The items as a list; ``CirfError`` for a single text or mapping, and for none."""
    if isinstance(items, (str, Mapping, Problem)):
        raise CirfError(f"{where}: {what} must be a list; put a single one into brackets")
    found = list(items)
    if not found:
        raise CirfError(f"{where}: {what} is empty; give at least one")
    return found


def same_length(where: str, **lists: list[Any]) -> None:
    """``CirfError`` unless all lists are of one length."""
    if len({len(items) for items in lists.values()}) > 1:
        counts = ", ".join(f"{len(items)} {name}" for name, items in lists.items())
        raise CirfError(f"{where}: found {counts}; give one entry a row in each")


def field(row: object, name: str, where: str, number: int) -> Any:
    """A field of a row; ``CirfError`` if the row is none, ``None`` if it lacks the field."""
    if isinstance(row, Problem):
        return getattr(row, name)
    if isinstance(row, Mapping):
        return row.get(name)
    raise CirfError(f"{where}, row {number}: expected a dict with question and answer, found {type(row).__name__}")


def problems_of(rows: Iterable[Row], where: str, answer: AnswerKind | None = None) -> tuple[dict[str, Task], list[Problem]]:
    """The tasks of rows by name, and the rows as records, in order.

    Records keep the task that they name. ``answer`` is the kind of answers of mappings; ``None``: detected from the rows.
    ``CirfError`` names the first row that does not fit.
    """
    every = listed(rows, where, "rows")
    records = [row for row in every if isinstance(row, Problem)]
    if len(records) == len(every):
        return {name: get(name) for name in dict.fromkeys(row.task for row in records)}, records
    choices = [field(row, "choices", where, number) for number, row in enumerate(every)]
    if records:
        raise CirfError(f"{where}: rows mixes dicts and Problem records; give rows of one kind")
    plain = [{**row, "choices": list(own)} if own else row for row, own in zip(every, choices, strict=True)]  # type: ignore[dict-item]
    task, problems = rows_in_memory(plain, where, answer)  # type: ignore[arg-type]
    return {task.name: task}, problems


def settings(schema: type[_Chosen], given: Mapping[str, Any], where: str, without: Collection[str] = ()) -> _Chosen:
    """A section of a recipe from keyword arguments; ``CirfError`` for unknown keys, wrong values and the keys ``without``."""
    for key in given:
        if key in without:
            raise CirfError(f"{where}: {key} only has a meaning in recipes; leave it out")
    try:
        return validated(schema, dict(given), where, Document(dict(given)))
    except TypeError as error:  # values that JSON cannot represent
        raise CirfError(f"{where}: {error}") from None
