"""The page of analyses: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cirf.analysis.analysis import Found


def render_analyses(told: Mapping[str, Any], found: Mapping[str, Found]) -> str:
    """The page's HTML. ``told`` is what ``analysis.json`` holds, ``found`` the analyses by name, for tables and pictures.

    The same data gives the same bytes; nothing in it is fetched from anywhere.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("cirf.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    pictures = {name: {key: Markup(svg) for key, svg in made.pictures.items()} for name, made in found.items()}
    return environment.get_template("analyses.html.j2").render(told=told, found=found, pictures=pictures)
