"""The worked examples that come with the package, in ``drafts/``: a file a benchmark, of BIG-Bench Hard a file a part.

A file is a list::

    - question: Each basket holds 6 melons and 8 baskets are full. How many melons are there?
      draft: 8 * 6 = 48
      answer: '48'

``choices`` holds the options' texts where there are any. All were written for this package: none is a row of a data set.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.errors import CirfError
from cirf.tasks.shots import Shot

if TYPE_CHECKING:
    from cirf.tasks.task import Task

SHIPPED = Path(__file__).with_name("drafts")
"""Where the files lie."""

_NEEDED = {"question", "draft", "answer"}


def shots_of(task: Task) -> tuple[Shot, ...]:
    """The worked examples of a task: those it brings itself, else the shipped ones of a published benchmark, else none."""
    return task.shots if task.shots or task.hub is None or task.origin else _shipped(task.name)


@lru_cache(maxsize=64)
def _shipped(name: str) -> tuple[Shot, ...]:
    alone, parts = SHIPPED / f"{name}.yaml", sorted((SHIPPED / name).glob("*.yaml"))
    found = read_shots(alone) if alone.is_file() else ()
    return (*found, *(shot for part in parts for shot in read_shots(part, part.stem)))


def read_shots(path: Path, subset: str | None = None) -> tuple[Shot, ...]:
    """The examples of a file, for one ``subset`` of the task where that is named.

    ``CirfError`` names the file, the example and the field if one is not as the head of this module says.
    """
    import yaml

    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CirfError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())[:200]})") from None
    if not isinstance(rows, list) or not rows:
        raise CirfError(f"{path}: expected a list of worked examples")
    return tuple(_shot(row, subset, f"{path}, example {place}") for place, row in enumerate(rows, 1))


def _shot(row: Any, subset: str | None, where: str) -> Shot:
    if not isinstance(row, dict) or not row.keys() >= _NEEDED or row.keys() - _NEEDED - {"choices"}:
        raise CirfError(f"{where}: expected the fields question, draft and answer, and choices where there are options")
    texts = {name: row[name] for name in sorted(_NEEDED)}
    choices = row.get("choices")
    if choices is not None and not isinstance(choices, list):
        raise CirfError(f"{where}: choices is {choices!r}, expected a list of the options' texts")
    for name, value in {**texts, **{f"choices {place}": choice for place, choice in enumerate(choices or (), 1)}}.items():
        if not isinstance(value, str) or not value.strip():
            raise CirfError(f"{where}: {name} is {value!r}, expected a text; put it into quotes")
    return Shot(**texts, choices=None if choices is None else tuple(choices), subset=subset)
