"""The page of analyses: one self-contained HTML file; tables can be sorted and filtered, points show their numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cirf.analysis.analysis import Found
from cirf.pictures.canvas import themed
from cirf.pictures.style import every_style
from cirf.report.explorer import read_script, script_hash, variable
from cirf.report.page import dark_colours
from cirf.report.templates import template

_CODE = re.compile(r"`([^`\s](?:[^`]*[^`\s])?)`")
_LONG = 18  # characters
_HALF = 400  # points; pictures up to this width are two in a row
_FILTERED = 8  # rows from which on a table has a filter


def render_analyses(summary: Mapping[str, Any], found: Mapping[str, Found]) -> str:
    """The page's HTML. ``summary`` is the content of ``analysis.json``, ``found`` the analyses by name, for tables and pictures.

    The same data gives the same bytes; it loads nothing.
    """
    from markupsafe import Markup

    colours = {one.colour: variable(one.colour) for one in every_style()}
    pictures = {
        name: [(Markup(themed(svg, colours)), _wide(svg)) for svg in made.pictures.values()] for name, made in found.items()
    }
    script = read_script("common.js")
    return template("analyses.html.j2").render(
        summary=summary,
        script=Markup(script),
        script_hash=Markup(script_hash(script)),
        filtered=_FILTERED,
        found=found,
        pictures=pictures,
        dark_colours=Markup(dark_colours()),
        coded=in_code,
        has_long_word=_has_long_word,
    )


def in_code(text: str) -> Any:
    """A text for HTML, escaped, with text in backticks as code."""
    from markupsafe import Markup, escape

    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def _has_long_word(text: str) -> bool:
    """Whether a word of a cell, such as a run's name, would make a column wider than a phone's screen."""
    return any(len(word) > _LONG for word in text.split())


def _wide(svg: str) -> bool:
    """Whether a picture is to have the page's whole width."""
    view = re.search(r'viewBox="[\d.]+ [\d.]+ ([\d.]+) ', svg)
    return view is not None and float(view[1]) > _HALF
