"""Checks of models before any work: that they exist, have the right form, and belong to the method they are named for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.assets import resolve
from cirf.distributed import sharded
from cirf.errors import CirfError
from cirf.methods import get, learners
from cirf.recipe.schema import LOCAL
from cirf.stages.context import Context
from cirf.store.files import parse_json
from cirf.store.integrity import is_intact

if TYPE_CHECKING:
    from cirf.methods.base import Method
    from cirf.recipe.schema import Recipe
    from cirf.store.run_folder import StagePlan


_UNPACKED = ("fp8", "mxfp4")
"""Quantised weights that transformers loads as plain ones where no kernel computes with them."""


_ANSWERED = ("evaluation", "sampled", "votes")
"""Kinds of stages whose answers a server or vLLM may give."""


def check_engines(context: Context, stages: Sequence[StagePlan]) -> None:
    """``CirfError`` where a server, or vLLM, cannot answer in one of these stages that is still to be made: its API key is not
    set, vLLM is not installed, or the method reasons in vectors, which a server cannot compute."""
    from cirf.endpoints.calls import ready
    from cirf.evaluation.engines import check_vllm

    section = context.recipe.evaluate
    for stage in stages:
        kind, _, name = stage.name.partition("/")
        if kind not in (*_ANSWERED, "prepared") or is_intact(context.folder, stage):
            continue
        method = get(name, context.recipe)
        served = section.endpoints.get(name) if kind in _ANSWERED else None
        if served is not None and method.latents:
            raise CirfError(f"evaluate.endpoints.{name}: a server cannot compute the vectors that it reasons in; remove the key")
        if served is not None and served.url != LOCAL:
            ready(served)
        if served is None and section.engine == "vllm" and (method.needs() if kind == "prepared" else not method.latents):
            check_vllm()


def check_backbone(context: Context, stages: Sequence[StagePlan], processes: int | None = None) -> None:
    """``CirfError`` where the backbone is not what the recipe says, or another model that a method of these stages reads is not
    there, checked by their configurations; or as `check_engines`. All before hours of work. ``processes``: those that will train,
    if not those of now."""
    from cirf.lm.backbone import (
        check_architecture,
        check_causal,
        check_vocabulary,
        check_weights,
        load_config,
        load_tokenizer,
        pick_device,
    )
    from cirf.lm.prompt import end_token
    from cirf.lm.vocabulary import single

    check_engines(context, stages)
    pick_device(context.recipe.backbone.device)
    source = resolve(context.recipe.backbone.model, context.progress)
    config = load_config(source, context.recipe.backbone)
    check_causal(config, source)
    check_architecture(config, context.recipe.backbone.architecture, source)
    check_weights(source)
    end_token(tokenizer := load_tokenizer(source, context.recipe.backbone))
    check_vocabulary(config, tokenizer, source)
    names_in_stages = {name for stage in stages for name in stage.name.split("/")[1:]}
    for method in learners(context.recipe):
        for name in method.reads if method.name in names_in_stages else ():
            other = {"model": name, "revision": None, "trust_remote_code": False}
            load_config(resolve(name, context.progress), context.recipe.backbone.model_copy(update=other))
    _ = context.width
    like = context.recipe.vocabulary.init_from_token
    if like is not None and any(method.functional for method in learners(context.recipe)):
        single(tokenizer, like)
    _check_trainings(context, stages, source, config, sharded(processes))


def _check_trainings(context: Context, stages: Sequence[StagePlan], source: str | Path, config: Any, in_parts: bool) -> None:
    """``CirfError`` where a method that is still to be trained cannot be trained with this backbone, or ``in_parts``: sharded."""
    from cirf.lm.adapters import check_adapters
    from cirf.lm.backbone import load_model
    from cirf.methods.latent.loop import check_vectors

    recipe = context.recipe
    to_do = {
        stage.name.split("/")[1]
        for stage in stages
        if stage.name.startswith(("models/", "trials/")) and not is_intact(context.folder, stage)
    }
    methods = [method for method in learners(recipe) if method.name in to_do]
    packed = (getattr(config, "quantization_config", None) or {}).get("quant_method")
    if methods and packed and packed not in _UNPACKED:
        raise CirfError(f"backbone.model: {source} has quantised weights ({packed}); train the model that they were made from")
    if in_parts and methods:
        _check_sharded(methods)
    adapters = {}
    for method in methods:
        section = recipe.finetune.resolved(method.name, method.training)
        if section.adaptation == "lora" and not method.frozen:
            adapters[section.lora.target_modules] = section.lora
    for lora in adapters.values():
        check_adapters(config, lora)
    given = [method.name for method in methods if method.latents]
    if not given:
        return
    model = load_model(source, recipe.backbone)
    try:
        check_vectors(model)
    except CirfError as error:
        raise CirfError(
            f"backbone.model: {source} cannot reason in vectors, as {', '.join(given)} must ({error}); use another "
            "backbone, or another method"
        ) from None


def _check_sharded(methods: Sequence[Method]) -> None:
    """``CirfError`` where the launch asks for unsupported sharding, or a method cannot be trained with it."""
    from cirf.lm.training.sharding import check_launch, refusal
    from cirf.methods.base import Method

    check_launch()
    for method in methods:
        if method.frozen or type(method).objective is not Method.objective:
            raise refusal(method.name)


def check_saved(name: str, folder: Path, recipe: Recipe) -> None:
    """``CirfError`` where a folder can hold no saved model of a method, or its functional tokens or thoughts are not the
    recipe's."""
    from cirf.codebook.functions import functions_of
    from cirf.methods.saved import vectors_of

    method = get(name, recipe)
    if not method.trained:
        raise CirfError(f"models.{name}: {name} is not trained: the backbone answers for it; remove the key")
    if method.learner != name:
        raise CirfError(f"models.{name}: {name} answers with the model of {method.learner}; name that one")
    if not (folder / "config.json").is_file():
        raise CirfError(f"models.{name}: {folder} is not a model folder (no config.json)")
    count = vectors_of(folder)
    if count != method.latents:
        thinks = f"reasons in {count} vectors" if count else "reasons in no vectors"
        raise CirfError(f"models.{name}: {folder} {thinks} before it answers, but {name} of this recipe in {method.latents}")
    _check_trained_as(method, folder)
    if not method.functional:
        return
    functions = functions_of(folder)
    if not functions:
        raise CirfError(f"models.{name}: {folder} has no functional tokens (no functions.json)")
    size, kind = functions["size"], functions["delimiters"]
    if (size, kind) != (recipe.codebook.codes, recipe.vocabulary.delimiters):
        advice = f"set codebook.size={size} and vocabulary.delimiters={kind}"
        raise CirfError(f"models.{name}: {folder} has {size} functional tokens between <{kind}> and </{kind}>; {advice}")


def _check_trained_as(method: Method, folder: Path) -> None:
    """``CirfError`` where it is known that another method, or other settings, made a model. Methods with functional tokens may
    answer with each other's."""
    try:
        record = parse_json((folder / "stage.json").read_text(encoding="utf-8"))
        kind, _, name = str(record["stage"]).partition("/")
        taught = dict(record["section"].get("method") or {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    if kind != "models" or (method.functional and (folder / "functions.json").is_file()):
        return
    made_as = str(taught.get("method", name))
    if made_as != method.base:
        raise CirfError(f"models.{method.name}: {folder} was trained as {made_as}, not as {method.base}; give it to that method")
    theirs, wanted = taught.get("settings") or {}, method.taught_by.get("settings") or {}
    for key in theirs:
        if key in wanted and theirs[key] != wanted[key]:
            raise CirfError(
                f"models.{method.name}: {folder} was trained with {key}: {json.dumps(theirs[key])}, and the recipe says "
                f"{json.dumps(wanted[key])}; set the one it was trained with, or train another"
            )
