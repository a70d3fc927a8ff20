"""Rows cut into batches that pad little."""

from __future__ import annotations

from collections.abc import Sequence


def batches(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Row numbers in batches, the longest rows first, so that memory runs out at once or never.

    ``lengths``: tokens of each row. A batch, its rows padded to the longest, has at most ``limit`` tokens, or is one row.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    found: list[list[int]] = []
    for row in order:
        if found and lengths[found[-1][0]] * (len(found[-1]) + 1) <= limit:
            found[-1].append(row)
        else:
            found.append([row])
    return found
