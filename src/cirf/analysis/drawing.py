"""What all pictures share: an SVG element to stand inside a page; no files, no fonts, no clocks, the same data the same bytes.

They are drawn for a white ground; a page may give them its own colours (`marks.themed`).
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cirf.analysis.marks import GRID, INK, SOFT

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
        "svg.hashsalt": salt,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 10,
        "axes.edgecolor": GRID,
        "axes.labelcolor": SOFT,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": GRID,
        "text.color": INK,
        "xtick.color": SOFT,
        "ytick.color": SOFT,
        "text.parse_math": False,  # a dollar sign in a label is a dollar sign
        "xtick.minor.size": 0,
        "xtick.minor.width": 0,
    }
    out: list[str] = []
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for key, value in settings.items():
            matplotlib.rcParams[key] = value  # type: ignore[index,unused-ignore]
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, out
        buffer = io.StringIO()
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the page's fonts draw the text, not ours
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
    told = description.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return body.replace("<svg", f'<svg role="img" aria-label="{told}"', 1)


def limits(axes: Axes, xs: Sequence[float], logarithmic: bool) -> None:
    """Room beside the outermost points; an axis that is not logarithmic begins at zero."""
    if logarithmic:
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
