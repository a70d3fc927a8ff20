"""Traces whose functional tokens say something else, or nothing, of their steps: controls of what the codes are good for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from cirf.records import Trace

Codes = Literal["learned", "shuffled", "single", "ordinal"]


def recoded(traces: Sequence[Trace], codes: Codes, size: int, seed: int) -> list[Trace]:
    """The traces with ``codes`` in place of the ``size`` learned ones; results and lengths stay as they are.

    ``shuffled`` deals the codes of all steps out anew among them by the seed, so that each is used as often as before;
    ``single`` is code 0 everywhere; ``ordinal`` is 0, 1, 2, ... along a trace, the last code for all steps beyond it.
    """
    match codes:
        case "learned":
            return list(traces)
        case "single":
            return [replace(trace, codes=(0,) * len(trace.codes)) for trace in traces]
        case "ordinal":
            return [replace(trace, codes=tuple(min(place, size - 1) for place in range(len(trace.codes)))) for trace in traces]
    every = [code for trace in traces for code in trace.codes]
    random.Random(f"codes {seed}").shuffle(every)
    dealt = iter(every)
    return [replace(trace, codes=tuple(next(dealt) for _ in trace.codes)) for trace in traces]
