"""The parts of the recipe that decide the content of a stage: all it reads, and nothing that does not change its artefact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.stages.lineage import file_hash, model_hash
from cirf.store.paths import user_path

if TYPE_CHECKING:
    from cirf.methods.base import Method
    from cirf.recipe.schema import Evaluate, Finetune, Recipe, RequestSettings
    from cirf.tasks.task import Task


def drawing(recipe: Recipe) -> dict[str, Any]:
    """Of the segments: which rows are drawn, where any are."""
    rows = {entry.name or entry.task: entry.rows for entry in recipe.problems.tasks}
    return {"rows": rows, "seed": recipe.seed, "validation": recipe.problems.validation} if any(rows.values()) else {}


def problems(recipe: Recipe) -> dict[str, Any]:
    """Which questions there are, but for their files, and which rows are let pass."""
    return recipe.problems.model_dump(exclude={"data"})


def asking(section: RequestSettings) -> dict[str, Any]:
    """What decides the answers: which models are asked how, and not where they run or how patiently."""
    models = list(dict.fromkeys(endpoint.model for endpoint in section.endpoints))
    return section.model_dump(exclude={"endpoints", "max_retries", "timeout", "prompt"}) | {"models": models}


def embedding(recipe: Recipe) -> dict[str, Any]:
    """The section, the embedding model, and whether questions are embedded too."""
    section = recipe.embeddings
    whole = {"words"} if section.words == "all" else set()  # runs made before that key stay finished
    keys = section.model_dump(exclude=whole) | {"content": model_hash(section.model)}
    return keys | {"questions": recipe.codebook.representation == "question_centered"}


def segments(recipe: Recipe) -> dict[str, Any]:
    return recipe.segments.model_dump(exclude={"adjacent"})


def left_out_scores(recipe: Recipe) -> dict[str, Any]:
    """Of the segments: the model that says how likely answers are without redundant steps, where these are left out."""
    if recipe.segments.redundant == "keep":
        return {}
    return {"backbone": model_hash(recipe.backbone.model, recipe.backbone.revision), "dtype": recipe.backbone.dtype}


def results(recipe: Recipe) -> dict[str, Any]:
    """What a step is said to have produced, but for the language model that writes it."""
    return recipe.results.model_dump(exclude={"writer", "dropout"})


def codebook(recipe: Recipe, size: int) -> dict[str, Any]:
    """The section for a codebook of one size, a codebook reused by its content, and the width of its codes."""
    apart = {"size", "sizes", "size_trials", "chosen"}
    keys = recipe.codebook.model_dump(exclude=apart) | {"size": size, "seed": recipe.seed}
    words = {"words"} if recipe.embeddings.words != "all" else set()
    keys["wording"] = recipe.embeddings.model_dump(include={"choices", "closing", *words})  # codebook.json records them
    if recipe.codebook.reuse:
        saved = Path(recipe.codebook.reuse)
        keys["reuse"] = [file_hash(saved / name) for name in ("codebook.safetensors", "codebook.json")]
    return keys | {"width": width(recipe)}


def width(recipe: Recipe) -> str:
    """What fixes the width of a code."""
    return f"{recipe.codebook.dimension}:{model_hash(recipe.backbone.model)}"


def size_trial(recipe: Recipe, method: Method, size: int) -> dict[str, Any]:
    """What the answers of a size's trial depend on besides its traces and the questions."""
    greedy = recipe.evaluate.model_copy(update={"temperature": 0.0, "endpoints": {}})  # no server answers for a trial
    facts = {"training": training(recipe, recipe.finetune, method), "asking": evaluation(recipe, method, greedy)}
    return facts | {"size": size, "trials": recipe.codebook.size_trials.model_dump()}


