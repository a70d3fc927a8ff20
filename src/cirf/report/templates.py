"""The templates of pages and cards, which are read and compiled once a process.

The data of the page's script are one JSON block inside the page, whose texts cannot end the block. It is never read as HTML: the
script makes text nodes of it. ``<``, ``>`` and ``&`` are written as escapes of JSON, so neither ``</script>`` nor ``<!--`` can
occur in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from cirf.pictures.style import Style

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


_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}"}


def page_data(data: Mapping[str, Any], looks: Mapping[str, Style], labels: Mapping[int, str]) -> dict[str, Any]:
    """The parts of ``report.json`` that the script shows, with titles and colours' names in place of styles."""
    book = data["codebook"]
    reference = data["methods"].get(data["reference"] or "")
    return {
        "methods": {name: look.title for name, look in looks.items()},
        "colours": {name: colour(look) for name, look in looks.items()},
        "labels": {str(code): label for code, label in labels.items()},
        "accuracy": reference["accuracy"] if reference else None,
        "book": {key: book[key] for key in ("segments", "written", "transitions", "codes")} if book and book["codes"] else None,
        "questions": data["questions"]["rows"],
    }


def colour(look: Style) -> str:
    """A method's colour in CSS: its own on white, the other on a dark card."""
    return f"var({variable(look.colour)}, {look.colour})"


def variable(value: str) -> str:
    return f"--c{value[1:]}"


def to_script(value: Any) -> str:
    """JSON that is safe inside a ``<script>`` element whatever its texts hold."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


def read_script(*names: str) -> str:
    return "".join(files("cirf.report").joinpath(name).read_text(encoding="utf-8") for name in names)


def script_hash(script: str) -> str:
    """What a content security policy calls a script by: the page allows this one and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
