"""Colours as they are seen: luminance, contrast, and how far apart two are, also for the colour blind."""

from __future__ import annotations

import math

# Machado, Oliveira, Fernandes 2009, severity 1, on linear RGB.
SIGHTS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(colour: str) -> list[float]:
    """Red, green and blue of ``#rrggbb`` in linear light."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG counts it, 1 to 21."""
    low, high = sorted(sum(w * part for w, part in zip((0.2126, 0.7152, 0.0722), linear(c), strict=True)) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


def distance(one: str, other: str, sight: str) -> float:
    """How far apart two colours are in CIELAB, as somebody with that sight sees them."""
    return math.dist(_lab(one, sight), _lab(other, sight))


def _lab(colour: str, sight: str) -> tuple[float, float, float]:
    seen = [min(1, max(0, sum(w * part for w, part in zip(row, linear(colour), strict=True)))) for row in SIGHTS[sight]]
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.95047, 1, 1.08883)
    xyz = [sum(w * part for w, part in zip(row, seen, strict=True)) / full for row, full in zip(rows, white, strict=True)]
    x, y, z = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)
