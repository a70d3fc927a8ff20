"""What of the recipe decides the content of a stage: all it reads, and nothing that leaves its artefact as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.fingerprints import file_hash, model_hash

if TYPE_CHECKING:
    from cirf.methods.method import Method
    from cirf.recipe import Asked, Evaluate, Finetune, Override, Recipe, Section


def drawing(recipe: Recipe) -> dict[str, Any]:
    """Of the segments: which rows are drawn, where any are."""
    rows = {entry.name or entry.task: entry.rows for entry in recipe.problems.tasks}
    return {"rows": rows, "seed": recipe.seed, "validation": recipe.problems.validation} if any(rows.values()) else {}


def problems(recipe: Recipe) -> dict[str, Any]:
    """Which questions there are, but for their files, and which rows are let pass: runs older than this key had none of these."""
    return {name: value for name, value in _since(recipe.problems, unusable=0.05).items() if name != "data"}


def asking(section: Asked) -> dict[str, Any]:
    """What decides the answers: which models are asked how, and not where they run or how patiently."""
    models = list(dict.fromkeys(endpoint.model for endpoint in section.endpoints))
    return section.model_dump(exclude={"endpoints", "retries", "timeout", "prompt"}) | {"models": models}


def embedding(recipe: Recipe) -> dict[str, Any]:
    """The section, the embedding model, and whether questions are embedded too."""
    keys = _since(recipe.embeddings, choices="keep", closing="keep") | {"content": model_hash(recipe.embeddings.model)}
    return keys | {"questions": recipe.codebook.representation == "question_centered"}


def segments(recipe: Recipe) -> dict[str, Any]:
    """How rationales are cut."""
    return _since(recipe.segments, options="each")


def codebook(recipe: Recipe, size: int) -> dict[str, Any]:
    """The section for a codebook of one size, a codebook taken over by its content, and the width of its codes."""
    keys = recipe.codebook.model_dump(exclude={"size", "sizes"}) | {"size": size, "seed": recipe.seed}
    read = {name: how for name in ("choices", "closing") if (how := getattr(recipe.embeddings, name)) != "keep"}
    if read:  # codebook.json tells of them; that it tells of numbers is older than this key
        keys["wording"] = read
    if recipe.codebook.reuse:
        saved = Path(recipe.codebook.reuse)
        keys["reuse"] = [file_hash(saved / name) for name in ("codebook.safetensors", "codebook.json")]
    return keys | {"width": width(recipe)}


def width(recipe: Recipe) -> str:
    """What fixes the width of a code."""
    return f"{recipe.codebook.dimension}:{model_hash(recipe.backbone.model)}"


def training(recipe: Recipe, section: Finetune, method: Method) -> dict[str, Any]:
    """What a method's weights depend on besides its rows."""
    chosen = section.resolved(method.name, method.training)
    tried = bool(section.tried(method.name, method.training))
    read = {
        "trials": tried,
        "trial_epochs": tried and section.trial_epochs is not None,
        "lora": section.adaptation == "lora",
        "weights": section.weights != "saved" and not method.frozen,
        "min_lr_ratio": chosen.schedule == "cosine",
        "functional_weight": chosen.functional_weight != 1 and method.functional,
        "updates": chosen.epochs == "auto",
        "rows_lr_ratio": chosen.rows_lr_ratio != 1 and (method.functional or bool(method.tokens)),
    }
    apart = {"overrides", "save_every", "report_to", "give_up"} | {name for name, is_read in read.items() if not is_read}
    override = section.overrides.get(method.name)
    keys = {
        "finetune": section.model_dump(exclude=apart),
        "override": None if override is None else _given(override),
        "seed": recipe.seed,
    }
    keys["backbone"] = recipe.backbone.model_dump(include={"dtype", "attention", "empty_system"}) | {
        "content": model_hash(recipe.backbone.model, recipe.backbone.revision)
    }
    if method.functional:
        keys["vocabulary"] = _since(recipe.vocabulary, like=None, opening="written")
    return keys | ({"method": method.taught_by} if method.taught_by else {})


def _since(section: Section, **before: str | float | None) -> dict[str, Any]:
    """A section without the keys that are later than some runs and stand at what these had."""
    return section.model_dump(exclude={name for name, value in before.items() if getattr(section, name) == value})


def _given(override: Override) -> dict[str, Any]:
    """The keys that an override sets; the first two always."""
    return override.model_dump(include={"learning_rate", "epochs"}) | override.model_dump(exclude_none=True)


def preparing(recipe: Recipe, method: Method) -> dict[str, Any]:
    """What a method's preparation depends on besides the rationales: nothing of how it is trained then."""
    content = model_hash(recipe.backbone.model, recipe.backbone.revision)
    backbone = {"content": content, "dtype": recipe.backbone.dtype}
    taught = {name: value for name, value in method.taught_by.items() if name != "preset"}
    keys = {"method": taught, "seed": recipe.seed, "backbone": backbone, "recipe": method.prepared_by(recipe)}
    return keys | ({"reads": {name: model_hash(name) for name in method.reads}} if method.reads else {})


def answering(recipe: Recipe, section: Evaluate, caps: Iterable[str]) -> dict[str, Any]:
    """What single answers depend on besides the model and the question; ``caps`` are the keys of caps that are read."""
    read = {"temperature", "top_p"} if section.temperature > 0 else {"temperature"}
    read |= {"weights"} if section.weights != "saved" else set()
    return {
        "evaluate": section.model_dump(include=read | set(caps)),
        "backbone": recipe.backbone.model_dump(include={"dtype", "attention", "empty_system"}),
        "seed": recipe.seed,
    }


def evaluation(recipe: Recipe, method: Method, section: Evaluate) -> dict[str, Any]:
    """What the rows of an evaluation depend on; how many are decoded at once is part of it, for padded rows round otherwise."""
    many = section.model_dump(include={"batch_size"} | ({"runs"} if section.temperature > 0 else set()))
    keys = answering(recipe, section, method.caps) | asking_as([method])
    return keys | {"evaluate": keys["evaluate"] | many}


def checking(recipe: Recipe, method: Method) -> dict[str, Any]:
    """What the rows of a method's check depend on; they are always greedy."""
    greedy = recipe.evaluate.model_copy(update={"temperature": 0.0})
    keys = answering(recipe, greedy, method.caps) | asking_as([method])
    return keys | {"evaluate": keys["evaluate"] | greedy.model_dump(include={"batch_size", "check"})}


def probing(recipe: Recipe, method: Method, names: Sequence[str]) -> dict[str, Any]:
    """What the rows of a method's probes depend on: ``names`` are those that are done to it. They are always greedy."""
    greedy = recipe.evaluate.model_copy(update={"temperature": 0.0})
    keys = answering(recipe, greedy, method.caps) | asking_as([method])
    how: dict[str, Any] = {"names": list(names)} | ({"results": greedy.probes.results} if method.functional else {})
    return keys | {"evaluate": keys["evaluate"] | greedy.model_dump(include={"batch_size"}), "probes": how}


def asking_as(methods: Sequence[Method]) -> dict[str, Any]:
    """What methods of settings or files of their own ask and read by; nothing where there are none."""
    own = {method.name: method.identity for method in methods if method.identity}
    return {"asking": own} if own else {}


def sampled(section: Evaluate) -> Evaluate | None:
    """The section of the sampled runs that stand beside a greedy evaluation; ``None`` where there are none."""
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
    return keys | {"evaluate": apart, "voting": recipe.evaluate.voting.model_dump(include={"temperature", "top_p"})}
