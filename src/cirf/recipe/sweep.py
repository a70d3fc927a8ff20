"""Sweeps: one YAML file names a recipe and its runs. Its schema, and reading and expansion to runs, checked before anything runs.

name: sizes
recipe: quickstart
parts:
  - name: codes
    until: codebook
    grid: {codebook.size: [8, 16], codebook.representation: [mean_centered, random]}    # four runs
"""

from __future__ import annotations

import hashlib
import itertools
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, model_validator

from cirf.errors import CirfError
from cirf.recipe import load as recipe_io
from cirf.recipe.keys import found, inner_section
from cirf.recipe.load import dump, is_sweep, override, read, read_text, shipped_files
from cirf.recipe.schema import NAME, Recipe, Section, key
from cirf.recipe.yaml import Document, inline

_FILES = ("sweep.yaml", "sweep.json", "analysis")  # reserved names in a sweep's folder


def _named(given: dict[str, Any]) -> dict[str, Any]:
    """The same, after a check that its names are dotted keys."""
    for name in given:
        if not all(name.split(".")):
            raise ValueError(f"{name!r} is not a key; expected one such as codebook.size")
    return given


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """The same, after a check that no value is a whole section of the recipe."""
    for name, value in _named(given).items():
        if isinstance(value, dict) and _is_section(name):
            advice = f"name its keys, such as {name}.{next(iter(value), 'size')}"
            raise ValueError(f"{name}: a whole section would replace the recipe's values there; {advice}")
    return given


def _is_section(name: str) -> bool:
    """Whether a dotted key names a section of the recipe, and not a value or one of many sections."""
    section: type[Section] = Recipe
    for part in name.split("."):
        info = section.model_fields.get(part)
        inner, many = (None, False) if info is None else inner_section(info)
        if inner is None or many:
            return False
        section = inner
    return True


Grid = Annotated[dict[str, Any], AfterValidator(_named)]
Overrides = Annotated[dict[str, Any], AfterValidator(_checked)]  # values by the recipe's dotted keys


class SweepPart(Section):
    """Runs that belong together."""

    name: str = key(..., "The part's name; also the folder that holds its runs.", pattern=f"^{NAME}$")
    notes: str = key("", "The purpose of the part.")
    set: Overrides = key({}, "Dotted keys of the recipe with another value in every run of this part.")
    points: tuple[Overrides, ...] = key(
        ({},), "Settings that belong together: each entry is a group of the recipe's dotted keys with their values.", min_length=1
    )
    grid: Grid = key(
        {},
        "Lists of values by dotted key: every combination is a run, for each of the points. A grid over seed "
        "repeats a run with other seeds.",
    )
    until: str | None = key(
        None,
        "A stage of these runs (see `cirf status`), or a kind of stage, such as codebook: only it and its inputs are "
        "made; null: they run to the report. --until overrides it.",
    )

    @model_validator(mode="after")
    def _varies_once(self) -> SweepPart:
        for name, values in self.grid.items():
            if not isinstance(values, list) or not values:
                inner = next(iter(values)) if isinstance(values, dict) and values else None
                nested = "" if inner is None else f"; write the whole key, such as {name}.{inner}"
                raise ValueError(f"grid.{name}: expected a list of values, found {found(values)}{nested}")
        for point in self.points:
            for one, other in itertools.combinations([*point, *self.grid], 2):
                if overlap(one, other):
                    raise ValueError(f"part {self.name}: the points and the grid set {other} twice; give it in one place")
        return self


class Sweep(Section):
    """Several runs of one recipe."""

    name: str = key(..., "The sweep's name; also its folder's, unless --out says otherwise.", pattern=f"^{NAME}$")
    notes: str = key("", "The purpose of the sweep.")
    recipe: str | dict[str, Any] = key(
        ..., "The recipe: the name of a shipped one, a file (relative to this one, then as given), or the keys themselves."
    )
    set: Overrides = key(
        {},
        "Dotted keys of the recipe with another value in every run, such as {finetune.epochs: 1}. A part's own override "
        "before them.",
    )
    parts: tuple[SweepPart, ...] = key(..., "The runs.", min_length=1)

    @model_validator(mode="after")
    def _names_differ(self) -> Sweep:
        names = [part.name for part in self.parts]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"parts: {twice[0]} occurs twice; give each its own name")
        taken = next((name for name in names if name in _FILES), None)
        if taken is not None:
            raise ValueError(f"parts: {taken} is a file name of the sweep itself; use another name")
        return self


def overlap(one: str, other: str) -> bool:
    """Whether two dotted keys set the same value, or one a part of the other's."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


_LONGEST = 120  # characters of a folder's name; file systems end at 255 bytes


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    part: str
    name: str
    """From the settings that vary within the part; the name of the run's folder."""
    settings: dict[str, Any]
    """All settings of the sweep, by dotted key: for every run, for the part, for this point."""
    varied: tuple[str, ...]
    recipe: Recipe
    until: str | None
    source: str
    """Its name in errors: file, part and point."""


