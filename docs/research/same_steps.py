"""Count steps of training rationales with the same text and different codes, which no model could predict.

    python -m docs.research.same_steps RUN --size 32

RUN is a run, not an archive, since steps are needed. Two steps are twins if their text is the same or, in the second line, the
same but for case and numbers. *Nats* is the entropy of the codes of a text, averaged over steps with a twin; with few twins it is
an underestimate. Held-out rows do not count: they get the nearest code, not the balanced one.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from cirf.store.jsonl import read_rows

_NUMBER = re.compile(r"\d(?:[\d,.]*\d)?")


def masked(step: str) -> str:
    """A step without its case and its numbers."""
    return _NUMBER.sub("#", step.strip().lower())


def count(steps: Iterable[tuple[str, int]], same: Callable[[str], str]) -> dict[str, float]:
    """Numbers of ``steps``, of those with ``twins`` and of those whose text has ``several`` codes; the mean entropy of the codes
    of steps with twins, in ``nats``."""
    codes: dict[str, Counter[int]] = defaultdict(Counter)
    for text, code in steps:
        codes[same(text)][code] += 1
    twins = [held for held in codes.values() if held.total() > 1]
    many = sum(held.total() for held in twins)
    nats = sum(-times * math.log(times / held.total()) for held in twins for times in held.values())
    several = sum(held.total() for held in twins if len(held) > 1)
    return {"steps": sum(map(Counter.total, codes.values())), "twins": many, "several": several, "nats": nats / max(many, 1)}


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
    for name, summary in (("the same text", document["same"]), ("the same but for case and numbers", document["masked"])):
        print(
            f"{name}: {summary['twins']:,} of {summary['steps']:,} steps have a twin, "
            f"{summary['several']:,} of them several codes"
        )
        print(f"  {summary['nats']:.3f} nats a step with a twin")
    print(json.dumps(document))


if __name__ == "__main__":
    main()