def training(recipe: Recipe, section: Finetune, method: Method) -> dict[str, Any]:
    """What a method's weights depend on besides its rows."""
    chosen = section.resolved(method.name, method.training)
    tried = bool(section.tried(method.name, method.training))
    read = {
        "learning_rates": tried,
        "trial_epochs": tried,
        "lora": section.adaptation == "lora",
        "min_lr_ratio": chosen.lr_scheduler_type == "cosine",
        "functional_token_loss_weight": method.functional,
        "min_steps": chosen.epochs == "auto",
        "new_token_lr_multiplier": method.functional or bool(method.tokens),
        "min_well_formed": method.well_formed("") is not None,
    }
    apart = {"overrides", "save_steps", "report_to"} | {name for name, is_read in read.items() if not is_read}
    override = section.overrides.get(method.name)
    keys: dict[str, Any] = {
        "finetune": section.model_dump(exclude=apart),
        "override": None if override is None else override.model_dump(exclude_none=True),
        "seed": recipe.seed,
    }
    keys["backbone"] = recipe.backbone.model_dump(include={"dtype", "attn_implementation", "empty_system"}) | {
        "content": model_hash(recipe.backbone.model, recipe.backbone.revision)
    }
    if method.functional and recipe.results.dropout:
        keys["dropout"] = recipe.results.dropout
    if method.functional:
        keys["vocabulary"] = recipe.vocabulary.model_dump()
    return keys | ({"method": method.taught_by} if method.taught_by else {})


