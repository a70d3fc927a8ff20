"""Legs of a list of animals; reasoning-gym draws the animals, the worked solution multiplies and keeps a running total.

How many legs do 3 dogs, 2 spiders and 1 crab have in total?

Step 1: A dog has 4 legs, so 3 dogs make 12 legs.
Step 2: A spider has 8 legs, so 2 spiders make 16 legs.
Step 3: Adding these 16 legs to the 12 legs so far gives 12 + 16 = 28 legs.
...
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

# Two writers' wordings of the two functions.
MULTIPLY = (
    "{article} {animal} has {legs} legs, so {animals} {make} {product} legs.",
    "Each {animal} has {legs} legs, which makes {product} legs for {animals}.",
)
ADD = (
    "Adding these {product} legs to the {total} legs so far gives {total} + {product} = {new} legs.",
    "Together with the {total} legs counted before, the total grows to {total} + {product} = {new} legs.",
)
_PLURALS = {
    "butterfly": "butterflies",
    "cockroach": "cockroaches",
    "firefly": "fireflies",
    "leech": "leeches",
    "praying mantis": "praying mantises",
    "woodlouse": "woodlice",
} | {same: same for same in ("deer", "jellyfish", "sheep", "shrimp", "starfish")}


@lru_cache(maxsize=8)
def _source(seed: int, options: tuple[int, int, int]) -> Any:
    from reasoning_gym import create_dataset

    low, high, most = options
    return create_dataset(
        "leg_counting",
        seed=stream_seed("leg_counting", seed),
        size=1,
        min_animals=low,
        max_animals=high,
        min_instances=1,
        max_instances=most,
    )


def make(seed: int, index: int, options: Mapping[str, Any]) -> Problem:
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    item = _source(seed, (options["min_animals"], options["max_animals"], options["max_count"]))[index]
    draw = Random(f"leg_counting/{seed}/{index}")
    multiply, add = draw.choice(tuple(zip(MULTIPLY, ADD, strict=True)))  # one writer a rationale
    groups, steps, total = [], [], 0
    for number, (animal, count) in enumerate(item["metadata"]["animals"].items()):
        legs = ANIMALS[animal]
        group = f"{count} {animal if count == 1 else _PLURALS.get(animal, animal + 's')}"
        groups.append(group)
        product = count * legs
        article, make = "An" if animal[0] in "aeiou" else "A", "makes" if count == 1 else "make"
        steps.append(multiply.format(article=article, animals=group, animal=animal, legs=legs, make=make, product=product))
        if number:
            steps.append(add.format(total=total, product=product, new=total + product))
        total += product
    if str(total) != item["answer"]:
        raise AssertionError(f"leg_counting: {groups} have {total} legs, but the generator says {item['answer']}")
    listed = " and ".join(part for part in (", ".join(groups[:-1]), groups[-1]) if part)
    question = f"How many legs {'does' if groups[0][:2] == '1 ' and len(groups) == 1 else 'do'} {listed} have in total?"
    rationale = "\n".join(f"Step {number}: {step}" for number, step in enumerate(steps, 1))
    return Problem(id="", task="", question=question, answer=str(total), rationale=rationale)


TASK = Task(
    name="leg_counting",
    title="Leg counting (made)",
    summary="counting the legs of a few kinds of animals, made offline",
    answer="number",
    rule=calculated,
    version=8,
    licence="apache-2.0",
    make=make,
    options={
        "min_animals": Option(2, 1, 30, "Fewest kinds of animals in a question."),
        "max_animals": Option(3, 1, 30, "Most kinds of animals in a question."),
        "max_count": Option(6, 1, 1000, "Most animals of one kind."),
    },
)
