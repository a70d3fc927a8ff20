"""How many updates rows make of a model, and whether these are enough for new tokens to be learned.

A worked example: 285 rows in batches of 8, 2 an update, make 18 updates a pass and so 36 in 2 passes, which are too few.

How large a model is by its name, for one that is not on this machine: 1.7 billion for ``Qwen/Qwen3-1.7B``.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Any

from cirf.recipe.schema import TOO_FEW_UPDATES, Finetune


@dataclass(frozen=True, slots=True)
class Updates:
    """The updates of one training: of ``rows`` rows, in ``passes`` epochs; ``summary`` describes them in a line."""

    rows: int
    passes: float
    updates: int
    too_few: bool
    summary: str

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def updates_of(section: Finetune, rows: int) -> Updates:
    """The updates that ``rows`` training rows make by a recipe's section, on one machine, and what to do about too few."""
    settled = section.settled(rows)
    passes = settled.epochs if isinstance(settled.epochs, float) else 0.0  # auto, of no rows
    updates = max(1, math.ceil(passes * settled.an_epoch(rows) - 1e-9)) if rows else 0
    too_few = updates < TOO_FEW_UPDATES
    summary = f"updates: {_number(rows, 'row')} make{'s' if rows == 1 else ''} {_number(updates, 'update')} in {passes:g} passes"
    if too_few:
        summary += f"; fewer than {TOO_FEW_UPDATES} are too few for new tokens to be learned: {_advice(section)}"
    return Updates(rows, passes, updates, too_few, summary)


def _number(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _advice(section: Finetune) -> str:
    steps = [] if section.epochs == "auto" else ["set finetune.epochs: auto"]
    if section.gradient_accumulation_steps > 1:
        steps.append("lower finetune.gradient_accumulation_steps")
    elif section.epochs == "auto" and section.batch_size > 1:
        steps.append("lower finetune.batch_size")
    if section.epochs == "auto":
        steps.append("add rows")
    return ", or ".join(steps)


_SIZE = re.compile(r"(?<![\d.])(\d{1,4}(?:\.\d{1,3})?)\s?([bm])(?![a-z])", re.IGNORECASE)


def size_in_name(model: str) -> int | None:
    """The number of parameters in a model's name; ``None`` if there is none."""
    found = _SIZE.search(model.rpartition("/")[2])
    return None if found is None else int(float(found[1]) * (10**9 if found[2] in "bB" else 10**6)) or None


def in_words(parameters: int) -> str:
    """``494 million``, ``1.7 billion``."""
    if parameters < 1_000_000:
        return f"{parameters:,}"
    return f"{parameters / 1e9:.1f} billion" if parameters >= 999_500_000 else f"{parameters / 1e6:.0f} million"