@dataclass(frozen=True)
class LoadedSweep:
    """A loaded sweep, with its recipe's data."""

    sweep: Sweep
    base: Any
    source: str

    def resolved(self, sets: Sequence[str] = ()) -> str:
        """The sweep as YAML with its recipe's keys in it, and the overrides among the settings for all runs."""
        chosen = self.sweep.set | dict(map(override, sets))
        return dump(self.sweep.model_copy(update={"recipe": self.base, "set": chosen}))

    def points(self, sets: Sequence[str] = ()) -> list[Point]:
        """Every point of every part, in order, with the ``a.b=c`` overrides applied to each. Raises ``CirfError``: file, part and
        point, the key, what was expected and what was found."""
        overridden = [override(item)[0] for item in sets]
        return [point for part in self.sweep.parts for point in self._points(part, sets, overridden)]

    def _points(self, part: SweepPart, sets: Sequence[str], overridden: Sequence[str]) -> Iterator[Point]:
        names: set[str] = set()
        for given in part.points:
            for values in itertools.product(*part.grid.values()):
                varied = given | dict(zip(part.grid, values, strict=True))
                name = point_name(varied)
                source = f"{self.source}, part {part.name}, point {name}"
                if name in names:
                    raise CirfError(f"{source}: occurs twice in this part; name it once")
                names.add(name)
                for one, other in itertools.product(overridden, varied):
                    if overlap(one, other):
                        varies = f"part {part.name} varies {other} from run to run"
                        raise CirfError(f"--set {one}: {varies}; change it in {self.source}")
                settings = _layered(self.sweep.set, part.set, varied)
                recipe = recipe_io.build(Document(self.base), source, sets, settings)
                layered = _layered(settings, dict(map(override, sets)))
                yield Point(part.name, name, layered, tuple(varied), recipe, part.until, source)


def _layered(*groups: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in the order in which they apply: a later one replaces those that it overrides."""
    made: dict[str, Any] = {}
    for group in groups:
        for name, value in group.items():
            made = {other: kept for other, kept in made.items() if not f"{other}.".startswith(f"{name}.")} | {name: value}
    return made


def shipped() -> dict[str, pathlib.Path]:
    files = shipped_files("recipes") | shipped_files("sweeps")
    return {name: path for name, path in sorted(files.items()) if is_sweep(path.read_text(encoding="utf-8"))}


def load(path_or_name: str) -> LoadedSweep:
    """The sweep in a file, or a shipped one by its name. Raises ``CirfError``, one line: the file, the line, the key, what was
    expected and what was found."""
    path = recipe_io.find(path_or_name, shipped(), "sweep")
    return parse(read_text(path, path_or_name, "sweep"), str(path_or_name if path.name in path_or_name else path), path.parent)


def parse(text: str, source: str = "sweep", folder: pathlib.Path = pathlib.Path()) -> LoadedSweep:
    """The sweep in a YAML text; ``source`` is its name in errors, ``folder`` where its recipe is looked for."""
    document = read(text, source)
    if not isinstance(document.value, dict):
        raise CirfError(f"{source}: expected a sweep, keys such as name:, recipe: and parts:, found {found(document.value)}")
    if "problems" in document.value and "parts" not in document.value:
        raise CirfError(f"{source}: a recipe, not a sweep (it has no parts); `cirf run {source}` runs it")
    sweep = recipe_io.validated(Sweep, document.value, source, document)
    return LoadedSweep(sweep, _base(sweep, source, folder), source)


def _base(sweep: Sweep, source: str, folder: pathlib.Path) -> Any:
    """The data of the recipe. One in its own file must be complete."""
    if not isinstance(sweep.recipe, str):
        return sweep.recipe
    name = str(folder / sweep.recipe) if (folder / sweep.recipe).is_file() else sweep.recipe
    try:
        recipe_io.load(name)
        text = read_text(recipe_io.find(name, recipe_io.shipped(), "recipe"), name, "recipe")
    except CirfError as error:
        raise CirfError(f"{source}: recipe: {error}") from None
    return read(text, name).value


def point_name(settings: Mapping[str, Any]) -> str:
    """The name of a run's folder: ``codebook.size=32,seed=1``; ``base`` if nothing varies. Characters that are awkward in a
    folder's name become ``-``, and long names are cut; a hash then keeps them apart."""
    text = ",".join(f"{name}={inline(value)}" for name, value in settings.items()) or "base"
    plain = re.sub(r"[^A-Za-z0-9_.+=,-]+", "-", re.sub(r"[\"'\[\]{} ]", "", text))
    if plain == text and len(text) <= _LONGEST:
        return text
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST - 9]}~{mark}"
