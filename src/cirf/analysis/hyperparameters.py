"""The hyper-parameters of a run in the order of the paper's table, written from its recipe."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from cirf.analysis.analysis import Analysis, AnalysisResult
from cirf.analysis.source import Run, Source, published
from cirf.errors import CirfError
from cirf.pictures.table import Column, Table

_COLUMNS = (
    Column("step", "Step"),
    Column("parameter", "Parameter"),
    Column("key", "Key of the recipe"),
    Column("value", "Value"),
)
_BEYOND = (
    ("Step 4", "Language model", "backbone.model"),
    ("Step 4", "Adaptation", "finetune.adaptation"),
    ("Step 4", "LoRA rank", "finetune.lora.rank"),
    ("Step 4", "LoRA alpha", "finetune.lora.alpha"),
    ("Step 3", "Codebook size K of the models", "codebook.size"),
    ("all", "Seed", "seed"),
)
"""Additional parameters that the paper's table omits."""


_SHAPE = {
    "backbone.architecture.hidden_size": "hidden_size",
    "backbone.architecture.layers": "num_hidden_layers",
    "backbone.architecture.heads": "num_attention_heads",
}
"""Keys that a recipe need not set, and what a model's configuration calls them."""


def make(source: Source) -> AnalysisResult:
    """A row a parameter; with the paper's values a column of theirs, and whether ours differs."""
    run = source.single
    rows: list[dict[str, Any]] = []
    shape = _shape(run)
    for row in published("hyperparameters"):
        key, ours = row["key"], run.key(row["key"])
        if key == "codebook.sizes" and not ours:  # one alone
            key, ours = "codebook.size", run.key("codebook.size")
        text = _text_of(ours)
        if key in _SHAPE and ours is None:
            ours = shape.get(key)
            text = "" if ours is None else str(ours)
        rows.append({"step": row["step"], "parameter": row["parameter"], "key": key, "value": text})
        same = (list(ours) if isinstance(ours, list | tuple) else ours) == row["value"]
        rows[-1] |= {"paper": _text_of(row["value"]), "same": "yes" if same else "no"}
    adapted = run.key("finetune.adaptation") == "lora"
    rows += [
        {"step": step, "parameter": name, "key": key, "value": _text_of(run.key(key)), "paper": None, "same": None}
        for step, name, key in _BEYOND
        if adapted or "lora" not in key
    ]
    columns = (*_COLUMNS, Column("paper", "Paper"), Column("same", "The same")) if source.paper else _COLUMNS
    overrides = run.key("finetune.overrides") or {}
    kept = {method: {key: value for key, value in keys.items() if value is not None} for method, keys in overrides.items()}
    notes = source.notes(run)
    notes += [f"{method} is trained with its own settings: {_text_of(keys)}." for method, keys in kept.items() if keys]
    return AnalysisResult((Table("hyperparameters", "Hyper-parameters of the run.", columns, rows),), {}, notes)


def _shape(run: Run) -> dict[str, int]:
    """The backbone's own values of `_SHAPE`, from the configuration of a trained model or its own; none without either."""
    from cirf.assets import listing
    from cirf.lm.backbone import load_config
    from cirf.recipe.schema import Backbone

    model = str(run.key("backbone.model"))
    trained = [found.parent for name in run.recipe["methods"] if (found := run.file(f"models/{name}", "config.json"))]
    own = [place for place in (Path(model).expanduser(), Path(listing().get(model, model))) if (place / "config.json").is_file()]
    for place in [*trained, *own][:1]:
        with suppress(CirfError):
            config = load_config(place, Backbone()).get_text_config(decoder=True)
            return {key: int(value) for key, name in _SHAPE.items() if (value := getattr(config, name, None))}
    return {}


def _text_of(value: Any) -> str:
    """A value for readers: lists without brackets, short numbers."""
    if isinstance(value, list | tuple):
        return ", ".join(_text_of(entry) for entry in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text_of(entry)}" for key, entry in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)


ANALYSIS = Analysis(
    "hyperparameters",
    "Hyper-parameters",
    "The run's parameters, in the order of the paper's table.",
    "a recipe",
    make,
    "Table hyper-parameters",
)
