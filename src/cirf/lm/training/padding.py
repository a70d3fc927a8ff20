"""Rows of different lengths are split into several passes if that costs less than padding them in one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

_PASS = {"cpu": 64}
_PASS_ELSEWHERE = 4096


def pass_price(device: str) -> int:
    """The padding, in positions, that costs as much as one more pass on a kind of device (``cpu``, ``cuda``, ...): a CPU computes
    position by position and little else costs it time; an accelerator waits as long for a short pass as for one of thousands."""
    return _PASS.get(device, _PASS_ELSEWHERE)


def cut(lengths: Sequence[int], price: int) -> list[list[int]]:
    """Row numbers by pass, the shortest rows first, so that positions and ``price`` a pass are the fewest.

    ``lengths``: positions of each row; the rows of a pass are padded to its longest. Rows of one length are never parted.
    """
    alike: dict[int, list[int]] = {}
    for row in sorted(range(len(lengths)), key=lambda row: (lengths[row], row)):
        alike.setdefault(lengths[row], []).append(row)
    before = [0, *accumulate(map(len, alike.values()))]  # rows shorter than the n-th length
    best, begins = [0], [0]  # of the first n lengths: the fewest positions, and where their last pass begins
    for end, widest in enumerate(alike, start=1):
        cost, begin = min((best[start] + (before[end] - before[start]) * widest + price, start) for start in range(end))
        best.append(cost)
        begins.append(begin)
    rows, found = list(alike.values()), []
    end = len(rows)
    while end:
        found.append(list(chain.from_iterable(rows[begins[end] : end])))
        end = begins[end]
    return found[::-1]
