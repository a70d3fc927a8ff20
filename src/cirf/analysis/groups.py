"""Runs of a sweep, put together by what they share and told apart by what they do not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from cirf.analysis.source import Run

_NO_MATTER = (
    "name",
    "notes",
    "methods",
    "codebook.sizes",
    "compression",
    "evaluate.batch_size",
    "evaluate.latency_items",
    "evaluate.latency_warmup",
    "evaluate.probes",
    "evaluate.throughput_batches",
    "evaluate.throughput_items",
    "evaluate.voting",
)
"""Keys in which runs may differ whose codes, models and accuracies of one method are still those of the same settings."""

_LONG = 32


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ in the asked keys alone; ``label``: what sets the group apart from the others, empty of a lone one."""

    label: str
    runs: Sequence[Run]

    def __str__(self) -> str:
        return f" ({self.label})" if self.label else ""


def distinct(runs: Iterable[Run]) -> list[Run]:
    """Each run once: parts of a sweep may share one."""
    return list({run.folder.resolve(): run for run in runs}.values())


def grouped(runs: Iterable[Run], keys: Sequence[str], keep: Callable[[Sequence[Run]], bool] | None = None) -> list[Group]:
    """Runs that agree in all of their recipe but ``keys`` (dotted, with all below them) and what matters to none.

    ``keep`` says which groups stay; ``None``: those in which the keys have at least two values.
    """
    found: dict[str, list[Run]] = {}
    rests: dict[str, dict[str, str]] = {}
    for run in distinct(runs):
        rest = {key: value for key, value in _flat(run.recipe).items() if not _below(key, (*keys, *_NO_MATTER))}
        place = json.dumps(rest, sort_keys=True)
        found.setdefault(place, []).append(run)
        rests[place] = rest
    kept = [
        place for place, members in found.items() if (keep(members) if keep else len({values(run, keys) for run in members}) > 1)
    ]
    labels = told_apart([{key: _short(key, value) for key, value in rests[place].items()} for place in kept])
    return [Group(label, found[place]) for label, place in zip(labels, kept, strict=True)]


def told_apart(several: Sequence[Mapping[str, str]]) -> list[str]:
    """A label of each by what differs between them: empty where nothing does, and where more than one thing does only what is
    not as with most, `base` if all is."""
    keys = dict.fromkeys(key for one in several for key in one)
    differing = [key for key in keys if len({one.get(key) for one in several}) > 1]
    if len(differing) > 1:
        usual = {key: Counter(one.get(key, "") for one in several).most_common(1)[0][0] for key in differing}
        told = [[one.get(key, "") for key in differing if one.get(key, "") != usual[key]] for one in several]
        return [", ".join(filter(None, words)) or "base" for words in told]
    return [one.get(differing[0], "") if differing else "" for one in several]


def values(run: Run, keys: Sequence[str]) -> tuple[Any, ...]:
    """What a run has for the keys, as plain values that compare."""
    return tuple(value if isinstance(value := run.key(key), str | int | float) else json.dumps(value) for key in keys)


def model_name(run: Run) -> str:
    """The backbone, short: the last part of a path, without ``bundled:``."""
    return PurePath(str(run.key("backbone.model")).removeprefix("bundled:")).name


def file_name(name: str) -> str:
    """A name as part of a file's name."""
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name).strip("-")


def _flat(recipe: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Every leaf by its dotted key, as JSON."""
    found: dict[str, str] = {}
    for key, value in recipe.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = json.dumps(value, sort_keys=True)
    return found


def _below(key: str, places: Sequence[str]) -> bool:
    return any(key == place or key.startswith(f"{place}.") for place in places)


def _short(key: str, value: str) -> str:
    """A setting in a word or two: its key's last part and its value; the key alone where the value is long."""
    plain = json.loads(value)
    if key == "backbone.model":
        return PurePath(str(plain).removeprefix("bundled:")).name
    name = "K" if key == "codebook.size" else key.rpartition(".")[2]
    return f"{name} {plain}" if len(str(plain)) <= _LONG else f"{name} of its own"
