"""The templates of pages and cards, which are read and compiled once a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment, Template


def template(name: str, filters: Mapping[str, Callable[..., Any]] | None = None) -> Template:
    """A template of this package by its file name; ``filters`` are those it uses, by name. In a page what is put in is escaped,
    in a card, which is Markdown, it is not."""
    return _environment("html" in name.split("."), tuple(sorted((filters or {}).items()))).get_template(name)


@cache
def _environment(page: bool, filters: tuple[tuple[str, Callable[..., Any]], ...]) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("cirf.report", "."),
        autoescape=page,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not page,
    )
    environment.filters.update(filters)
    return environment
