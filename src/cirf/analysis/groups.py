"""Runs of a sweep, grouped by what they share and distinguished by what they do not."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import PurePath
from typing import Any

from cirf.analysis.source import Run
from cirf.errors import CirfError

_NO_MATTER = (
    "name",
    "notes",
    "methods",
    "codebook.sizes",
    *(f"evaluate.{key}" for key in ("batch_size", "latency_questions", "latency_runs", "latency_warmup", "probes", "voting")),
)
"""Keys that do not change codes, models and accuracies of a method."""

_PRUNING = "compression"  # keys that matter only to methods with pruned results
_VARIANTS = "variants"  # keys that matter only to a recipe's own variants
PRUNED = ("cirf_zero", "cirf_fast", "cirf_faster", "cirf_lean")  # the methods with pruned results
_LONG = 48
_LONGEST_NAME = 60  # bytes of a file's name that are made of labels and paths; longer ones are cut, with a hash of the whole


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ only in the requested keys; ``label``: what distinguishes the group from the others, empty for a single
    one."""

    label: str
    runs: Sequence[Run]

    def __str__(self) -> str:
        return f" ({self.label})" if self.label else ""


def distinct(runs: Iterable[Run]) -> list[Run]:
    """Each run once: parts of a sweep may share one."""
    return list({run.folder.resolve(): run for run in runs}.values())


def grouped(
    runs: Iterable[Run],
    keys: Sequence[str],
    keep: Callable[[Sequence[Run]], bool] | None = None,
    method: Callable[[Sequence[Run]], str | None] | None = None,
) -> list[Group]:
    """Runs that agree in all keys but ``keys`` (dotted, with all below them) and those without effect.

    A group has one run for each value of the keys (see `one_each`), of which there are at least two; with ``keep``, which selects
    groups, it has all of them. ``method``: the method of a group, none of a recipe's own variants: if its results are pruned,
    runs must agree in that, too; ``None``: for codes, which do not depend on it.
    """
    found: dict[str, list[Run]] = {}
    apart = (*keys, *([_VARIANTS] if method is not None else []))
    for place, members in _sorted_out(distinct(runs), (*apart, _PRUNING)).items():
        if method is not None and method(one_each(members, keys)) in PRUNED:
            found |= _sorted_out(members, apart)
        else:
            found[place] = members
    kept = []
    for place, members in found.items():
        chosen = members if keep else one_each(members, keys)
        if keep(chosen) if keep else len(chosen) > 1:
            kept.append((json.loads(place), chosen))
    labels = distinct_labels([rest for rest, _ in kept], short)
    return [Group(label, chosen) for label, (_, chosen) in zip(labels, kept, strict=True)]


def one_each(runs: Sequence[Run], keys: Sequence[str]) -> list[Run]:
    """For equal values of the keys, the run with the most evaluated methods, the first of several."""
    found: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        other = found.setdefault(values(run, keys), run)
        if len(run.methods) > len(other.methods):
            found[values(run, keys)] = run
    return [run for run in runs if run is found[values(run, keys)]]


def settings(run: Run, but: Sequence[str] = ()) -> dict[str, str]:
    """A run's relevant settings, by dotted key as JSON, without some keys and all below them."""
    return {key: value for key, value in _flat(run.recipe).items() if not below(key, (*but, *_NO_MATTER))}


def _sorted_out(runs: Iterable[Run], but: Sequence[str]) -> dict[str, list[Run]]:
    """Runs by the rest of their settings, as JSON."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(json.dumps(settings(run, but), sort_keys=True), []).append(run)
    return found


def distinct_labels(
    several: Sequence[Mapping[str, str]], short: Callable[[str, str], str] = lambda key, value: value
) -> list[str]:
    """A label of each by what differs between them: empty without a difference; with several, only the values unlike most, `base`
    if there are none. Whole values are compared; ``short`` abbreviates a key and its value. A missing key counts as a value.
    Equal labels, also as file names, are numbered."""
    keys = dict.fromkeys(key for one in several for key in one)
    differing = [key for key in keys if len({one.get(key) for one in several}) > 1]
    if not differing:
        return ["" for _ in several]
    usual = {key: Counter(one.get(key) for one in several).most_common(1)[0][0] for key in differing}

    def word(one: Mapping[str, str], key: str) -> str:
        return short(key, one[key]) if key in one else f"no {_last(key)}"

    chosen = [[key for key in differing if len(differing) == 1 or one.get(key) != usual[key]] for one in several]
    labels = [", ".join(word(one, key) for key in found) or "base" for one, found in zip(several, chosen, strict=True)]
    often = Counter(map(file_name, labels))
    taken = {name for name, times in often.items() if times == 1}
    for index, label in enumerate(labels):
        if often[file_name(label)] > 1:
            labels[index] = next(summary for number in count(1) if file_name(summary := f"{label} {number}") not in taken)
            taken.add(file_name(labels[index]))
    return labels


def values(run: Run, keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(value if isinstance(value := run.key(key), str | int | float) else json.dumps(value) for key in keys)


def model_name(run: Run) -> str:
    """The backbone, short: the last part of a path, without ``bundled:``."""
    return PurePath(str(run.key("backbone.model")).removeprefix("bundled:")).name


def model_names(runs: Iterable[Run]) -> dict[str, str]:
    """The short name of each backbone (see `model_name`), by its key; of backbones that share one, with a hash of the whole."""
    found = {str(run.key("backbone.model")): model_name(run) for run in runs}
    often = Counter(file_name(name) for name in found.values())
    return {key: name if often[file_name(name)] == 1 else f"{name} {_hashed(key)}" for key, name in found.items()}


def file_name(name: str) -> str:
    """A name as part of a file's name, of at most 60 bytes."""
    made = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name).strip("-")
    if len(made.encode()) <= _LONGEST_NAME:
        return made
    return f"{made.encode()[: _LONGEST_NAME - 9].decode(errors='ignore')}-{_hashed(name)}"


def put(pictures: dict[str, str], name: str, picture: str) -> None:
    """Add a picture; ``CirfError`` if one of that name is there, since its file would be overwritten."""
    if name in pictures:
        raise CirfError(f"two pictures would both be called {name}.svg; give the runs distinct settings")
    pictures[name] = picture


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _flat(recipe: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Every leaf by its dotted key, as JSON."""
    found: dict[str, str] = {}
    for key, value in recipe.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = json.dumps(value, sort_keys=True)
    return found


def below(key: str, places: Sequence[str]) -> bool:
    return any(key == place or key.startswith(f"{place}.") for place in places)


def short(key: str, value: str) -> str:
    """A setting in a few words: its key's last part and its value, for tasks their names; the key alone if that is long."""
    plain = json.loads(value)
    if key == "backbone.model":
        return PurePath(str(plain).removeprefix("bundled:")).name
    name = "K" if key == "codebook.size" else _last(key)
    if key == "problems.tasks":
        plain = " + ".join(str(task.get("name") or task["task"]) for task in plain)
    return f"{name} {plain}" if len(str(plain)) <= _LONG else f"{name} of its own"


def _last(key: str) -> str:
    return key.rpartition(".")[2]
