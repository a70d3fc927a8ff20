"""``init``: a short recipe fitted to a user's file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cirf.commands.check import token_counter
from cirf.commands.run import with_data
from cirf.recipe.load import parse
from cirf.recipe.schema import Recipe


def init(file: str, model: str, data: Path | None) -> None:
    """Check a file of rows as ``cirf check`` does and print a recipe for it; problems go to standard error.

    ``CirfError`` where no recipe would work, or there is no such file or model.
    """
    from cirf.fitting import fit

    made = {"name": "init", "backbone": {"model": model}, "problems": {"tasks": [{"task": "jsonl", "train_file": file}]}}
    recipe = with_data(parse(json.dumps(made, ensure_ascii=False), file), data)
    count, counted_by = token_counter(recipe)
    fitted = fit(recipe, size_of(recipe), count, counted_by == model)
    for note in fitted.notes:
        print(f"note: {note}", file=sys.stderr)
    sys.stdout.write(fitted.text)


def size_of(recipe: Recipe) -> int | None:
    """The parameters of a recipe's backbone: by its configuration where it is on this machine, else by its name."""
    from cirf.assets import listing, resolve
    from cirf.commands.dry_run import parameter_count
    from cirf.fitting import size_in_name
    from cirf.lm.backbone import check_causal, load_config

    model = recipe.backbone.model
    if Path(model).expanduser().is_dir() or not listing().get(model, "not fetched").startswith("not fetched"):
        source = resolve(model)
        check_causal(load_config(source, recipe.backbone), source)
        return parameter_count(source, recipe)["parameters"]
    return size_in_name(model)
