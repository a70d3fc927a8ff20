"""A run: the stages in order, each knowing nothing of the others but their folders.

::

    problems -> rationales -> segments -> embeddings -> codebook-K --.
                                   `----> results -------------------+-> traces -> models/METHOD -> evaluation/METHOD
                                                              all models ---> latency, throughput

Methods that prepare rows of their own do so in between: segments -> prepared/METHOD -> models/METHOD.

Where a recipe asks for votes: models/METHOD -> votes/METHOD -> voting/METHOD, and voting-latency/METHOD from the models.

Methods whose traces are compressed (3.4) lie one turn further on: traces and models/cirf_full -> compression/SELECTOR ->
compressed/METHOD -> models/METHOD.

Before an evaluation checks/METHOD answers some held-out questions, to tell a model that does not work at all. Beside a greedy
evaluation sampled/METHOD holds the sampled runs that a recipe asks for, and probes/METHOD the answers behind
perturbed thoughts, traces or pauses. A method with a saved model
(``models``) needs none of the stages that train. With ``finetune.trials`` a model is chosen from ``trials/METHOD/RATE``, one
training a learning rate, or trained at the rate that was best there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.archive import open_archive
from cirf.compression.search import Selector
from cirf.distributed import first_on_main, is_main, settled, world_size
from cirf.errors import CirfError
from cirf.files import load_object, to_json, write_atomic
from cirf.fingerprints import model_hash, problem_files, rationale_files, result_files, teacher_prompt, writer_prompt
from cirf.integrity import read_by, set_damaged_aside, stands
from cirf.methods import SCORED_BY, get, learners
from cirf.methods.method import Method
from cirf.recipe import Finetune
from cirf.stages import (
    checks,
    codes,
    compress,
    data,
    keys,
    lineage,
    model_checks,
    models,
    openings,
    prepare,
    probes,
    scores,
    timing,
    votes,
)
from cirf.stages.context import Context
from cirf.store import Part, Plan, RunFolder

if TYPE_CHECKING:
    from cirf.tasks.task import Task

Stage = Callable[..., Mapping[str, Any]]


def plans(context: Context) -> list[Plan]:
    """Every stage the recipe asks for, in the order in which they run."""
    recipe = context.recipe
    methods = [get(name, recipe) for name in recipe.methods]
    taught = learners(recipe)
    coded = any(method.functional for method in taught) or bool(recipe.codebook.sizes)
    seed = {"seed": recipe.seed}
    rules = {"rules": {name: task.rules for name, task in context.tasks.items()}}
    asked_by = {"tasks": {name: _asks(task) for name, task in context.tasks.items()}}
    wordings = {"wordings": {name: task.wordings for name, task in context.tasks.items()}}
    size = recipe.codebook.size

    def plan(
        name: str,
        section: Mapping[str, Any],
        inputs: Mapping[str, Plan | Part | str],
        make: Stage,
        *more: Any,
        version: int = 1,
        divided: bool = False,
    ) -> Plan:
        return Plan(name, section, inputs, partial(make, context, *more), version, divided=divided)

    evaluations: dict[str, Plan] = {}
    stages: list[Plan] = []
    steps: dict[str, Plan | Part | str] = {}
    functional: dict[str, Plan | Part | str] = {}
    drawn = keys.problems(recipe) | seed | rules
    learning = {"trains": lineage.trains(recipe), "answering": [origin.methods for origin in lineage.origins(recipe)]}
    outside = problem_files(recipe) | lineage.lineage_files(recipe)
    problems = plan("problems", drawn | learning, outside, data.problems, version=4)
    learnt, tested = Part(problems, ("train.jsonl", "validation.jsonl")), Part(problems, ("test/",))
    stages.append(problems)
    if coded or taught:
        found: dict[str, Plan | Part | str] = {"problems": learnt, **rationale_files(recipe)}
        if recipe.rationales.source == "teacher":
            asking = keys.asking(recipe.rationales.teacher) | recipe.rationales.model_dump(include={"per_problem", "check"})
            asking |= {"segments": keys.segments(recipe), "template": teacher_prompt(recipe)} | seed | rules
            asked_of = plan("teacher", asking, {"problems": learnt}, data.teacher)
            stages.append(asked_of)
            found["teacher"] = asked_of
        gathered = recipe.rationales.model_dump(exclude={"teacher"})
        rationales = plan("rationales", gathered | rules, found, data.rationales, version=2)
        cut = keys.segments(recipe) | keys.drawing(recipe)
        segments = plan("segments", cut, {"problems": learnt, "rationales": rationales}, data.segments)
        steps = {"problems": learnt, "segments": segments}
        stages += [rationales, segments]
    if coded or any(method.results for method in taught):
        written = recipe.results.model_dump(exclude={"writer"}) | rules
        if recipe.results.by == "llm":
            written |= seed | {"writer": keys.asking(recipe.results.writer), "template": writer_prompt(recipe)}
        results = plan("results", written, steps | result_files(recipe), data.results, version=3)
        stages.append(results)
    if coded:
        embeddings = plan("embeddings", keys.embedding(recipe), steps, codes.embeddings, divided=True)
        vectors = steps | {"embeddings": embeddings}
        sizes = tuple(dict.fromkeys((size, *recipe.codebook.sizes)))
        books = {k: plan(f"codebook-{k}", keys.codebook(recipe, k), vectors, codes.codebook, k, version=3) for k in sizes}
        traces = plan("traces", {}, {"problems": learnt, "results": results, "codebook": books[size]}, data.traces)
        functional = {"traces": traces, "codebook": books[size]}
        stages += [embeddings, *books.values(), traces]
    scoring = _training(context, get(SCORED_BY, recipe), asked_by, steps | functional) if coded else []
    answered: dict[str, Plan | Part | str] = {"problems": tested}
    trained: dict[str, Plan] = {}

    def train(method: Method) -> Plan:
        """The stage that ends in the model of a method, after those that it rests on."""
        if method.name in trained:
            return trained[method.name]
        inputs = steps | (functional if method.functional else {}) | ({"results": results} if method.results else {})
        if method.prepares():
            judges = {f"model/{name}": answers_with(get(name, recipe)) for name in method.needs()}
            how = keys.preparing(recipe, method) | rules
            prepared = plan(f"prepared/{method.name}", how, steps | judges, prepare.prepare, method.name)
            stages.append(prepared)
            inputs["prepared"] = prepared
        if method.pruning:
            before = _compression(context, method, scoring[-1], functional["traces"])
            stages.extend(stage for stage in (*scoring, *before) if stage not in stages)
            inputs |= {"traces": before[-1]} | ({"start": scoring[-1]} if models.continues(recipe, method) else {})
        if method.start:
            inputs["start"] = answers_with(get(method.start, recipe))
        training = scoring if method.name == SCORED_BY else _training(context, method, asked_by, inputs)
        stages.extend(stage for stage in training if stage not in stages)
        trained[method.name] = training[-1]
        return training[-1]

    def answers_with(method: Method) -> Plan | str:
        """What stands for the model that answers for a method."""
        if method.learner in recipe.models:
            return model_hash(recipe.models[method.learner])
        if not method.trained:
            return model_hash(recipe.backbone.model, recipe.backbone.revision)
        return train(get(method.learner, recipe))

    for method in methods:
        answering = answers_with(method)
        asked = {"problems": tested, "model": answering}
        judged = (rules if method.trained else rules | wordings) | openings.key([method], context.tasks)
        if recipe.evaluate.check and isinstance(answering, Plan):
            how = keys.checking(recipe, method) | judged
            held_out: dict[str, Plan | Part | str] = {"problems": learnt, "model": answering}
            stages.append(plan(f"checks/{method.name}", how, held_out, checks.checking, method.name, divided=True))
        how = keys.evaluation(recipe, method, recipe.evaluate) | judged
        make = (scores.evaluate, method.name, recipe.evaluate)
        evaluations[method.name] = plan(f"evaluation/{method.name}", how, asked, *make, divided=True)
        stages.append(evaluations[method.name])
        if drawing := keys.sampled(recipe.evaluate):
            how = keys.evaluation(recipe, method, drawing) | judged
            stages.append(plan(f"sampled/{method.name}", how, asked, scores.evaluate, method.name, drawing, divided=True))
        if names := probes.names_for(method, recipe):
            how = keys.probing(recipe, method, names) | judged
            stages.append(plan(f"probes/{method.name}", how, asked, probes.probing, method.name))
        answered[f"model/{method.name}"] = answering
    worded = rules | wordings if not all(method.trained for method in methods) else rules
    worded = worded | openings.key(methods, context.tasks)
    if recipe.evaluate.latency_items:
        timed = keys.timing(recipe, methods, {"latency_items", "latency_warmup"})
        stages.append(plan("latency", timed | worded, answered, timing.latency))
    if recipe.evaluate.throughput_batches:
        timed = keys.timing(recipe, methods, {"throughput_batches", "throughput_items"})
        stages.append(plan("throughput", timed | worded, answered, timing.throughput))
    if recipe.evaluate.voting.votes:
        stages += _voting(context, answered, evaluations, rules, wordings)
    return stages


def _voting(
    context: Context,
    answered: Mapping[str, Plan | Part | str],
    evaluations: Mapping[str, Plan],
    rules: dict[str, Any],
    wordings: dict[str, Any],
) -> list[Plan]:
    """The votes of a method, what they say, and their seconds where any are measured.

    Only drawing needs the model: what is done with the votes depends on them, so that other thresholds or another fallback
    draw none.
    """
    recipe, section = context.recipe, context.recipe.evaluate.voting
    name, other = section.method, votes.compared_with(recipe)
    for key, asked in (("method", name), ("fallback", section.fallback)):
        if asked is not None and asked not in evaluations:
            raise CirfError(f"evaluate.voting.{key}: {asked} is none of the recipe's methods ({', '.join(evaluations)}); add it")
    voter, model, problems = get(name, recipe), answered[f"model/{name}"], answered["problems"]
    assert isinstance(model, (Plan, str))
    drawn = keys.drawn(recipe, voter) | {"votes": max(section.votes), "problems": section.problems}
    drawn |= (rules if voter.trained else rules | wordings) | openings.key([voter], context.tasks)
    inputs: dict[str, Plan | Part | str] = {"problems": problems, "model": model}
    drawing = Plan(f"votes/{name}", drawn, inputs, partial(votes.drawing, context, name, model))
    counts = section.model_dump(include={"votes", "problems", "fallback"} | ({"agreement"} if section.fallback else set()))
    counts["against"] = other
    counted: dict[str, Plan | Part | str] = {"problems": problems, "votes": drawing}
    if other is not None:
        counted["alone"] = Part(evaluations[other], tuple(f"{task}.jsonl" for task in context.tasks))
    curve = Plan(f"voting/{name}", {"voting": counts} | rules, counted, partial(votes.voting, context, name), version=2)
    made = [drawing, curve]
    if recipe.evaluate.latency_items:
        methods = [voter] if other is None else [voter, get(other, recipe)]
        timed = keys.timing(recipe, methods, {"latency_items", "latency_warmup"})
        timed["voting"] = section.model_dump(include={"votes", "problems", "temperature", "top_p"})
        timed["voting"]["agreement"] = section.agreement if section.fallback else None  # until that is settled votes are written
        timed |= rules if all(method.trained for method in methods) else rules | wordings
        timed |= openings.key(methods, context.tasks)
        if other is not None:
            inputs = inputs | {"alone": answered[f"model/{other}"]}
        latency = partial(votes.latency, context, name)
        made.append(Plan(f"voting-latency/{name}", timed, inputs, latency, version=3))
    return made


def _training(context: Context, method: Method, asked_by: dict[str, Any], inputs: Mapping[str, Plan | Part | str]) -> list[Plan]:
    """The stages that end in a method's model: its training, or one a learning rate and the choice among them."""
    recipe, name = context.recipe, method.name
    section, epochs = recipe.finetune, recipe.finetune.trial_epochs
    rates = section.tried(name, method.training)
    whole = section.resolved(name, method.training).epochs
    if rates and epochs is not None and whole != "auto" and epochs >= whole:
        told = f"trials of {epochs:g} epochs are no shorter than the training of {name}, {whole:g}"
        raise CirfError(f"finetune.trial_epochs: {told}; lower it, or set it to null to keep the best trial's model")
    if len(rates) == 1 and epochs is not None:  # nothing to choose
        section, rates = section.alone(name, rates[0]), ()
    told_apart = {} if epochs is None else {"kept": False}  # from a whole training of as many epochs, which has a model

    def training(stage: str, section: Finetune, make: Stage, **more: bool) -> Plan:
        return Plan(stage, keys.training(recipe, section, method) | asked_by | more, inputs, make, version=2, together=True)

    if not rates:
        return [training(f"models/{name}", section, partial(models.finetune, context, name, section))]
    trials = [
        training(
            f"trials/{name}/{rate}",
            section.alone(name, rate, epochs),
            partial(models.trial, context, name, rate),
            **told_apart,
        )
        for rate in rates
    ]
    judged = {plan.name: plan for plan in trials}
    how = keys.training(recipe, section, method) | asked_by
    if epochs is None:
        return [*trials, Plan(f"models/{name}", how, judged, partial(models.choose, context, name, rates))]
    best = partial(models.train_best, context, name, rates)
    return [*trials, Plan(f"models/{name}", how, {**inputs, **judged}, best, version=2, together=True)]