def rewarding(recipe: Recipe, method: Method) -> dict[str, Any]:
    """What the weights of a variant trained by reward depend on besides the questions and the model that it starts from."""
    assert method.reward is not None
    function = method.reward.function
    return {
        "method": method.taught_by,
        "function": None if function is None else file_hash(user_path(function)),
        "finetune": recipe.finetune.model_dump(include={"adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "bf16"}),
        "backbone": recipe.backbone.model_dump(include={"dtype", "attn_implementation", "empty_system"}),
        "evaluate": recipe.evaluate.model_dump(include={"batch_size", *method.caps}),
        "seed": recipe.seed,
    }


def preparing(recipe: Recipe, method: Method) -> dict[str, Any]:
    """What a method's preparation depends on besides the rationales: nothing of how it is trained then."""
    content = model_hash(recipe.backbone.model, recipe.backbone.revision)
    backbone = {"content": content, "dtype": recipe.backbone.dtype}
    taught = {name: value for name, value in method.taught_by.items() if name != "preset"}
    keys = {"method": taught, "seed": recipe.seed, "backbone": backbone, "recipe": method.prepared_by(recipe)}
    if method.needs():
        keys |= _engine(recipe.evaluate)
    return keys | ({"reads": {name: model_hash(name) for name in method.reads}} if method.reads else {})


def _engine(section: Evaluate) -> dict[str, str]:
    """The engine, where it is not transformers."""
    return {} if section.engine == "transformers" else {"engine": section.engine}


def answering(recipe: Recipe, section: Evaluate, caps: Iterable[str]) -> dict[str, Any]:
    """What single answers depend on besides the model and the question; ``caps`` are the keys of caps that are read."""
    read = {"temperature", "top_p"} if section.temperature > 0 else {"temperature"}
    return {
        "evaluate": section.model_dump(include=read | set(caps)),
        "backbone": recipe.backbone.model_dump(include={"dtype", "attn_implementation", "empty_system"}),
        "seed": recipe.seed,
    }


def evaluation(recipe: Recipe, method: Method, section: Evaluate) -> dict[str, Any]:
    """What the rows of an evaluation depend on besides the questions and the model. How many are decoded at once is part of it,
    because padding changes rounding; a server gets neither that nor the backbone's keys."""
    more = section.model_dump(include={"runs"} if section.temperature > 0 else set())
    keys = answering(recipe, section, method.caps) | asking_as([method])
    if method.name not in section.endpoints:
        more |= {"batch_size": section.batch_size} | _engine(section)
    keys["evaluate"] |= more
    return _as_served(keys, recipe, method, section)


def _as_served(keys: dict[str, Any], recipe: Recipe, method: Method, section: Evaluate) -> dict[str, Any]:
    """The keys with the server that answers for a method, if one does, which gets none of the backbone's."""
    if (served := section.endpoints.get(method.name)) is None:
        return keys
    keys["evaluate"]["endpoint"] = served.model_dump(include={"url", "model"})
    if (cap := section.served_cap(method.name)) is not None:
        keys["evaluate"] = {name: value for name, value in keys["evaluate"].items() if name not in method.caps} | {"cap": cap}
    return keys | {"backbone": recipe.vocabulary.model_dump(include={"delimiters"}) if method.functional else {}}


def checking(recipe: Recipe, method: Method) -> dict[str, Any]:
    """What the rows of a method's check depend on; they are always greedy."""
    return _greedy(recipe, method, {"batch_size", "check_questions"})


def probing(recipe: Recipe, method: Method, names: Sequence[str]) -> dict[str, Any]:
    """What the rows of a method's probes depend on: ``names`` are those that are done to it. They are always greedy."""
    how: dict[str, Any] = {"names": list(names)} | ({"results": recipe.evaluate.probes.results} if method.functional else {})
    return _greedy(recipe, method, {"batch_size"}) | {"probes": how}


def _greedy(recipe: Recipe, method: Method, own: set[str]) -> dict[str, Any]:
    """What greedy answers of a method depend on, by these keys of the section too."""
    greedy = recipe.evaluate.model_copy(update={"temperature": 0.0})
    keys = answering(recipe, greedy, method.caps) | asking_as([method])
    return keys | {"evaluate": keys["evaluate"] | greedy.model_dump(include=own)}


def asking_as(methods: Sequence[Method]) -> dict[str, Any]:
    """The settings or files by which methods build prompts and read outputs; empty if there are none."""
    own = {method.name: method.identity for method in methods if method.identity}
    return {"asking": own} if own else {}


def budget(methods: Iterable[Method], tasks: Mapping[str, Task], section: Evaluate) -> dict[str, Any]:
    """Methods' caps within the one budget, by method and task; empty if it lowers none."""
    if section.max_completion_tokens is None:
        return {}
    caps: dict[str, dict[str, int]] = {}
    for method in methods:
        for name, task in tasks.items():
            left = method.budget(task, section)
            if left < method.cap(task, section):
                caps.setdefault(method.name, {})[name] = left
    return {"budget": caps} if caps else {}


def sampled(section: Evaluate) -> Evaluate | None:
    """The section of the sampled runs next to a greedy evaluation; ``None`` if there are none."""
    if section.temperature > 0 or not section.sampled.runs:
        return None
    return section.model_copy(update=section.sampled.model_dump())


def timing(recipe: Recipe, methods: Sequence[Method], own: set[str]) -> dict[str, Any]:
    """What measured seconds depend on; ``own`` are the section's keys of this measurement."""
    keys = answering(recipe, recipe.evaluate, {cap for method in methods for cap in method.caps})
    keys["evaluate"] |= recipe.evaluate.model_dump(include=own)
    keys["methods"] = [method.name for method in methods]
    keys |= asking_as(methods)
    return keys | {"machine": recipe.backbone.model_dump(include={"device", "threads"})}


def drawn(recipe: Recipe, method: Method) -> dict[str, Any]:
    """What a method's votes depend on besides the model and the question, but for their number."""
    keys = answering(recipe, recipe.evaluate, method.caps) | asking_as([method])
    apart = {name: value for name, value in keys["evaluate"].items() if name not in ("temperature", "top_p")}
    apart |= {} if method.name in recipe.evaluate.endpoints else _engine(recipe.evaluate)
    keys |= {"evaluate": apart, "voting": recipe.evaluate.voting.model_dump(include={"temperature", "top_p"})}
    return _as_served(keys, recipe, method, recipe.evaluate)
