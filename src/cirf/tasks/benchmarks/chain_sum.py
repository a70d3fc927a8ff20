"""Sums and differences in a row; reasoning-gym draws the terms, the worked solution keeps a running total.

What is 4 + 7 - 2?

Step 1: Adding 7 to 4 gives 4 + 7 = 11.
Step 2: Subtracting 2 from 11 leaves 11 - 2 = 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import Any

from cirf.records import Problem
from cirf.tasks.loading.generated import stream_seed
from cirf.tasks.steps import calculated
from cirf.tasks.task import Option, Task

ADD = (
    "Adding {term} to {total} gives {total} + {term} = {new}.",
    "The next term is plus {term}, so {total} + {term} = {new}.",
    "Then {term} is added: {total} + {term} = {new}.",
    "Put {term} on top of {total}: {total} + {term} = {new}.",
)
SUBTRACT = (
    "Subtracting {term} from {total} leaves {total} - {term} = {new}.",
    "The next term is minus {term}, so {total} - {term} = {new}.",
    "Then {term} is taken away: {total} - {term} = {new}.",
    "Take {term} off {total}: {total} - {term} = {new}.",
)


@lru_cache(maxsize=8)
def _source(seed: int, options: tuple[tuple[str, int], ...]) -> Any:
    from reasoning_gym import create_dataset

    return create_dataset("chain_sum", seed=stream_seed("chain_sum", seed), size=1, **dict(options))


def make(seed: int, index: int, options: Mapping[str, Any]) -> Problem | None:
    """Problem ``index`` of the stream; skipped where a running total goes below zero unless ``allow_negative``."""
    item = _source(seed, tuple((key, options[key]) for key in ("min_terms", "max_terms", "min_digits", "max_digits")))[index]
    expression = item["metadata"]["expression"]
    draw = Random(f"chain_sum/{seed}/{index}")
    first, *rest = expression.split()
    total = int(first)
    add, subtract = draw.choice(ADD), draw.choice(SUBTRACT)  # a writer keeps to one wording
    steps: list[str] = []
    for sign, term in zip(rest[::2], map(int, rest[1::2]), strict=True):
        new = total + term if sign == "+" else total - term
        if new < 0 and not options["allow_negative"]:
            return None
        phrase = (add if sign == "+" else subtract).format(term=term, total=total, new=new)
        steps.append(f"Step {len(steps) + 1}: {phrase}")
        total = new
    if str(total) != item["answer"]:
        raise AssertionError(f"chain_sum: {expression} = {total}, but the generator says {item['answer']}")
    return Problem(id="", task="", question=f"What is {expression}?", answer=str(total), rationale="\n".join(steps))


TASK = Task(
    name="chain_sum",
    title="Chain sum (made)",
    summary="sums and differences of a few numbers in a row, made offline",
    answer="number",
    rule=calculated,
    version=7,
    licence="apache-2.0",
    make=make,
    options={
        "min_terms": Option(3, 2, 30, "Fewest numbers in a question."),
        "max_terms": Option(5, 2, 30, "Most numbers in a question."),
        "min_digits": Option(1, 1, 9, "Fewest digits of a number; all numbers of one question have the same."),
        "max_digits": Option(2, 1, 9, "Most digits of a number."),
        "allow_negative": Option(False, 0, 1, "Whether a running total may go below zero."),
    },
)
