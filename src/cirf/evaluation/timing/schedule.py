"""The order of measurement: methods take turns at the same piece of work, so that drift of the machine affects all equally.

A worked example: three methods, two of one checkpoint, on four pieces. In memory together::

    a: cot direct full | b: direct full cot | c: full cot direct | d: direct cot full

If the models do not fit together, in two rounds::

    [cot direct] a b | [full] a b | [full] c d | [cot direct] c d
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

Piece = TypeVar("Piece", bound=Hashable)

ROUNDS = 4
"""How often every model is loaded if not all fit into memory."""


@dataclass(frozen=True)
class Block(Generic[Piece]):
    """Pieces of work done with some methods' models in memory; ``turns`` are in order, the methods of a piece together."""

    methods: tuple[str, ...]
    turns: tuple[tuple[Piece, str], ...]


def blocks(
    groups: Sequence[Sequence[str]], pieces: Sequence[Piece], seed: int, together: bool, rounds: int = ROUNDS
) -> list[Block[Piece]]:
    """Every piece with every method, once.

    ``groups`` are the methods that share a checkpoint. With ``together`` there is one block; else the pieces are cut into
    ``rounds`` of similar size, and each round goes through the groups, beginning with another one each time.
    """
    methods = tuple(name for group in groups for name in group)
    orders = list(zip(pieces, _orders(methods, len(pieces), seed), strict=True))
    if together or len(groups) == 1:
        return [Block(methods, tuple((piece, name) for piece, order in orders for name in order))] if orders else []
    made = []
    rounds = min(rounds, len(orders))
    for turn in range(rounds):
        part = orders[turn * len(orders) // rounds : (turn + 1) * len(orders) // rounds]
        for place in range(len(groups)):
            group = tuple(groups[(turn + place) % len(groups)])
            made.append(Block(group, tuple((piece, name) for piece, order in part for name in order if name in group)))
    return made


def _orders(methods: Sequence[str], count: int, seed: int) -> Iterator[tuple[str, ...]]:
    """An order of the methods a piece: a shuffled one rotated from piece to piece, then another shuffled one.

    So over as many pieces as methods each method is at each place once, and none always follows the same one.
    """
    draw = Random(f"turns {seed}")
    for piece in range(count):
        turned = piece % len(methods)
        if turned == 0:
            base = draw.sample(sorted(methods), len(methods))
        yield (*base[turned:], *base[:turned])
