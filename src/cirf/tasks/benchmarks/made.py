"""Tasks whose problems are made offline, with worked solutions.

    What is 4 + 7 - 2?
    Step 1: Adding 7 to 4 gives 4 + 7 = 11.
    Step 2: Subtracting 2 from 11 leaves 11 - 2 = 9.

    How many legs do 3 dogs, 2 spiders and 1 crab have in total?
    Step 1: A dog has 4 legs, so 3 dogs make 12 legs.
    Step 2: A spider has 8 legs, so 2 spiders make 16 legs.
    Step 3: Adding these 16 legs to the 12 legs so far gives 12 + 16 = 28 legs.
    ...

    A coin is heads up. Maria flips the coin. Noah does not flip the coin. Is the coin still heads up?
    Step 1: At the start the coin lies with heads facing up.
    Step 2: Maria turns the coin over, and now it shows tails instead of heads.
    Step 3: Noah leaves the coin alone, and it still shows tails as before.

Wordings are those of several writers; a rationale keeps to one. Numbers and animals of chain sums and leg counting are drawn in
the order of reasoning-gym 0.1.25, so a seed gives the problems that it gave with that package.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

from cirf.records import Problem
from cirf.tasks.loading.generated import stream_seed
from cirf.tasks.steps import calculated, coin_state
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


def make_chain_sum(seed: int, index: int, options: Mapping[str, Any]) -> Problem | None:
    """Problem ``index`` of the stream; skipped where a running total goes below zero unless ``allow_negative``."""
    draw = Random(stream_seed("chain_sum", seed) + index)
    count = draw.randint(options["min_terms"], options["max_terms"])
    digits = draw.randint(options["min_digits"], options["max_digits"])
    low, high = (0 if digits == 1 else 10 ** (digits - 1)), 10**digits - 1
    total, *terms = [draw.randint(low, high) for _ in range(count)]
    signs = [draw.choice("+-") for _ in terms]
    expression = " ".join((str(total), *(f"{sign} {term}" for sign, term in zip(signs, terms, strict=True))))
    writer = Random(f"chain_sum/{seed}/{index}")
    add, subtract = writer.choice(ADD), writer.choice(SUBTRACT)  # a writer keeps to one wording
    steps: list[str] = []
    for sign, term in zip(signs, terms, strict=True):
        new = total + term if sign == "+" else total - term
        if new < 0 and not options["allow_negative"]:
            return None
        phrase = (add if sign == "+" else subtract).format(term=term, total=total, new=new)
        steps.append(f"Step {len(steps) + 1}: {phrase}")
        total = new
    return Problem(id="", task="", question=f"What is {expression}?", answer=str(total), rationale="\n".join(steps))


CHAIN_SUM = Task(
    name="chain_sum",
    title="Chain sum (made)",
    summary="sums and differences of a few numbers in a row, made offline",
    answer="number",
    rule=calculated,
    version=10,
    licence="apache-2.0",
    make=make_chain_sum,
    options={
        "min_terms": Option(3, 2, 30, "Fewest numbers in a question."),
        "max_terms": Option(5, 2, 30, "Most numbers in a question."),
        "min_digits": Option(1, 1, 9, "Fewest digits of a number; all numbers of one question have the same."),
        "max_digits": Option(2, 1, 9, "Most digits of a number."),
        "allow_negative": Option(False, 0, 1, "Whether a running total may go below zero."),
    },
)

MULTIPLY = (
    "{article} {animal} has {legs} legs, so {animals} {make} {product} legs.",
    "Each {animal} has {legs} legs, which makes {product} legs for {animals}.",
)
SUM_UP = (
    "Adding these {product} legs to the {total} legs so far gives {total} + {product} = {new} legs.",
    "Together with the {total} legs counted before, the total grows to {total} + {product} = {new} legs.",
)
_BY_LEGS = {
    0: "snake, sea slug, jellyfish, flatworm, leech",
    2: "chicken, bird, human, duck",
    4: "dog, cat, cow, horse, lion, elephant, giraffe, tiger, deer, sheep",
    5: "starfish",
    6: "insect, ant, butterfly, beetle, bee, wasp, grasshopper, cricket, cockroach, praying mantis, firefly",
    8: "spider, scorpion",
    10: "crab, lobster, shrimp",
    14: "woodlouse",
}
LEGS = {animal: legs for legs, animals in _BY_LEGS.items() for animal in animals.split(", ")}
_PLURALS = {
    "butterfly": "butterflies",
    "cockroach": "cockroaches",
    "firefly": "fireflies",
    "leech": "leeches",
    "praying mantis": "praying mantises",
    "woodlouse": "woodlice",
} | {same: same for same in ("deer", "jellyfish", "sheep", "shrimp", "starfish")}


def make_leg_counting(seed: int, index: int, options: Mapping[str, Any]) -> Problem:
    draw = Random(stream_seed("leg_counting", seed) + index)
    animals = draw.sample(list(LEGS), draw.randint(options["min_animals"], options["max_animals"]))
    writers = tuple(zip(MULTIPLY, SUM_UP, strict=True))
    multiply, add = Random(f"leg_counting/{seed}/{index}").choice(writers)  # one writer a rationale
    groups, steps, total = [], [], 0
    for number, animal in enumerate(animals):
        count, legs = draw.randint(1, options["max_count"]), LEGS[animal]
        group = f"{count} {animal if count == 1 else _PLURALS.get(animal, animal + 's')}"
        groups.append(group)
        product = count * legs
        article, make = "An" if animal[0] in "aeiou" else "A", "makes" if count == 1 else "make"
        steps.append(multiply.format(article=article, animals=group, animal=animal, legs=legs, make=make, product=product))
        if number:
            steps.append(add.format(total=total, product=product, new=total + product))
        total += product
    listed = " and ".join(part for part in (", ".join(groups[:-1]), groups[-1]) if part)
    question = f"How many legs {'does' if groups[0][:2] == '1 ' and len(groups) == 1 else 'do'} {listed} have in total?"
    rationale = "\n".join(f"Step {number}: {step}" for number, step in enumerate(steps, 1))
    return Problem(id="", task="", question=question, answer=str(total), rationale=rationale)


LEG_COUNTING = Task(
    name="leg_counting",
    title="Leg counting (made)",
    summary="counting the legs of a few kinds of animals, made offline",
    answer="number",
    rule=calculated,
    version=11,
    licence="apache-2.0",
    make=make_leg_counting,
    options={
        "min_animals": Option(2, 1, 30, "Fewest kinds of animals in a question."),
        "max_animals": Option(3, 1, 30, "Most kinds of animals in a question."),
        "max_count": Option(6, 1, 1000, "Most animals of one kind."),
    },
)

_LIST = (
    "Alice Anna Ben Bella Carl Chloe Clara Daniel David Diana Elena Emma Eric Ethan Fiona Frank George Grace Hannah Henry "
    "Irene Isaac Jack James Jane Julia Karen Kevin Laura Leo Liam Linda Lucy Marco Maria Mark Mary Mia Nina Noah Nora Oliver "
    "Oscar Paul Peter Rachel Rosa Ruth Sam Sara Simon Sofia Tara Thomas Tina Tom Victor Wendy William Zoe"
)
NAMES = tuple(_LIST.split())  # common first names; most are a single token

START = ("To begin with, the coin lies there heads up.", "At the start the coin lies with heads facing up.")
FLIP = (
    "{name} flips the coin, so it turns over from {old} to {new}.",
    "{name} turns the coin over, and now it shows {new} instead of {old}.",
)
KEEP = (
    "{name} does not flip the coin, so it stays {old} up as before.",
    "{name} leaves the coin alone, and it still shows {old} as before.",
)


def make_coin_flip(seed: int, index: int, options: Mapping[str, Any]) -> Problem:
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


MADE_COIN_FLIP = Task(
    name="made_coin_flip",
    title="Coin Flip (made)",
    summary="tracking the state of a coin over a few people, made offline",
    answer="yesno",
    rule=coin_state,
    version=9,
    licence="apache-2.0",
    make=make_coin_flip,
    options={
        "min_people": Option(2, 1, len(NAMES), "Fewest people in a question."),
        "max_people": Option(5, 1, len(NAMES), "Most people in a question."),
    },
)
