"""``cirf run --dry-run``: what a run would do, and about how many tokens, how much memory and disk it takes."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.errors import CirfError
from cirf.methods import learners

if TYPE_CHECKING:
    from cirf.recipe import Backbone, Finetune, Recipe
    from cirf.stages.context import Context
    from cirf.store import Plan, RunFolder

GIB = 2**30


def estimate(context: Context, plans: Sequence[Plan]) -> dict[str, Any]:
    """The stages that are asked for with their state, and for each method that they train its rows, tokens, memory and disk. That
    is the most that a run would train: an input that is made again may come out as it was.

    Problems, rationales and segments are read as the run would read them, in memory; nothing is written to the run's folder.
    Memory is weights (and two bytes more of each that is multiplied in eight bits) + gradients + Adam's two moments, for a batch
    of the longest rows three float32 logits a target token and word of the vocabulary (with their gradients), and of
    activations, for a token and layer, about ten vectors as wide as the model and four as wide as its feed-forward part, in the
    number format that is computed with; on a CPU the last two `_KEPT` times: an estimate to plan by and not a promise.
    """
    from cirf.assets import resolve
    from cirf.fitting import updates_of
    from cirf.lm import backbone
    from cirf.lm.finetune import plan_updates
    from cirf.rationales.collect import collect
    from cirf.rationales.results import write_results
    from cirf.rationales.segmentation import cut
    from cirf.records import Example, Taught, Trace
    from cirf.rows import read_rows
    from cirf.stages.data import drawn
    from cirf.tasks.leaks import settle
    from cirf.tasks.load import load_problems
    from cirf.tasks.unusable import Tolerance

    recipe = context.recipe
    stages = [{"stage": plan.name, "state": context.folder.standing(plan).state} for plan in plans]
    problems = settle(load_problems(recipe.problems, recipe.seed), recipe.problems.near)
    made: dict[str, Any] = {"stages": stages, "problems": {"train": len(problems.train), "validation": len(problems.validation)}}
    made["problems"]["test"] = {name: len(rows) for name, rows in problems.test.items()}
    trained = learners(recipe)
    if not trained:
        return made
    reached = {row["stage"] for row in stages}
    again = _made_again(context.folder, plans, stages)
    taught = []
    if recipe.rationales.source == "teacher" and "teacher" in reached:
        answers = context.folder.folder("teacher") / "answers.jsonl"
        if not answers.exists():
            models = len({endpoint.model for endpoint in recipe.rationales.teacher.endpoints})
            if "teacher" in again:  # an archive has no answers, and what is done needs none
                made["asks"] = {"questions": len(problems.train) + len(problems.validation), "models": models}
            return made
        taught = [Taught.from_dict(row) for row in read_rows(answers)]
    if "segments" not in reached:
        return made
    collected = collect(
        problems.train, recipe.rationales, recipe.problems.data, context.tasks, taught, Tolerance(recipe.problems.unusable)
    )
    pieces = cut(collected.rationales, recipe.segments, problems.train)
    used = drawn(recipe, problems.train, [], {row.problem for row in pieces.steps})
    steps = [row for row in pieces.steps if row.problem in used]
    segments = sum(len(row.segments) for row in steps)
    coded = any(name.startswith("codebook-") for name in reached)
    if coded and recipe.codebook.size > segments and any(method.functional for method in trained):
        raise CirfError(f"codebook.size: {recipe.codebook.size} codes for {segments} steps; set it to {segments} or fewer")
    made["segments"] = {"rows": len(steps), "steps": segments}
    to_do = Counter("/".join(name.split("/")[:2]) for name in again)
    trained = [method for method in trained if to_do[f"models/{method.name}"] + to_do[f"trials/{method.name}"]]
    if not trained:
        return made
    made["methods"], made["updates"] = {}, []
    annotated = [row for row in pieces.annotated if row.problem in used]
    results = write_results(annotated, problems.train, context.tasks, recipe.results, recipe.problems.data)
    by_id = {problem.id: problem for problem in problems.train}
    source = resolve(recipe.backbone.model, context.progress)
    tokenizer = backbone.load_tokenizer(source, recipe.backbone)
    sizes = parameter_count(source, recipe)
    names = [f"<cirf_{code:03d}>" for code in range(recipe.codebook.size)]
    tokenizer.add_tokens([*names, "<cirf>", "</cirf>"])
    template = tokenizer.chat_template
    for method in trained:
        name, section = method.name, recipe.finetune.resolved(method.name, method.training)
        several = len(recipe.finetune.tried(name, method.training)) > 1
        short = recipe.finetune.trial_epochs if several else None
        trials = to_do[f"trials/{name}"]
        trainings = trials if several and short is None else 1
        if not trainings:
            continue  # one of its trials is chosen
        if method.prepares():
            made["prepared"] = [*made.get("prepared", []), name]
            continue  # its rows are not there before they are made
        tokenizer.chat_template = template
        if method.tokens:
            tokenizer.add_tokens(list(method.tokens))
        method.settle(tokenizer, training=True)
        rows = tokens = target_tokens = longest = longest_target = 0
        for row, found in zip(steps, results, strict=True):
            problem = by_id[row.problem]
            codes = tuple(position % recipe.codebook.size for position in range(len(row.segments)))
            example = Example(problem, row.segments, Trace(row.problem, row.sample, codes, found, problem.answer))
            prompt = backbone.prompt_text(tokenizer, method.training_prompt(example, context.tasks[problem.task]))
            asked = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
            written = len(tokenizer(method.target(example), add_special_tokens=False)["input_ids"]) + method.ends
            if asked + written > recipe.finetune.max_length:
                continue  # training drops it too
            rows, tokens, target_tokens = rows + 1, tokens + asked + written, target_tokens + written
            longest, longest_target = max(longest, asked + written), max(longest_target, written)
        whole = short is None or to_do[f"models/{name}"]  # or its short trials alone
        made_of_rows = updates_of(section, rows)
        passes = made_of_rows.passes
        made["methods"][name] = {
            "rows": rows,
            "epochs": passes,
            "updates": made_of_rows.updates if whole else 0,
            "too_few_updates": bool(whole and made_of_rows.too_few),
            "tokens_trained": int(tokens * passes) if whole else 0,
            "trainings": trainings,
            "target_tokens_mean": round(target_tokens / max(1, rows), 1),
            "memory_gib": round(_memory(recipe.backbone, section, sizes, method.frozen, longest, longest_target) / GIB, 1),
            "disk_gib": round(_disk(recipe, section, sizes, trainings if whole else 0) / GIB, 1),
        }
        if whole:
            alike = next((each for each in made["updates"] if each["told"] == made_of_rows.told), None)
            if alike is None:
                made["updates"].append(made_of_rows.to_dict() | {"methods": [name]})
            else:
                alike["methods"].append(name)
        if short is not None and trials:
            updates = plan_updates(rows, section, short).total if rows else 0
            made["methods"][name]["trials"] = {"number": trials, "updates": updates, "tokens_trained": int(tokens * short)}
    return made


def parameter_count(source: str | Path, recipe: Recipe) -> dict[str, int]:
    """Parameters, layers and width of a model, from its configuration alone."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(
        source, revision=recipe.backbone.revision, trust_remote_code=recipe.backbone.trust_remote_code
    )
    with torch.device("meta"):
        build: Any = AutoModelForCausalLM.from_config
        model = build(config)
    linear = sum(
        module.in_features + module.out_features
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name
    )
    text = config.get_text_config()
    count = sum(parameter.numel() for parameter in model.parameters())
    inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size  # a list where layers are of several widths
    shape = {"layers": text.num_hidden_layers, "width": text.hidden_size, "vocabulary": text.vocab_size}
    shape["inner"] = max(inner) if isinstance(inner, (list, tuple)) else inner
    return {"parameters": count, "lora_per_rank": linear} | shape


