"""``cirf run --dry-run``: what a run would do, with estimates of tokens, memory and disk."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

from cirf.assets import resolve
from cirf.cpu.memory import free_memory
from cirf.distributed import sharded
from cirf.endpoints.requests import asked_by, describe
from cirf.errors import CirfError
from cirf.fitting.cost import GIB, idle, in_hours, operations, parameter_count, shares, speed, training_memory, updates_of
from cirf.methods import learners
from cirf.methods.base import Method
from cirf.rationales.collect import collect
from cirf.rationales.results import write_results
from cirf.rationales.segmentation import cut
from cirf.recipe.schema import Endpoint, Finetune, Recipe
from cirf.records import Example, Problem, Steps, TeacherRationale, Trace
from cirf.stages.context import Context
from cirf.stages.data import drawn
from cirf.stages.rewards import most_tokens
from cirf.store.jsonl import read_rows
from cirf.store.run_folder import StagePlan
from cirf.tasks.loading.leaks import settle
from cirf.tasks.loading.load import load_problems
from cirf.tasks.loading.unusable import Tolerance


def estimate(context: Context, plans: Sequence[StagePlan], processes: int = 1) -> dict[str, Any]:
    """The requested stages with their state, and for each method that they train its rows, tokens, memory and disk. That is an
    upper bound: an input that is made again may be unchanged.

    Problems, rationales and segments are read as the run would read them, in memory; nothing is written to the run's folder.
    Memory is that of a batch of the longest rows, by the formula of `cirf.fitting.cost`, of each of ``processes``; time is that
    of a process on this machine's device, without what they send each other.
    """
    recipe = context.recipe
    stages = [{"stage": plan.name, "state": context.folder.state(plan).state} for plan in plans]
    problems = settle(load_problems(recipe.problems, recipe.seed), recipe.problems.near_duplicates)
    made: dict[str, Any] = {"stages": stages, "problems": {"train": len(problems.train), "validation": len(problems.validation)}}
    made["problems"]["test"] = {name: len(rows) for name, rows in problems.test.items()}
    made["warnings"] = list(problems.report["warnings"])
    if asked := asked_by(recipe):
        made["servers"] = [{"url": one.url, "model": one.model, "api_key_env": one.api_key_env} for one in asked]
    trained = learners(recipe)
    if not trained:
        return made
    reached = {row["stage"] for row in stages}
    again = {row["stage"] for row in stages if row["state"] != "done"}
    to_do = Counter("/".join(name.split("/")[:2]) for name in again)
    if by_reward := _by_reward(context, [one for one in trained if to_do[f"models/{one.name}"]], problems.train):
        made["by_reward"] = by_reward
    made |= _launched(recipe, processes)
    trained = [method for method in trained if method.reward is None]
    taught = []
    if recipe.rationales.source == "teacher" and "teacher" in reached:
        answers = context.folder.folder("teacher") / "answers.jsonl"
        if not answers.exists():
            models = len({endpoint.model for endpoint in recipe.rationales.teacher.endpoints})
            made["asks"] = {"questions": len(problems.train) + len(problems.validation), "models": models}
            return made
        taught = [TeacherRationale.from_dict(row) for row in read_rows(answers)]
    if "segments" not in reached:
        return made
    steps, annotated = _cut(context, problems.train, taught)
    segments = sum(len(row.segments) for row in steps)
    coded = any(name.startswith("codebook-") for name in reached)
    if coded and recipe.codebook.codes > segments and any(method.functional for method in trained):
        raise CirfError(f"codebook.size: {recipe.codebook.codes} codes for {segments} steps; set it to {segments} or fewer")
    made["segments"] = {"rows": len(steps), "steps": segments}
    trained = [method for method in trained if to_do[f"models/{method.name}"] + to_do[f"trials/{method.name}"]]
    if trained:
        made["methods"], made["updates"] = {}, []
        _Trainings(context, made, to_do, _examples(context, problems.train, steps, annotated)).add(trained)
    return made


def _launched(recipe: Recipe, processes: int) -> dict[str, Any]:
    """The processes that train together, whether they share the weights, and the memory that is free for each."""
    from cirf.lm.backbone import pick_device

    made: dict[str, Any] = {"processes": processes, "sharded": sharded(processes)}
    device = pick_device(recipe.backbone.device)
    if (free := free_memory(device)) is not None:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", processes)) if device == "cpu" else 1  # those that share its memory
        made["free_gib"] = round(free / here / GIB, 1)
    return made


def _cut(context: Context, train: Sequence[Problem], taught: Sequence[TeacherRationale]) -> tuple[list[Steps], list[Steps]]:
    """The training rationales in steps, as models are trained on them, and with their notes."""
    recipe = context.recipe
    tolerance = Tolerance(recipe.problems.max_unusable_share)
    collected = collect(train, recipe.rationales, recipe.problems.data, context.tasks, taught, tolerance)
    pieces = cut(collected.rationales, recipe.segments, train)
    used = drawn(recipe, train, [], {row.problem for row in pieces.steps})
    return [row for row in pieces.steps if row.problem in used], [row for row in pieces.annotated if row.problem in used]


def _examples(context: Context, train: Sequence[Problem], steps: Sequence[Steps], annotated: Sequence[Steps]) -> list[Example]:
    recipe = context.recipe
    results = write_results(annotated, train, context.tasks, recipe.results, recipe.problems.data)
    by_id = {problem.id: problem for problem in train}
    examples = []
    for row, found in zip(steps, results, strict=True):
        problem = by_id[row.problem]
        codes = tuple(position % recipe.codebook.codes for position in range(len(row.segments)))
        examples.append(Example(problem, row.segments, Trace(row.problem, row.sample, codes, found, problem.answer)))
    return examples


class _Trainings:
    def __init__(self, context: Context, made: dict[str, Any], to_do: Counter[str], examples: Sequence[Example]) -> None:
        from cirf.lm.backbone import load_tokenizer

        self.context, self.made, self.to_do, self.examples = context, made, to_do, examples
        recipe = context.recipe
        source = resolve(recipe.backbone.model, context.progress)
        self.tokenizer = load_tokenizer(source, recipe.backbone)
        self.sizes = parameter_count(source, recipe)
        names = [f"<cirf_{code:03d}>" for code in range(recipe.codebook.codes)]
        self.tokenizer.add_tokens([*names, "<cirf>", "</cirf>"])
        self.template = self.tokenizer.chat_template

    def add(self, methods: Sequence[Method]) -> None:
        tune = self.context.recipe.finetune
        for method in methods:
            several = len(tune.tried(method.name, method.training)) > 1
            if method.prepares():
                self.made["prepared"] = [*self.made.get("prepared", []), method.name]
                continue  # its rows do not exist yet
            self._add(method, tune.trial_epochs if several else None)

    def _add(self, method: Method, short: float | None) -> None:
        from cirf.lm.training.spec import plan_updates

        recipe, made, name = self.context.recipe, self.made, method.name
        section = recipe.finetune.resolved(name, method.training)
        found = self._measured(method)
        trials = self.to_do[f"trials/{name}"]
        whole = short is None or self.to_do[f"models/{name}"]  # or its short trials alone
        rows, tokens, targets = len(found), sum(map(sum, found)), sum(written for _, written in found)
        updates = updates_of(section, rows)
        if (line := idle(section, made["processes"])) and line not in made["warnings"]:
            made["warnings"].append(line)
        passes = (updates.passes if whole else 0.0) + (short or 0.0) * trials
        work = passes * operations(section, self.sizes, tokens, targets) * shares(section, made["processes"])
        fast = speed(recipe.backbone, section, self.sizes, tokens / max(1, rows))
        made["methods"][name] = {
            "rows": rows,
            "epochs": updates.passes,
            "updates": updates.updates if whole else 0,
            "too_few_updates": bool(whole and updates.too_few),
            "tokens_trained": int(tokens * updates.passes) if whole else 0,
            "target_tokens_mean": round(targets / max(1, rows), 1),
            "training_seconds": round(work / fast),
            "memory_gib": self._memory(section, found),
            "memory_gib_batch_of_one": self._memory(section.model_copy(update={"batch_size": 1}), found),
            "disk_gib": round(_disk(recipe, section, self.sizes, bool(whole)) / GIB, 1),
        }
        if whole:
            alike = next((each for each in made["updates"] if each["summary"] == updates.summary), None)
            if alike is None:
                made["updates"].append(updates.to_dict() | {"methods": [name]})
            else:
                alike["methods"].append(name)
        if short is not None and trials:
            number = plan_updates(rows, section, short).total if rows else 0
            made["methods"][name]["trials"] = {"number": trials, "updates": number, "tokens_trained": int(tokens * short)}

    def _memory(self, section: Finetune, found: Sequence[tuple[int, int]]) -> float:
        """GiB of each process, with rows of so many tokens of the prompt and of the target."""
        longest, longest_target = max(map(sum, found), default=0), max((written for _, written in found), default=0)
        shards = self.made["processes"] if self.made["sharded"] else 1
        needed = training_memory(self.context.recipe.backbone, section, self.sizes, longest, longest_target, shards)
        return round(needed / GIB, 1)

    def _measured(self, method: Method) -> list[tuple[int, int]]:
        """Tokens of the prompt and of the target of each of the method's rows, without those that training drops for their
        length."""
        from cirf.lm.backbone import prompt_text

        tokenizer = self.tokenizer
        tokenizer.chat_template = self.template
        if method.tokens:
            tokenizer.add_tokens(list(method.tokens))
        method.settle(tokenizer, training=True)
        found = []
        for example in self.examples:
            prompt = prompt_text(tokenizer, method.training_prompt(example, self.context.tasks[example.problem.task]))
            given = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
            written = len(tokenizer(method.target(example), add_special_tokens=False)["input_ids"]) + method.ends
            if given + written <= self.context.recipe.finetune.max_length:
                found.append((given, written))
        return found


def _by_reward(context: Context, methods: Sequence[Method], train: Sequence[Problem]) -> dict[str, Any]:
    """For each variant to train by reward: its updates, the least number of sampled answers, their cap and the time that all
    take at the cap, without prompts; the memory of its two models, of the trained weights and of one pass's logits."""
    from cirf.cpu.number_formats import computed_in
    from cirf.lm.backbone import pick_device
    from cirf.lm.training.reward import LOGITS

    recipe = context.recipe
    a_weight = 4.0 if computed_in(recipe.backbone.dtype, pick_device(recipe.backbone.device)) == "float32" else 2.0
    found: dict[str, Any] = {}
    for method in methods:
        how = method.reward
        if how is None:
            continue
        sizes = parameter_count(resolve(recipe.backbone.model, context.progress), recipe)
        full, head = how.adaptation == "full", sizes["width"] * sizes["vocabulary"]
        trained = sizes["parameters"] if full else sizes["lora_per_rank"] * how.lora.rank
        held = sizes["parameters"] * (a_weight + (4.0 if full else a_weight)) + a_weight * head  # a tied head is packed apart
        memory = held + 16.0 * trained + 5 * 4.0 * LOGITS
        answers, cap = how.max_steps * how.questions * how.num_generations, most_tokens(context, method, train)
        work = (8.0 if full else 6.0) * answers * cap * (sizes["inside"] + head)  # two for sampling, the others for gradients
        section = recipe.finetune.model_copy(update={"adaptation": how.adaptation, "batch_size": how.questions})
        found[method.name] = {
            "updates": how.max_steps,
            "answers": answers,
            "cap": cap,
            "seconds_at_cap": round(work / speed(recipe.backbone, section, sizes, how.num_generations)),
            "memory_gib": round(memory / GIB, 1),
        }
    return found


