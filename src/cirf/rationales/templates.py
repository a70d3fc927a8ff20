"""Prompts as text files: the shipped ones, or a user's own in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cirf.errors import CirfError
from cirf.user_paths import user_path

SHIPPED = Path(__file__).with_name("prompts")
"""The prompts that come with the package."""


def read_template(path: str | None, shipped: str, names: tuple[str, ...], where: str) -> str:
    """The text of a prompt: the file at ``path``, or the shipped one of that name.

    Raises:
        CirfError: the file cannot be read, or one of ``names`` does not stand in it as ``{name}``; ``where`` is the key.
    """
    file = SHIPPED / f"{shipped}.txt" if path is None else user_path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise CirfError(f"{where}: {file} cannot be read ({why}); name a text file with the prompt") from None
    missing = [name for name in names if f"{{{name}}}" not in text]
    if missing:
        raise CirfError(f"{where}: {file} does not say where the {missing[0]} goes; write {{{missing[0]}}} there")
    return text


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with every ``{name}`` of ``values`` replaced, once: what stands in a value stays as it is."""
    return re.sub(r"\{(" + "|".join(values) + r")\}", lambda found: values[found[1]], template)