def _compression(context: Context, method: Method, judge: Plan, traces: Plan | Part | str) -> list[Plan]:
    """The stages that end in a method's compressed traces: the searches it rests on, and what it makes of them."""
    recipe, section = context.recipe, context.recipe.compression
    inputs = {"model": judge, "traces": traces}
    scored = section.model_dump(include={"dtype", "batch_tokens"}) | {
        "backbone": recipe.backbone.model_dump(include={"attention", "empty_system"})
    }

    def searching(selector: Selector) -> Plan:
        how = scored | {"limit": str(compress.limit(section, selector))}
        return Plan(f"compression/{selector}", how, inputs, partial(compress.searching, context, selector), divided=True)

    searches = [searching(selector) for selector in compress.rests_on(section, method)]
    chosen = Plan(
        f"compressed/{method.name}",
        {"by": compress.rule(section, method)},
        {"traces": traces} | {search.name: search for search in searches},
        partial(compress.leaving_out, context, method.name),
    )
    return [*searches, chosen]


def asked_for(context: Context, until: str | Collection[str] | None = None) -> list[Plan]:
    """All stages, or ``until``, a stage (``models/sft_cot``) or a kind of stage (``models``), with what it needs, in order;
    or several such. ``CirfError`` if there is no such stage.
    """
    stages = plans(context)
    if until is None:
        return stages
    names, needed = [stage.name for stage in stages], set[str]()
    for wanted in [until] if isinstance(until, str) else until:
        found = {name for name in names if wanted in (name, re.split("[/-]", name)[0])}
        if not found:
            raise CirfError(f"--until {wanted}: there is no such stage in this run (stages: {', '.join(names)})")
        needed |= found
    for stage in reversed(stages):  # a stage stands behind all that it needs
        if stage.name in needed:
            needed |= {part.plan.name for part in stage.parts.values()}
    return [stage for stage in stages if stage.name in needed]


