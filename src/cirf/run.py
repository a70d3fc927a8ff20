"""A run: the stages in order, which share only their folders.

::

    problems -> rationales -> segments -> embeddings -> codebook-K --.
                                   `----> results -------------------+-> traces -> models/METHOD -> evaluation/METHOD
                                                              all models ---> latency

Variants trained by reward: problems and models/START -> models/VARIANT.

Methods that prepare their own rows do so in between: segments -> prepared/METHOD -> models/METHOD.

Where a recipe asks for votes: models/METHOD -> votes/METHOD -> voting/METHOD.

Methods whose traces are compressed (3.4) come one round later: traces and models/cirf_full -> compression/SELECTOR ->
compressed/METHOD -> models/METHOD.

With ``codebook.size: auto`` K is chosen first: codebook-K -> sized-traces/K -> sized/K of each candidate, all of these ->
codebook-size. What follows is planned once that is done.

Before an evaluation checks/METHOD answers some held-out questions, to detect a model that does not work at all. Next to a greedy
evaluation sampled/METHOD holds the sampled runs that a recipe asks for, and probes/METHOD the answers after perturbed thoughts,
traces or pauses. A method with a saved model (``models``) needs none of the stages that train. With ``finetune.learning_rates`` a
model is trained at the rate that was best in the short trainings ``trials/METHOD/RATE``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from cirf.distributed import first_on_main, is_main, settled, world_size
from cirf.endpoints.requests import asked_by
from cirf.environment import describe
from cirf.errors import CirfError
from cirf.fitting.cost import idle
from cirf.methods import learners
from cirf.recipe.load import dump
from cirf.stages import codes, model_checks, models
from cirf.stages.context import Context
from cirf.stages.planning import plans
from cirf.store.files import load_object, to_json, write_atomic
from cirf.store.integrity import is_intact, read_by, set_damaged_aside
from cirf.store.run_folder import RunFolder, StagePlan


def settle_size(context: Context) -> bool:
    """Whether K is known. If it is chosen by a finished stage of this recipe, it is set in the context's recipe."""
    book = context.recipe.codebook
    if not book.auto:
        return True
    choice = next((stage for stage in plans(context) if stage.name == codes.CHOICE), None)
    if choice is None:  # nothing is trained that has functional tokens
        return True
    known = settled(partial(context.folder.is_done, choice))
    size = codes.chosen(context) if known else "auto"
    update = {"size": size, "chosen": known}
    context.recipe = context.recipe.model_copy(update={"codebook": book.model_copy(update=update)})
    return known


def asked_for(context: Context, until: str | Collection[str] | None = None) -> list[StagePlan]:
    """All stages, or ``until``, a stage (``models/sft_cot``) or a kind of stage (``models``), with what it needs, in order;
    or several such. If K is still to be chosen, stages up to the choice. ``CirfError`` if there is no such stage.
    """
    known = settle_size(context)
    stages = plans(context)
    if until is None:
        return stages
    names, needed = [stage.name for stage in stages], set[str]()
    for wanted in [until] if isinstance(until, str) else until:
        found = {name for name in names if wanted in (name, re.split("[/-]", name)[0])}
        if not found and not known:
            found = {codes.CHOICE}
        if not found:
            raise CirfError(f"--until {wanted}: there is no such stage in this run (stages: {', '.join(names)})")
        needed |= found
    for stage in reversed(stages):  # a stage comes after all that it needs
        if stage.name in needed:
            needed |= {part.plan.name for part in stage.parts.values()}
    return [stage for stage in stages if stage.name in needed]


