"""Generated Coin Flip problems, with a worked solution in varied prose.

A coin is heads up. Maria flips the coin. Noah does not flip the coin. Is the coin still heads up?

Step 1: At the start the coin lies with heads facing up.
Step 2: Maria turns the coin over, and now it shows tails instead of heads.
Step 3: Noah leaves the coin alone, and it still shows tails as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from cirf.records import Problem
from cirf.tasks.steps import coin_state
from cirf.tasks.task import Option, Task

_LIST = (
    "Alice Anna Ben Bella Carl Chloe Clara Daniel David Diana Elena Emma Eric Ethan Fiona Frank George Grace Hannah Henry "
    "Irene Isaac Jack James Jane Julia Karen Kevin Laura Leo Liam Linda Lucy Marco Maria Mark Mary Mia Nina Noah Nora Oliver "
    "Oscar Paul Peter Rachel Rosa Ruth Sam Sara Simon Sofia Tara Thomas Tina Tom Victor Wendy William Zoe"
)
NAMES = tuple(_LIST.split())  # common first names; most are a single token

# Two writers' wordings of the three functions.
START = ("To begin with, the coin lies there heads up.", "At the start the coin lies with heads facing up.")
FLIP = (
    "{name} flips the coin, so it turns over from {old} to {new}.",
    "{name} turns the coin over, and now it shows {new} instead of {old}.",
)
KEEP = (
    "{name} does not flip the coin, so it stays {old} up as before.",
    "{name} leaves the coin alone, and it still shows {old} as before.",
)


def make(seed: int, index: int, options: Mapping[str, Any]) -> Problem:
    """Problem ``index`` of the stream: everyone flips with probability one half."""
    draw = Random(f"made_coin_flip/{seed}/{index}")
    people = draw.sample(NAMES, draw.randint(options["min_people"], options["max_people"]))
    start, flip, keep = draw.choice(tuple(zip(START, FLIP, KEEP, strict=True)))  # one writer a rationale
    sentences, steps, state = ["A coin is heads up."], [start], "heads"
    for name in people:
        flips = draw.random() < 0.5
        new = state if not flips else "tails" if state == "heads" else "heads"
        sentences.append(f"{name} flips the coin." if flips else f"{name} does not flip the coin.")
        steps.append((flip if flips else keep).format(name=name, old=state, new=new))
        state = new
    question = " ".join((*sentences, "Is the coin still heads up?"))
    rationale = "\n".join(f"Step {number}: {step}" for number, step in enumerate(steps, 1))
    return Problem(id="", task="", question=question, answer="yes" if state == "heads" else "no", rationale=rationale)


TASK = Task(
    name="made_coin_flip",
    title="Coin Flip (made)",
    summary="tracking the state of a coin over a few people, made offline",
    answer="yesno",
    rule=coin_state,
    version=6,
    licence="apache-2.0",
    make=make,
    options={
        "min_people": Option(2, 1, len(NAMES), "Fewest people in a question."),
        "max_people": Option(5, 1, len(NAMES), "Most people in a question."),
    },
)