_KEPT = 3.0
"""About what a training's process holds on a CPU at most, weights apart, by what it computes with at once: glibc keeps freed
memory until it is handed back (jemalloc, too, with which nothing was measured). With LoRA on three methods of a model of half a
billion parameters: 2.8, 2.8 and 3.2."""


def _memory(
    backbone: Backbone, section: Finetune, sizes: dict[str, int], frozen: bool, longest: int, longest_target: int
) -> float:
    from cirf.lm.backbone import pick_device
    from cirf.lm.int8_products import weight_bits
    from cirf.lm.number_formats import computed_in

    device = pick_device(backbone.device)
    tokens = section.batch_size * longest
    own = computed_in(backbone.dtype, device)
    cast = section.bf16 and computed_in("bfloat16", device) == "bfloat16"
    narrow = cast or (section.adaptation == "lora" and own != "float32")
    activations = (2.0 if narrow else 4.0) * tokens * sizes["layers"] * (10 * sizes["width"] + 4 * sizes["inner"])
    if section.gradient_checkpointing:
        activations /= sizes["layers"] ** 0.5
    activations += 3 * 4.0 * section.batch_size * longest_target * sizes["vocabulary"]
    if device == "cpu" and platform.libc_ver()[0] == "glibc":
        activations *= _KEPT
    if section.adaptation == "full":
        return (16.0 + (2.0 if narrow else 0.0)) * sizes["parameters"] + activations
    held = 4.0 if own == "float32" else 2.0
    if section.weights == "int8" and not frozen and weight_bits(device, cast or own == "bfloat16"):
        held += 2.0
    return held * sizes["parameters"] + 16.0 * sizes["lora_per_rank"] * section.lora.rank + activations


