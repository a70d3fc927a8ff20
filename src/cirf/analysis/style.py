"""Names and looks of methods, the same in every picture and table: never told apart by colour alone.

The colours were searched for by the least distance of any two (CIELAB, also as seen with each of three kinds of colour
blindness by the matrices of Machado et al. 2009), at a contrast of at least 4.5 to the ground they stand on.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Style(NamedTuple):
    """A method's title, its colour on white, its marker in matplotlib, and its colour on the dark card of the page."""

    title: str
    colour: str
    marker: str | tuple[int, int, int]
    dark: str

    @property
    def point(self) -> dict[str, Any]:
        """What draws its marker alone, for ``axes.plot``."""
        return {"marker": self.marker, "linestyle": "none", "color": self.colour}


_STYLES = {
    "cirf_full": Style("CIRF", "#0473e1", "o", "#5d87dd"),
    "cirf_zero": Style("CIRF, γ = 0", "#2b0061", "p", "#fae0ff"),
    "cirf_fast": Style("CIRF Fast", "#065d74", "P", "#0ecbff"),
    "cirf_faster": Style("CIRF Faster", "#324531", "X", "#828c6e"),
    "cirf_lean": Style("CIRF Lean", "#9c6673", "h", "#f393ab"),
    "cirf_bare": Style("CIRF, no results", "#3f1800", "<", "#fabfa3"),
    "cirf_self": Style("CIRF, self-trained", "#7b21fa", (6, 1, 0), "#a4fa25"),
    "cot": Style("Chain-of-thought", "#9b310a", "s", "#ff7907"),
    "chain_of_draft": Style("Chain-of-Draft", "#647046", ".", "#78b25d"),
    "sft_cot": Style("Chain-of-thought, fine-tuned", "#7c349e", "D", "#a378a9"),
    "direct_sft": Style("Direct, fine-tuned", "#060908", "^", "#e4ffe8"),
    "direct": Style("Direct", "#412640", "v", "#946bff"),
}
_SPARE = (
    ("#a66600", "#d1de86"),
    ("#2e1c93", "#baafd3"),
    ("#682403", "#ed572e"),
    ("#6073a6", "#8f9bd7"),
    ("#827435", "#d6ca52"),
    ("#b01c7e", "#ff1ca7"),
)
_MARKERS: tuple[str | tuple[int, int, int], ...] = (">", "d", "*", "8", (3, 1, 0), (4, 1, 45))
"""All of them filled: their edges are the ground's. The last two are stars of three and four points."""


def style(name: str, names: list[str]) -> Style:
    """The looks of method ``name`` among ``names``; a method unknown here is called by its own name."""
    if name in _STYLES:
        return _STYLES[name]
    turn, place = divmod([other for other in names if other not in _STYLES].index(name), len(_SPARE))
    colour, dark = _SPARE[place]
    return Style(name, colour, _MARKERS[(place + turn) % len(_MARKERS)], dark)


def every_style() -> list[Style]:
    """All looks that a method can have."""
    return [*_STYLES.values(), *(Style("", colour, "", dark) for colour, dark in _SPARE)]