@dataclass(frozen=True)
class Sharing:
    """Other runs that finished stages may be taken over from, and who is told, before each, where a stage will come from.

    ``begins`` is given the stage's name, its key, and the run it is taken from or ``None`` where it is made.
    """

    others: Sequence[RunFolder]
    begins: Callable[[str, str, RunFolder | None], None]


def execute(
    context: Context,
    until: str | Collection[str] | None = None,
    say: Callable[[str], None] = lambda line: None,
    sharing: Sharing | None = None,
) -> Path:
    """Bring every stage up to date, or ``until`` with what it needs (see `asked_for`); returns the run's folder.

    ``say`` is given a line when a stage begins and one when it is done. With ``sharing`` a stage that another run has is taken
    over from there. Under ``accelerate launch`` all processes share fine-tuning, embedding, pruning and evaluation; the main one
    makes every other stage.
    """
    stages = asked_for(context, until)
    try:
        if not all(settled(partial(stands, context.folder, stage)) for stage in stages):
            model_checks.check_backbone(context, stages)
        if not is_main():
            _bring_up_to_date(context, stages, _nothing, sharing)
        else:
            with context.folder.alone():
                save_recipe(context)
                open_archive(context.folder.root)
                _save_environment(context)
                set_damaged_aside(context.folder, stages, say)
                context.folder.sweep(stages)
                _bring_up_to_date(context, stages, say, sharing)
    finally:
        models.release(context)
    return context.folder.root


