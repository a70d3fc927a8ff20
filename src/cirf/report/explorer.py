"""The data of the page's script: one JSON block inside the page, whose texts cannot end the block.

It is never read as HTML: the script makes text nodes of it. ``<``, ``>`` and ``&`` are written as escapes of JSON,
so neither ``</script>`` nor ``<!--`` can occur in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from cirf.pictures.style import Style

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
    """The name of the CSS variable of a colour such as ``#0473e1``."""
    return f"--c{value[1:]}"


def to_script(value: Any) -> str:
    """JSON that is safe inside a ``<script>`` element whatever its texts hold."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


def read_script(*names: str) -> str:
    """A page's script: files of this package, one after the other."""
    return "".join(files("cirf.report").joinpath(name).read_text(encoding="utf-8") for name in names)


def script_hash(script: str) -> str:
    """What a content security policy calls a script by: the page allows this one and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
