"""The page of analyses: one HTML file that needs nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cirf.analysis.analysis import Found

_HALF = 400  # points; pictures up to this width stand two in a row


def render_analyses(told: Mapping[str, Any], found: Mapping[str, Found]) -> str:
    """The page's HTML. ``told`` is what ``analysis.json`` holds, ``found`` the analyses by name, for tables and pictures.

    The same data gives the same bytes; nothing in it is fetched from anywhere.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("cirf.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    pictures = {name: [(Markup(svg), _wide(svg)) for svg in made.pictures.values()] for name, made in found.items()}
    return environment.get_template("analyses.html.j2").render(told=told, found=found, pictures=pictures)


def _wide(svg: str) -> bool:
    """Whether a picture is to have the page's whole width."""
    view = re.search(r'viewBox="[\d.]+ [\d.]+ ([\d.]+) ', svg)
    return view is not None and float(view[1]) > _HALF
