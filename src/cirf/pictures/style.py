"""Looks of methods and of their families, the same in every picture: no two differ by colour alone.

The colours of methods were searched for by the least distance of any two (CIELAB, also as seen with each of three kinds of colour
blindness by the matrices of Machado et al. 2009), at a contrast of at least 4.5 to their background.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from cirf.analysis.names import NAMES, family


class Style(NamedTuple):
    """A method's or family's title, its colour on white, its marker in matplotlib, and its colour on the page's dark cards."""

    title: str
    colour: str
    marker: str | tuple[int, int, int]
    dark: str

    @property
    def point(self) -> dict[str, Any]:
        return {"marker": self.marker, "linestyle": "none", "color": self.colour}


STYLES: dict[str, tuple[str, str | tuple[int, int, int], str]] = {
    "cirf_full": ("#0473e1", "o", "#5d87dd"),
    "cirf_zero": ("#2b0061", "p", "#fae0ff"),
    "cirf_fast": ("#065d74", "P", "#0ecbff"),
    "cirf_faster": ("#324531", "X", "#828c6e"),
    "cirf_lean": ("#9c6673", "h", "#f393ab"),
    "cirf_bare": ("#3f1800", "<", "#fabfa3"),
    "cirf_self": ("#7b21fa", (6, 1, 0), "#a4fa25"),
    "cot": ("#9b310a", "s", "#ff7907"),
    "chain_of_draft": ("#647046", ".", "#78b25d"),
    "sft_cot": ("#7c349e", "D", "#a378a9"),
    "direct_sft": ("#060908", "^", "#e4ffe8"),
    "direct": ("#412640", "v", "#946bff"),
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

FAMILIES = {
    "prose": Style("prose", "#9b310a", "s", "#ff7907"),
    "latent": Style("latent or no reasoning", "#666b78", "^", "#aeb4c2"),
    "functional": Style("functional tokens", "#0473e1", "o", "#5d87dd"),
}
"""The three families of methods (`names.family`), in the order of a legend."""


def style(name: str, names: list[str], titles: Mapping[str, str] | None = None) -> Style:
    """The looks of method ``name`` among ``names``. ``titles``: display names of a run's methods (`names.display_names`)."""
    title = (titles or {}).get(name) or NAMES.get(name, name)
    if name in STYLES:
        return Style(title, *STYLES[name])
    turn, place = divmod([other for other in names if other not in STYLES].index(name), len(_SPARE))
    colour, dark = _SPARE[place]
    return Style(title, colour, _MARKERS[(place + turn) % len(_MARKERS)], dark)


def family_style(name: str, variants: Mapping[str, Mapping[str, Any]], functional: bool = False) -> Style:
    return FAMILIES[family(name, variants, functional)]


def every_style() -> list[Style]:
    return [*(Style("", *look) for look in STYLES.values()), *(Style("", colour, "", dark) for colour, dark in _SPARE)]
