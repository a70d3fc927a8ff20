"""Which function follows which in the training traces: counted pair by pair.

A worked example: the traces ``3 7`` and ``3 3 7`` have five steps, of which three follow another one::

    {"traces": 2, "pairs": [[3, 7, 2], [3, 3, 1]], "first": [[3, 2]], "last": [[7, 2]]}

Every step but a trace's first has one before it, every step but its last one after it. So the counts of the pairs sum to
steps minus traces, and those of one code's pairs with its firsts (or lasts) to the steps that carry it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any


def count_transitions(traces: Iterable[Sequence[int]]) -> dict[str, Any]:
    """Of traces of codes, see above; ``traces`` counts those with a step. The most frequent come first, equals by number."""
    held = [codes for codes in traces if codes]
    pairs = Counter(pair for codes in held for pair in pairwise(codes))
    ends = {name: Counter(codes[place] for codes in held) for name, place in (("first", 0), ("last", -1))}
    ranked = [[before, after, count] for (before, after), count in sorted(pairs.items(), key=_rank)]
    return {"traces": len(held), "pairs": ranked} | {
        name: [[code, count] for code, count in sorted(counts.items(), key=_rank)] for name, counts in ends.items()
    }


def _rank(item: tuple[Any, int]) -> tuple[int, Any]:
    return -item[1], item[0]
