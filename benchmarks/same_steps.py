"""How many training steps say the same and have different codes: what of the codes not even the step itself could foretell.

    python -m benchmarks.same_steps RUN --size 32

RUN: a run; an archive has no steps. Steps are the same where they have the same characters, or (second line) the same but for
case and digits. Nats: the mean over all training steps of the entropy of the codes that a step's text has; held-out rows are left
out, whose codes are the nearest and not the balanced ones.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from cirf.rows import read_rows

_NUMBER = re.compile(r"\d[\d,.]*")


def masked(step: str) -> str:
    """A step without its case and its numbers."""
    return _NUMBER.sub("#", step.lower())


def count(steps: Iterable[tuple[str, int]], same: Callable[[str], str]) -> dict[str, float]:
    """Of steps with their codes: ``steps``, those whose text has ``several`` codes, and the mean entropy in ``nats``."""
    codes: dict[str, Counter[int]] = defaultdict(Counter)
    for text, code in steps:
        codes[same(text)][code] += 1
    total = sum(held.total() for held in codes.values())
    nats = sum(-times * math.log(times / held.total()) for held in codes.values() for times in held.values()) / total
    return {"steps": total, "several": sum(held.total() for held in codes.values() if len(held) > 1), "nats": nats}


def training_steps(run: Path, size: int) -> list[tuple[str, int]]:
    """The steps of a run's training rows, each with its code."""
    held_out = {row["id"] for row in read_rows(run / "problems" / "validation.jsonl")}
    codes = {(row["problem"], row["sample"]): row["codes"] for row in read_rows(run / f"codebook-{size}" / "codes.jsonl")}
    return [
        pair
        for row in read_rows(run / "segments" / "segments.jsonl")
        if row["problem"] not in held_out
        for pair in zip(row["segments"], codes[row["problem"], row["sample"]], strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--size", type=int, required=True, help="codes in the codebook")
    asked = parser.parse_args(arguments)
    steps = training_steps(asked.run, asked.size)
    document = {"same": count(steps, str.strip), "masked": count(steps, masked)}
    for name, told in (("the same text", document["same"]), ("the same but for case and numbers", document["masked"])):
        print(f"{name}: {told['several']:,} of {told['steps']:,} steps have several codes, {told['nats']:.4f} nats a step")
    print(json.dumps(document))


if __name__ == "__main__":
    main()
