"""What can be told of models before any work: that they are there, look as they should, and are whose they are said to be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cirf.assets import resolve
from cirf.errors import CirfError
from cirf.methods import get, learners
from cirf.stages.context import Context

if TYPE_CHECKING:
    from cirf.methods.method import Method
    from cirf.recipe import Recipe
    from cirf.store import Plan


def check_backbone(context: Context, stages: Sequence[Plan]) -> None:
    """``CirfError`` where the backbone is not what the recipe says, or another model that a method of these stages reads is not
    there: told by their configurations, before hours of work."""
    from cirf.lm.backbone import check_architecture, check_causal, check_weights, load_config, load_tokenizer, pick_device
    from cirf.lm.int8 import check_int8
    from cirf.lm.vocabulary import single

    device = pick_device(context.recipe.backbone.device)
    if context.recipe.evaluate.weights == "int8":
        check_int8(device)
    if context.recipe.finetune.weights == "int8":
        _check_frozen(context.recipe)
    source = resolve(context.recipe.backbone.model, context.progress)
    config = load_config(source, context.recipe.backbone)
    check_causal(config, source)
    check_architecture(config, context.recipe.backbone.architecture, source)
    check_weights(source)
    asked = {name for stage in stages for name in stage.name.split("/")[1:]}
    for method in learners(context.recipe):
        for name in method.reads if method.name in asked else ():
            other = {"model": name, "revision": None, "trust_remote_code": False}
            load_config(resolve(name, context.progress), context.recipe.backbone.model_copy(update=other))
    _ = context.width
    like = context.recipe.vocabulary.like
    if like is not None and any(method.functional for method in learners(context.recipe)):
        single(load_tokenizer(source, context.recipe.backbone), like)


def _check_frozen(recipe: Recipe) -> None:
    """``CirfError`` where a method's training has no frozen weights that could be multiplied in eight bits."""
    adapted = [method for method in learners(recipe) if not method.frozen]
    if adapted and recipe.finetune.adaptation == "full":
        raise CirfError("finetune.weights: with adaptation: full no weight is frozen; set it to saved, or adaptation to lora")
    for method in adapted:
        if recipe.finetune.resolved(method.name, method.training).lora.dropout:
            raise CirfError(f"finetune.weights: int8 wants adapters without dropout, and {method.name} has some; set it to saved")


def check_saved(name: str, folder: Path, recipe: Recipe) -> None:
    """``CirfError`` where a folder can hold no saved model of a method, or its functional tokens or thoughts are not the
    recipe's."""
    from cirf.lm.thinking import vectors_of

    method = get(name, recipe)
    if not method.trained:
        raise CirfError(f"models.{name}: {name} is not trained: the backbone answers for it; remove the key")
    if method.learner != name:
        raise CirfError(f"models.{name}: {name} answers with the model of {method.learner}; name that one")
    if not (folder / "config.json").is_file():
        raise CirfError(f"models.{name}: {folder} is no model's folder (it holds no config.json)")
    count = vectors_of(folder)
    if count != method.latents:
        thinks = f"thinks in {count} vectors" if count else "does not think"
        raise CirfError(f"models.{name}: {folder} {thinks} before it answers, and {name} as set here in {method.latents}")
    _check_trained_as(method, folder)
    if not method.functional:
        return
    try:
        functions = json.loads((folder / "functions.json").read_text(encoding="utf-8"))
        found = (int(functions["size"]), str(functions["delimiters"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise CirfError(f"models.{name}: {folder} has no functional tokens (no whole functions.json)") from None
    if found != (recipe.codebook.size, recipe.vocabulary.delimiters):
        raise CirfError(
            f"models.{name}: {folder} has {found[0]} functional tokens between <{found[1]}> and </{found[1]}>; "
            f"set codebook.size={found[0]} and vocabulary.delimiters={found[1]}"
        )


def _check_trained_as(method: Method, folder: Path) -> None:
    """``CirfError`` where it is known that another method, or other settings, made a model. Methods with functional tokens may
    answer with each other's."""
    try:
        record = json.loads((folder / "stage.json").read_text(encoding="utf-8"))
        kind, _, stage = str(record["stage"]).partition("/")
        taught = dict(record["section"].get("method") or {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    if kind not in ("models", "trials") or (method.functional and (folder / "functions.json").is_file()):
        return
    made_as = str(taught.get("method", stage.partition("/")[0]))
    if made_as != method.base:
        raise CirfError(f"models.{method.name}: {folder} was trained as {made_as}, not as {method.base}; give it to that method")
    told, wanted = taught.get("settings") or {}, method.taught_by.get("settings") or {}
    for key in told:
        if key in wanted and told[key] != wanted[key]:
            raise CirfError(
                f"models.{method.name}: {folder} was trained with {key}: {json.dumps(told[key])}, and the recipe says "
                f"{json.dumps(wanted[key])}; set the one it was trained with, or train another"
            )