def _bring_up_to_date(context: Context, stages: list[Plan], say: Callable[[str], None], sharing: Sharing | None) -> None:
    for stage in stages:
        if settled(partial(context.folder.is_done, stage)):
            say(f"{stage.name}: finished before")
            continue
        if sharing is not None:
            if is_main():
                _take(context.folder, stage, sharing, say)
            if settled(partial(context.folder.is_done, stage)):
                continue
        _restore_inputs(context.folder, stage, say)
        if _damaged_aside(context.folder, read_by(stage), say):
            return _bring_up_to_date(context, stages, say, sharing)  # what is behind them may come out otherwise, too
        say(f"{stage.name} ...")
        if (stage.together or stage.divided) and world_size() > 1:
            context.folder.run_together(stage)
        else:
            with first_on_main():
                context.folder.run(stage)
        standing = settled(partial(context.folder.standing, stage))
        say(f"{stage.name}: {standing.rows:,} rows in {standing.seconds:,.1f} s")
        for note in standing.notes:
            say(f"{stage.name}: {note}")


def _damaged_aside(folder: RunFolder, inputs: list[Plan], say: Callable[[str], None]) -> bool:
    """Whether the main process found finished stages damaged, in files of any size, and took them out of their places."""

    def whole() -> bool:
        return all(stands(folder, plan) for plan in inputs)

    before = settled(whole)
    if is_main():
        set_damaged_aside(folder, inputs, say, None)
    return before and not settled(whole)


