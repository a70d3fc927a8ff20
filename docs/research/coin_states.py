"""Check the intermediate states of Coin Flip traces, whether or not the answer is right.

    python -m docs.research.coin_states RUN --methods cirf_subjects terse_subjects [--task coin_flip] [--against-run RUN]

RUN is a run, not an archive, since prompts are needed. Its methods must name whom a step is about (``subjects: true``).
``--against-run`` takes the second method from another run.

A state is compared with the state that the trace itself wrote before it, so one mistake counts once. ``keeps heads`` is a step of
someone who does not flip a coin that shows heads. A trace is *whole* if it starts with the question's state and names its people
in order (case is ignored). It is *sound* if, in addition, all its states are right. A functional token means *flips* or *does not
flip*, whichever it precedes more often in the method's traces.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cirf.errors import CirfError
from cirf.statistics import compare, describe_difference
from cirf.store.jsonl import read_rows

_START = re.compile(r"coin is (heads|tails) up", re.IGNORECASE)
_ACT = re.compile(r"(?:^|[.?] )([^.?]+?) (flips|does not flip) the coin", re.IGNORECASE)
_PIECE = re.compile(r"</?cirf\w*>|[^\s<]+")
_OTHER = {"heads": "tails", "tails": "heads"}


@dataclass(frozen=True)
class State:
    """What the trace says that one person did to the coin, and the functional token before it (empty: none)."""

    flips: bool
    before: str
    after: str
    token: str = ""

    @property
    def right(self) -> bool:
        """Whether it follows from the state before it."""
        return self.after == (_OTHER[self.before] if self.flips else self.before)


@dataclass(frozen=True)
class Reading:
    """A trace: the states of people whom the question names, and whether these are all of them, in order."""

    states: tuple[State, ...]
    whole: bool

    @property
    def sound(self) -> bool:
        """Whole, with every state right."""
        return self.whole and all(state.right for state in self.states)


def read(question: str, trace: str) -> Reading:
    """Parse the trace of a question. ``CirfError`` if the question is not about a coin."""
    start = _START.search(question)
    acts = {name.lower(): act.lower() == "flips" for name, act in _ACT.findall(question)}
    if start is None or not acts:
        raise CirfError(f"no question about a coin: {question!r}")
    states: list[State] = []
    named: list[str] = []
    who, first, now, token = "", "", "", ""
    for word in _PIECE.findall(trace.lower()):
        if word.startswith("<"):
            token = word
            continue
        if word not in _OTHER:
            who = f"{who} {word}".strip()
            continue
        if now:
            named.append(who)
            if who in acts:
                states.append(State(acts[who], now, word, token))
        who, first, now, token = "", first or word, word, ""
    return Reading(tuple(states), first == start[1].lower() and named == list(acts))


def of(run: Path, method: str, task: str) -> dict[str, Reading]:
    """The method's traces by question. ``CirfError`` if the file has none, or several for one question."""
    file = run / "evaluation" / method / f"{task}.jsonl"
    found: dict[str, Reading] = {}
    for row in read_rows(file):
        if not row.get("prompt"):
            raise CirfError(f"{file}: has no prompts; an archive keeps none, give the run")
        if row["id"] in found:
            raise CirfError(f"{file}: several answers to {row['id']}")
        found[row["id"]] = read(row["prompt"], row["trace"])
    if not any(reading.states for reading in found.values()):
        raise CirfError(f"{file}: no trace names anyone (a method without `subjects: true`?)")
    return found


def summary(readings: Mapping[str, Reading]) -> str:
    """How many states are wrong and where, how many traces are whole, and how many of these are sound."""
    counts = Counter(
        (f"{'flips' if state.flips else 'keeps'} {state.before}", state.right)
        for reading in readings.values()
        for state in reading.states
    )
    wrong = {kind: number for (kind, right), number in sorted(counts.items()) if not right}
    whole, sound = (sum(getattr(reading, kind) for reading in readings.values()) for kind in ("whole", "sound"))
    return (
        f"{sum(wrong.values())} of {counts.total()} states wrong {wrong}; of {len(readings)} traces {whole} whole, {sound} sound"
    )


def token_summary(readings: Mapping[str, Reading]) -> str:
    """How often functional tokens correctly show whether someone flips, and how often the state after them is right."""
    states = [state for reading in readings.values() for state in reading.states if state.token]
    seen = Counter((state.token, state.flips) for state in states)
    means = {token: seen[token, True] > seen[token, False] for token, _ in seen}
    if len(set(means.values())) < 2:
        return "no functional tokens that show who flips"
    behind = Counter((means[state.token] == state.flips, state.right) for state in states)
    right = behind[True, True] + behind[True, False]
    return (
        f"{right} of {len(states)} functional tokens right; states right after these {behind[True, True]} of {right}, "
        f"after the others {behind[False, True]} of {len(states) - right}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--methods", nargs=2, required=True, metavar=("FIRST", "SECOND"))
    parser.add_argument("--task", default="coin_flip")
    parser.add_argument("--against-run", type=Path, default=None)
    asked = parser.parse_args(arguments)
    both = [
        of(run, name, asked.task) for name, run in zip(asked.methods, (asked.run, asked.against_run or asked.run), strict=True)
    ]
    if both[0].keys() != both[1].keys():
        raise CirfError("the two methods were not asked the same questions")
    for name, readings in zip(asked.methods, both, strict=True):
        print(f"{name}: {summary(readings)}; {token_summary(readings)}")
    ours, theirs = ({item: float(reading.sound) for item, reading in readings.items()} for readings in both)
    row = compare(ours, theirs)
    print(f"sound: {describe_difference(row, *asked.methods)}")
    print(json.dumps(row.to_dict()))


if __name__ == "__main__":
    main()
