"""What makes a picture's SVG part of the page: points that tell of themselves, and colours that follow the page's.

A point is drawn as up to three artists (its bar, its marker, its name) with the gids `gid(place, part)`; in the SVG they
become groups of one method, which the page's script can hide together, and the marker one that can be focused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

INK, SOFT, GRID, WHITE, BLACK = "#1f2430", "#565d6d", "#e3e6ec", "#ffffff", "#000000"

_GROUNDS = {INK: "--ink", BLACK: "--ink", SOFT: "--soft", GRID: "--line", WHITE: "--card"}
_GROUP = re.compile(r'<g id="[^"]*?mark-(\d+)-(bar|point|name)">')


class Mark(NamedTuple):
    """A point of a picture: the method it is of, and what it tells in words."""

    method: str
    told: str


def gid(place: int, part: str) -> str:
    """The gid of an artist: ``part`` (``bar``, ``point`` or ``name``) of the mark at ``place``."""
    return f"mark-{place}-{part}"


def add(marks: list[Mark], told: str, method: str = "") -> str:
    """The gid of the point that is drawn next; what it tells goes into ``marks``, for `marked`."""
    marks.append(Mark(method, told))
    return gid(len(marks) - 1, "point")


def marked(svg: str, marks: Sequence[Mark]) -> str:
    """The picture with its points made reachable: a title for the mouse, a name and a tab stop for the keyboard."""
    if not marks:
        return svg

    def group(found: re.Match[str]) -> str:
        mark, part = marks[int(found[1])], found[2]
        told = escape(mark.told)
        reach = f' tabindex="0" role="img" aria-label="{told}"' if part == "point" else ""
        title = "" if part == "name" else f"<title>{told}</title>"
        return f'<g class="mark {part}" data-method="{escape(mark.method)}" data-told="{told}"{reach}>{title}'

    return _GROUP.sub(group, svg.replace('role="img"', 'role="group"', 1))


def themed(svg: str, colours: Mapping[str, str]) -> str:
    """The picture with every colour of a style replaced by the page's: ``colours`` names the variables of the methods'."""
    names = _GROUNDS | dict(colours)

    def variable(found: re.Match[str]) -> str:
        name = names.get(found[2])
        return f"{found[1]}var({name}, {found[2]})" if name else found[0]

    return re.sub(r"((?:fill|stroke): )(#[0-9a-f]{6})\b", variable, svg)
