"""The shared part of all pictures: an SVG element for a page; no files, fonts or clocks, so the same data gives the same bytes.

They are drawn for a white ground; a page may give them its own colours (`themed`).

A point is drawn as up to three artists (its bar, its marker, its name) with the gids `gid(place, part)`. In the SVG they become
groups of one method, which the page's script can hide together; the marker has a description and can be focused.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@contextmanager
def canvas(width: float, height: float, salt: str) -> Iterator[tuple[Figure, list[str]]]:
    """A figure to draw on; the caller appends its description to the list, and finds the SVG there instead after."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    settings: dict[str, Any] = {
        "svg.hashsalt": salt, "svg.fonttype": "none", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],
        "font.size": 10, "axes.edgecolor": GRID, "axes.labelcolor": SOFT, "axes.grid": True, "axes.axisbelow": True,
        "axes.spines.top": False, "axes.spines.right": False, "grid.color": GRID, "text.color": INK, "xtick.color": SOFT,
        "ytick.color": SOFT, "xtick.minor.size": 0, "xtick.minor.width": 0,
        "text.parse_math": False,  # a dollar sign in a label is a dollar sign
    }  # fmt: skip
    out: list[str] = []
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the page's fonts draw the text, not ours
        matplotlib.rcdefaults()
        for key, value in settings.items():
            matplotlib.rcParams[key] = value  # type: ignore[index,unused-ignore]
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, out
        buffer = io.StringIO()
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        settle(figure)
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    out[:] = [_inline(buffer.getvalue(), out[0], salt)]


def settle(figure: Figure) -> None:
    """Lay the figure out, once: what is drawn into it later moves nothing, and `savefig` need not draw it twice."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)


def _inline(svg: str, description: str, salt: str) -> str:
    """The bare ``<svg>`` element with a role and a description; ids are made the picture's own, so two never clash."""
    body = svg[svg.index("<svg") :].strip()
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.S)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{salt}-\1"', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{salt}-", body)
    body = re.sub(r'(<svg[^>]*?) width="[^"]+"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?) height="[^"]+"', r"\1", body, count=1)
    description = description.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return body.replace("<svg", f'<svg role="img" aria-label="{description}"', 1)


def limits(axes: Axes, xs: Sequence[float], logarithmic: bool) -> None:
    """Room around the outermost points; an axis that is not logarithmic begins at zero."""
    if logarithmic:
        axes.set_xscale("log")
        room = (max(xs) / min(xs)) ** 0.16
        axes.set_xlim(min(xs) / room, max(xs) * room)
    else:
        axes.set_xlim(0, 1.25 * max(xs))


def ticks(axes: Axes, axis: str, logarithmic: bool) -> None:
    """Round numbers below; ``axis`` is ``latency`` (in seconds) or anything else."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    unit = " s" if axis == "latency" else ""
    if logarithmic:
        low, high = axes.get_xlim()
        decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
        steps = (1, 2, 5) if high / low < 200 else (1,)
        axes.xaxis.set_major_locator(FixedLocator([step * 10.0**decade for decade in decades for step in steps]))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(low, high)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}{unit}"))


INK, SOFT, GRID, WHITE, BLACK = "#1f2430", "#565d6d", "#e3e6ec", "#ffffff", "#000000"

_GROUNDS = {INK: "--ink", BLACK: "--ink", SOFT: "--soft", GRID: "--line", WHITE: "--card"}
_GROUP = re.compile(r'<g id="[^"]*?mark-(\d+)-(bar|point|name)">')


class Mark(NamedTuple):
    """A point of a picture: its method, and its description."""

    method: str
    description: str


def gid(place: int, part: str) -> str:
    """The gid of an artist: ``part`` (``bar``, ``point`` or ``name``) of the mark at ``place``."""
    return f"mark-{place}-{part}"


def add(marks: list[Mark], description: str, method: str = "") -> str:
    """The gid of the next point; its description goes into ``marks``, for `marked`."""
    marks.append(Mark(method, description))
    return gid(len(marks) - 1, "point")


def marked(svg: str, marks: Sequence[Mark]) -> str:
    """The picture with its points made reachable: a title for the mouse, a name and a tab stop for the keyboard."""
    if not marks:
        return svg

    def group(found: re.Match[str]) -> str:
        mark, part = marks[int(found[1])], found[2]
        description = escape(mark.description)
        reach = f' tabindex="0" role="img" aria-label="{description}"' if part == "point" else ""
        title = "" if part == "name" else f"<title>{description}</title>"
        return f'<g class="mark {part}" data-method="{escape(mark.method)}" data-description="{description}"{reach}>{title}'

    return _GROUP.sub(group, svg.replace('role="img"', 'role="group"', 1))


def themed(svg: str, colours: Mapping[str, str]) -> str:
    """The picture with every colour of a style replaced by the page's: ``colours`` names the variables of the methods'."""
    names = _GROUNDS | dict(colours)

    def variable(found: re.Match[str]) -> str:
        name = names.get(found[2])
        return f"{found[1]}var({name}, {found[2]})" if name else found[0]

    return re.sub(r"((?:fill|stroke): )(#[0-9a-f]{6})\b", variable, svg)