def execute(
    context: Context,
    until: str | Collection[str] | None = None,
    say: Callable[[str], None] = lambda line: None,
    others: Sequence[RunFolder] | None = None,
) -> Path:
    """Bring every stage up to date, or ``until`` with what it needs (see `asked_for`); returns the run's folder.

    ``say`` is given a line when a stage begins and one when it is done. A stage that one of the ``others`` has is reused from
    there. Under ``accelerate launch`` all processes share fine-tuning, embedding, the codebook, pruning and evaluation;
    the main one makes every other stage.
    """
    stages = asked_for(context, until)
    asked_by(context.recipe)  # a key that may not be sent is reported before hours of work
    try:
        if not all(settled(partial(is_intact, context.folder, stage)) for stage in stages):
            model_checks.check_backbone(context, stages)
        if not is_main():
            _bring_up_to_date(context, stages, lambda line: None, others)
        else:
            for line in _idle(context, stages):
                say(f"WARNING: {line}")
            with context.folder.alone():
                save_recipe(context)
                _save_environment(context)
                set_damaged_aside(context.folder, stages, say)
                context.folder.sweep(stages)
                _bring_up_to_date(context, stages, say, others)
    finally:
        models.release(context)
    if context.recipe.codebook.size == "auto" and stages[-1].name == codes.CHOICE:
        return execute(context, until, say, others)  # K is known now, and with it what follows
    return context.folder.root


def _idle(context: Context, stages: Sequence[StagePlan]) -> list[str]:
    """Sentences about trainings that are still to be done in which some of the processes will idle."""
    trainings = [stage for stage in stages if stage.name.startswith(("models/", "trials/"))]
    to_do = {stage.name.split("/")[1] for stage in trainings if not is_intact(context.folder, stage)}
    methods = [method for method in learners(context.recipe) if method.name in to_do and method.reward is None]
    sections = (context.recipe.finetune.resolved(method.name, method.training) for method in methods)
    return list(dict.fromkeys(filter(None, (idle(section, world_size()) for section in sections))))


def _bring_up_to_date(
    context: Context, stages: list[StagePlan], say: Callable[[str], None], others: Sequence[RunFolder] | None
) -> None:
    for stage in stages:
        if settled(partial(context.folder.is_done, stage)):
            say(f"{stage.name}: finished before")
            continue
        if others is not None:
            if is_main():
                _take(context.folder, stage, others, say)
            if settled(partial(context.folder.is_done, stage)):
                continue
        if _damaged_aside(context.folder, read_by(stage), say):
            return _bring_up_to_date(context, stages, say, others)  # later stages may change, too
        say(f"{stage.name} ...")
        if (stage.together or stage.divided) and world_size() > 1:
            context.folder.run_together(stage)
        else:
            with first_on_main():
                context.folder.run(stage)
        state = settled(partial(context.folder.state, stage))
        say(f"{stage.name}: {state.rows:,} rows in {state.seconds:,.1f} s")
        for note in state.notes:
            say(f"{stage.name}: {note}")


def _damaged_aside(folder: RunFolder, inputs: list[StagePlan], say: Callable[[str], None]) -> bool:
    """Whether the main process found damaged finished stages, in files of any size, and moved them away."""

    def whole() -> bool:
        return all(is_intact(folder, plan) for plan in inputs)

    before = settled(whole)
    if is_main():
        set_damaged_aside(folder, inputs, say, None)
    return before and not settled(whole)


def _take(folder: RunFolder, stage: StagePlan, others: Sequence[RunFolder], say: Callable[[str], None]) -> None:
    """Take a stage over from the first run that has it whole, if one does."""
    key = folder.key(stage)
    for other in others:
        if key is None or other.found(stage.name, key) is None:
            continue
        try:
            folder.take(stage, other)
        except CirfError as error:
            say(f"{stage.name}: not reused from {other.root}: {error}")
            continue
        say(f"{stage.name}: reused from {other.root}")
        return


def save_recipe(context: Context) -> None:
    path, text = context.folder.root / "recipe.yaml", dump(context.recipe)
    if not path.is_file() or path.read_bytes() != text.encode():  # a finished run may be on a read-only disk
        write_atomic(path, text)


def _save_environment(context: Context) -> None:
    path = context.folder.root / "environment.json"
    try:
        known = load_object(path)
    except CirfError:  # truncated: its content is lost, but no stage depends on it
        known = None
    if known is None:
        write_atomic(path, to_json(describe()))
