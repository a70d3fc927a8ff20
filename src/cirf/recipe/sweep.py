"""The schema of a sweep: one YAML file names a recipe and its runs.

``sweep_load.py`` reads and expands it. Example::

    name: sizes
    recipe: quickstart
    parts:
      - name: codes
        until: codebook
        grid: {codebook.size: [8, 16], codebook.representation: [mean_centered, random]}    # four runs
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, model_validator

from cirf.recipe.keys import found, inner_section
from cirf.recipe.schema import NAME, Recipe, Section, key

_FILES = ("sweep.yaml", "sweep.json", "stages.jsonl", "analysis")  # reserved names in a sweep's folder


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
            names = [*point, *self.grid]
            for index, one in enumerate(names):
                for other in names[index + 1 :]:
                    if overlap(one, other):
                        where = "the points and the grid" if one in point and other in self.grid else "the points or the grid"
                        raise ValueError(f"part {self.name}: {where} set {other} twice; give it in one place")
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
