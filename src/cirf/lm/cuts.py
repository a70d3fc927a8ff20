"""Rows of unlike lengths cut into several passes, where that is less work than the padding of one."""

from __future__ import annotations

from collections.abc import Sequence

_PASS = {"cpu": 64}
_PASS_ELSEWHERE = 4096


def pass_price(device: str) -> int:
    """Padding, in positions, that is as cheap as one pass more on a kind of device (``cpu``, ``cuda``, ...): a CPU computes
    position by position and little else costs it time; an accelerator waits as long for a short pass as for one of thousands."""
    return _PASS.get(device, _PASS_ELSEWHERE)


def cut(lengths: Sequence[int], price: int) -> list[list[int]]:
    """Row numbers by pass, the shortest rows first, so that positions and ``price`` a pass are the fewest.

    ``lengths``: positions of each row; the rows of a pass are padded to its longest. Rows of one length are never parted when
    ``price`` is positive.
    """
    order = sorted(range(len(lengths)), key=lambda row: (lengths[row], row))
    best, begins = [0], [0]  # of the first n rows: the fewest positions, and where their last pass begins
    for end in range(1, len(order) + 1):
        widest = lengths[order[end - 1]]
        cost, begin = min((best[start] + (end - start) * widest + price, start) for start in range(end))
        best.append(cost)
        begins.append(begin)
    found: list[list[int]] = []
    end = len(order)
    while end:
        found.append(order[begins[end] : end])
        end = begins[end]
    return found[::-1]