def _disk(recipe: Recipe, section: Finetune, sizes: dict[str, int], saves: bool) -> float:
    saved = (4.0 if recipe.backbone.dtype == "float32" else 2.0) * sizes["parameters"]
    trained = sizes["parameters"] if section.adaptation == "full" else sizes["lora_per_rank"] * section.lora.rank
    return saves * saved + 2 * 12.0 * trained  # two checkpoints exist while the newer is written


def print_estimate(made: dict[str, Any]) -> None:
    words = {"done": "done", "part": "will continue", "stale": "will be redone", "open": "to do"}
    for row in made["stages"]:
        print(f"{row['stage']:28} {words[row['state']]}")
    tests = ", ".join(f"{name} {count:,}" for name, count in made["problems"]["test"].items())
    print(f"problems: {made['problems']['train']:,} to train on, {made['problems']['validation']:,} held out; test: {tests}")
    for warning in made["warnings"]:
        print(f"warning: {warning}")
    for server in made.get("servers", ()):
        print(describe(Endpoint(**server)))
    each = _a_process(made)
    for name, row in made.get("methods", {}).items():
        work = f"{row['tokens_trained']:,} tokens in {row['updates']:,} updates"
        if "trials" in row:
            number = row["trials"]["number"]
            size = "of {tokens_trained:,} tokens in {updates:,} updates each".format(**row["trials"])
            trials = f"{number} trial{'s' * (number > 1)} {size}"
            work = f"{work} after {trials}" if row["updates"] else trials
        print(
            f"{name}: {row['rows']:,} rows, {work}, {row['target_tokens_mean']} target tokens a row;"
            f" about {in_hours(row['training_seconds'])} at the present load, {row['memory_gib']} GiB of memory"
            f"{each}, {row['disk_gib']} GiB of disk"
        )
    if len(trained := made.get("methods", {})) > 1:
        print(f"all {len(trained)} trainings: about {in_hours(sum(row['training_seconds'] for row in trained.values()))}")
    _print_too_large(made)
    for name, row in made.get("by_reward", {}).items():
        answers = f"{row['answers']:,} sampled answers or more in {row['updates']:,} updates"
        taken = f"about {in_hours(row['seconds_at_cap'])} on this machine if each has {row['cap']} tokens, the most"
        print(f"{name}: trained by reward with {answers}; {taken}; {row['memory_gib']} GiB of memory")
    planned = made.get("updates", [])
    for each in planned:  # usually one for all methods
        line: str = each["summary"]
        print(line if len(planned) == 1 else f"{', '.join(each['methods'])}: {line.removeprefix('updates: ')}")
    if "asks" in made:
        asks = made["asks"]
        models = f"{asks['models']} model{'s' if asks['models'] != 1 else ''}"
        print(f"{asks['questions']:,} questions go to {models}; the later stages depend on their answers")
    elif not made.get("methods") and not made.keys() & {"prepared", "by_reward"}:
        trains = any(row["stage"].startswith(("models/", "trials/")) for row in made["stages"])
        print("nothing is left to train" if trains else "nothing is trained")
    for name in made.get("prepared", ()):
        print(f"{name}: its training rows come from the stage prepared/{name}; their number is not known yet")


def _a_process(made: dict[str, Any]) -> str:
    """What follows a number of GiB where several processes train together."""
    if made.get("processes", 1) == 1:
        return ""
    return f" a process, sharded over {made['processes']}" if made["sharded"] else " a process"


def _print_too_large(made: dict[str, Any]) -> None:
    """Warnings of trainings that need more memory than is free, with what to do: smaller batches, if those would fit."""
    free, methods = made.get("free_gib", math.inf), made.get("methods", {})
    large = [name for name, row in methods.items() if row["memory_gib"] > free]
    never = [name for name in large if methods[name]["memory_gib_batch_of_one"] > free]
    lower = "; lower finetune.batch_size and raise finetune.gradient_accumulation_steps by the same factor"
    shard = ", even with one row a forward pass; train a smaller model, or shard the training, if the method allows it, over "
    shard += "more GPUs" if made.get("sharded") else "several GPUs (ACCELERATE_USE_FSDP=true; --processes N estimates it)"
    for names, advice in (([name for name in large if name not in never], lower), (never, shard)):
        if names:
            each = " for each process" if made["processes"] > 1 else ""
            print(f"WARNING: {', '.join(names)}: more memory than is free ({free} GiB{each}){advice}")
