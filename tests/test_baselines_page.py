"""The page of the baselines says what the code does: every setting, preset and value."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cirf import methods
from cirf.recipe import Override
from cirf.yaml_text import inline

PAGE = (Path(__file__).parents[1] / "docs" / "baselines.md").read_text(encoding="utf-8")
SECTIONS = dict(zip(*[iter(re.split(r"^## (\w+)$", PAGE, flags=re.MULTILINE)[1:])] * 2, strict=True))


def table(name: str, first: str) -> dict[str, list[str]]:
    """The rows of a section's table that begins with that column, by their first cell; the head under its own name."""
    found: dict[str, list[str]] = {}
    for line in SECTIONS[name].splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if line.startswith(f"| {first} |") or (found and line.startswith("| ")):
            found[cells[0]] = cells[1:]
        elif found and not line.startswith("|"):
            break
    return found


def test_every_method_there_is_stands_on_it_once() -> None:
    assert set(SECTIONS) == {name for name in methods.names() if not name.startswith("cirf_")}
    assert all("*Cost*" in text for text in SECTIONS.values())


@pytest.mark.parametrize("name", SECTIONS)
def test_the_tables_hold_the_codes_values_and_a_source_for_each(name: str) -> None:
    made = methods.named(name)
    settings, training = table(name, "setting"), table(name, "training")
    presets, prose = list(made.presets), " ".join(SECTIONS[name].split())
    if not made.Settings.model_fields:
        assert not settings and not training and "No settings" in prose
        return
    assert settings.pop("setting") == ["default", *presets, "source"]
    assert list(settings) == list(made.Settings.model_fields)
    defaults = {key: field.get_default() for key, field in made.Settings.model_fields.items()}
    for key, cells in settings.items():
        values = [defaults[key], *(made.presets[preset].settings.get(key, defaults[key]) for preset in presets)]
        assert cells[:-1] == [inline(value) for value in values], key
        assert cells[-1], key
    if not presets:
        assert not training and "no presets" in prose
        return
    assert training.pop("training") == [*presets, "source"]
    keys = {key for preset in made.presets.values() for key in preset.training.model_dump(exclude_none=True)}
    assert set(training) == keys <= set(Override.model_fields)
    for key, cells in training.items():
        given = [preset.training.model_dump().get(key) for preset in made.presets.values()]
        assert cells[:-1] == ["recipe" if value is None else inline(value) for value in given], key
        assert cells[-1], key