def _restore_inputs(folder: RunFolder, stage: Plan, say: Callable[[str], None]) -> None:
    """Make files again that an archive left out and this stage reads."""
    for plan in read_by(stage):
        if not settled(partial(folder.left_out, plan.name)):
            continue
        if world_size() > 1:
            raise CirfError(f"{plan.name}: its files were left out of the archive; run once in one process to make them again")
        _restore_inputs(folder, plan, say)
        say(f"{plan.name}: again, since the archive left its files out ...")
        folder.restore(plan)


def _take(folder: RunFolder, stage: Plan, sharing: Sharing, say: Callable[[str], None]) -> None:
    """Take a stage over from the first run that has it whole; where none does, tell that it will be made."""
    key = folder.key(stage)
    if key is None:
        raise CirfError(f"stage {stage.name}: an input is not finished")
    for other in sharing.others:
        if other.found(stage.name, key) is None:
            continue
        sharing.begins(stage.name, key, other)
        try:
            folder.take(stage, other)
        except CirfError as error:
            say(f"{stage.name}: not taken over from {other.root}: {error}")
            continue
        say(f"{stage.name}: taken over from {other.root}")
        return
    sharing.begins(stage.name, key, None)


def _nothing(line: str) -> None:
    """Said by the processes beside the main one."""


def save_recipe(context: Context) -> None:
    """Write the resolved recipe beside the artefacts."""
    from cirf.recipe_io import dump

    path, text = context.folder.root / "recipe.yaml", dump(context.recipe)
    if not path.is_file() or path.read_bytes() != text.encode():  # a finished run may lie where nothing can be written
        write_atomic(path, text)


def _save_environment(context: Context) -> None:
    """Write what the run was begun on, for its report."""
    from cirf.environment import describe

    path = context.folder.root / "environment.json"
    try:
        known = load_object(path)
    except CirfError:  # cut off: what it said is lost, and no stage depends on it
        known = None
    if known is None:
        write_atomic(path, to_json(describe()))


def _asks(task: Task) -> list[Any]:
    """What stands for a task where only its way of asking counts."""
    return [task.name, task.version, *([task.origin] if task.origin else [])]
