"""Names and looks of methods, the same in every picture and table: never told apart by colour alone."""

from __future__ import annotations

from typing import NamedTuple


class Style(NamedTuple):
    """A method's title, its colour on a light ground (contrast at least 4.5 to white) and its marker in matplotlib."""

    title: str
    colour: str
    marker: str


_STYLES = {
    "cirf_full": Style("CIRF", "#0b62b0", "o"),
    "cirf_zero": Style("CIRF, γ = 0", "#3b4cc0", "p"),
    "cirf_fast": Style("CIRF Fast", "#00697a", "P"),
    "cirf_faster": Style("CIRF Faster", "#2f6b2f", "X"),
    "cirf_lean": Style("CIRF Lean", "#b0204f", "h"),
    "cirf_bare": Style("CIRF, no results", "#6b4b3a", "<"),
    "cot": Style("Chain-of-thought", "#a83c00", "s"),
    "chain_of_draft": Style("Chain-of-Draft", "#556b00", "."),
    "sft_cot": Style("Chain-of-thought, fine-tuned", "#8a3d86", "D"),
    "direct_sft": Style("Direct, fine-tuned", "#00735c", "^"),
    "direct": Style("Direct", "#5d5d5d", "v"),
}
_SPARE = ("#7a5c00", "#5b3a8c", "#8c5a3c", "#1f5f8b", "#6e6e1f", "#8b2f5f")
_MARKERS = ">d*8H4"


def style(name: str, names: list[str]) -> Style:
    """The looks of method ``name`` among ``names``; a method unknown here is called by its own name."""
    if name in _STYLES:
        return _STYLES[name]
    place = [other for other in names if other not in _STYLES].index(name) % len(_SPARE)
    return Style(name, _SPARE[place], _MARKERS[place])
