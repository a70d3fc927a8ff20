"""Prompts and parsing for the model of a script, by the equivalent method of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from cirf.methods import get
from cirf.methods.base import Method
from cirf.recipe.schema import Codebook, Problems, Recipe, TaskEntry, Variant, Vocabulary

_NAME = "script"


def functional_method(
    settings: Mapping[str, Any], size: int, delimiters: Literal["cirf", "think"] = "cirf", opened: bool = True
) -> Method:
    """CIRF with ``size`` functional tokens and these settings of the method; ``opened``: prompts hold the opening delimiter."""
    recipe = _recipe(
        codebook=Codebook(size=size),
        vocabulary=Vocabulary(delimiters=delimiters, opening="prompt" if opened else "written"),
        variants={_NAME: Variant(method="cirf_full", settings=dict(settings))},
    )
    return get(_NAME, recipe)


def plain_method() -> Method:
    """A method whose whole output is the answer."""
    return get("direct_sft", _recipe())


def _recipe(**sections: Any) -> Recipe:
    return Recipe(name=_NAME, problems=Problems(tasks=(TaskEntry(task="jsonl"),)), **sections)
