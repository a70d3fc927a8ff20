"""Plain powers in a text that names a number: ``2^3``, ``2**3``, ``2^{3}`` and ``2³`` are 8."""

from __future__ import annotations

import re
from bisect import bisect_right
from fractions import Fraction

from cirf.tasks.numerals import number_text

_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_SUPERSCRIPT = re.compile(r"(?<=[0-9)])[⁰¹²³⁴-⁹]+")
_STARS = re.compile(r"(?<=[0-9)])(?:[ ]\*\*[ ]|\*\*)(?=[0-9(])")
_OPENS = re.compile(r"(?<![\w)*])\*\*(?=[^\s*])")
_CLOSES = re.compile(r"(?<=[^\s*])\*\*(?![\w(*])")
_POWER = re.compile(
    r"(?<![\w.,^)}])(?<!\^[-{(])(?P<base>[0-9]{1,12}(?:\.[0-9]{1,6})?)\s?\^\s?"
    r"(?:\{\s?(?P<braced>[0-9]{1,2})\s?\}|(?P<bare>[0-9]{1,2}))(?![0-9]|\.[0-9]|/[0-9]|\s?\^)"
)
_SCIENTIFIC = re.compile(r"[0-9]\s?[×x*]\s?$|\\(?:times|cdot)\s?$")
_LONGEST = 40  # characters of a power that is written out

UNSETTLED = re.compile(r"\s?\^\s?[({\[]*\s?[-+]?(?:[0-9]|[a-z](?![a-z]))")
"""What follows a number that is raised to something and was not worked out."""


def worked_powers(text: str) -> str:
    """The text with its powers worked out where base and exponent are plain numbers and the value is not too long.

    Two stars are a power between digits, unless they end what two others made bold. ``3 × 10^4`` stays as it is.
    """
    text = _SUPERSCRIPT.sub(lambda match: "^" + match[0].translate(_RAISED), text)
    if "**" in text:
        text = "\n".join(map(_with_signs, text.split("\n")))
    return _POWER.sub(_worked, text) if "^" in text else text


def _with_signs(line: str) -> str:
    """A line with ``^`` for the stars that raise a number."""
    pieces, end = [], 0
    opened = [match.end() for match in _OPENS.finditer(line)]
    closed = [match.end() for match in _CLOSES.finditer(line)]
    last = closed[-1] - 2 if closed else -1
    for match in _STARS.finditer(line):
        bold = bisect_right(opened, match.start()) > bisect_right(closed, match.start())
        if match[0] == "**" and bold and last < match.end():
            continue
        pieces += [line[end : match.start()], "^"]
        end = match.end()
    return "".join([*pieces, line[end:]])


def _worked(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 8) : match.start()]
    if match["base"] == "10" and _SCIENTIFIC.search(before):
        return match[0]
    value = number_text(Fraction(match["base"]) ** int(match["braced"] or match["bare"]))
    return value if len(value) <= _LONGEST else match[0]