def _disk(recipe: Recipe, section: Finetune, sizes: dict[str, int], trainings: int) -> float:
    saved = (4.0 if recipe.backbone.dtype == "float32" else 2.0) * sizes["parameters"]
    trained = sizes["parameters"] if section.adaptation == "full" else sizes["lora_per_rank"] * section.lora.rank
    return trainings * saved + 2 * 12.0 * trained  # two checkpoints stand while the newer is written


def _made_again(folder: RunFolder, plans: Sequence[Plan], stages: Sequence[dict[str, Any]]) -> set[str]:
    """The names of stages that are not done, and of those that an archive left without files which these read."""
    from cirf.integrity import read_by

    names = {row["stage"] for row in stages if row["state"] != "done"}
    for plan in reversed(plans):  # a stage stands behind all that it reads
        if plan.name in names:
            names |= {before.name for before in read_by(plan) if folder.left_out(before.name)}
    return names


def print_estimate(made: dict[str, Any]) -> None:
    """The estimate for people."""
    words = {"done": "done", "part": "goes on", "stale": "again", "open": "to do"}
    for row in made["stages"]:
        print(f"{row['stage']:28} {words[row['state']]}")
    tests = ", ".join(f"{name} {count:,}" for name, count in made["problems"]["test"].items())
    print(f"problems: {made['problems']['train']:,} to train on, {made['problems']['validation']:,} held out; test: {tests}")
    for name, row in made.get("methods", {}).items():
        work = f"{row['tokens_trained']:,} tokens in {row['updates']:,} updates"
        if row["trainings"] > 1:
            work += f" in each of {row['trainings']} trainings"
        if "trials" in row:
            number = row["trials"]["number"]
            size = "of {tokens_trained:,} tokens in {updates:,} updates each".format(**row["trials"])
            trials = f"{number} trial{'s' * (number > 1)} {size}"
            work = f"{work} after {trials}" if row["updates"] else trials
        print(
            f"{name}: {row['rows']:,} rows, {work}, {row['target_tokens_mean']} tokens a target;"
            f" about {row['memory_gib']} GiB of memory, {row['disk_gib']} GiB of disk"
        )
    told = made.get("updates", [])
    for each in told:  # as a rule one for all methods
        line: str = each["told"]
        print(line if len(told) == 1 else f"{', '.join(each['methods'])}: {line.removeprefix('updates: ')}")
    if "asks" in made:
        asks = made["asks"]
        models = f"{asks['models']} model{'s' if asks['models'] != 1 else ''}"
        print(f"{asks['questions']:,} questions go to {models}; what follows depends on their answers")
    elif not made.get("methods") and "prepared" not in made:
        trains = any(row["stage"].startswith(("models/", "trials/")) for row in made["stages"])
        print("nothing is left to train" if trains else "nothing is trained")
    for name in made.get("prepared", ()):
        print(f"{name}: what it is trained on is made in a stage of its own, prepared/{name}; how much that is, is not known yet")
