"""How long threads of a processor spin at a barrier before they sleep."""

from __future__ import annotations

from collections.abc import MutableMapping

SPINS = "10000"
"""Turns of libgomp's waiting loop."""


def limit_spinning(environment: MutableMapping[str, str]) -> None:
    """Have OpenMP's threads spin for a bounded time, unless the user decided it; call it before torch is imported.

    By libgomp's default they spin so long that a training on cores which other work shares may lose nine tenths of its speed.
    ``benchmarks/shared_cores.py`` measures it.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & environment.keys():
        environment["GOMP_SPINCOUNT"] = SPINS
