"""From traces to a checkpoint: fine-tuning (paper 3.2 last part, 3.3)."""

from __future__ import annotations

import contextlib
import gc
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from cirf.assets import resolve
from cirf.distributed import is_main
from cirf.errors import CirfError
from cirf.evaluation.harness import hide
from cirf.methods import get
from cirf.recipe.schema import Finetune
from cirf.stages.context import Context
from cirf.store.files import parse_json, to_json, write_atomic, write_rows

if TYPE_CHECKING:
    import numpy as np

    from cirf.lm.training.batches import Row
    from cirf.lm.training.history import History
    from cirf.lm.training.objective import Curriculum, CurriculumRow
    from cirf.lm.training.spec import EarlyLook, MakeCurriculum, TrainingSpec
    from cirf.methods.base import Method
    from cirf.records import Example


_LOOKED_AT, _FEWEST = 16, 4
"""Held-out questions for the check during a training, and the fewest that are informative."""

_ASKED_BY = "asked_by.json"
"""In the folder of a model whose method has settings for answering: those of its saved chat template, and the template without
the method's part."""


def finetune(
    context: Context,
    name: str,
    section: Finetune,
    work: Path,
    tracked: str | None = None,
    keep: bool = True,
    trial: bool = False,
) -> dict[str, Any]:
    """Train one method from the backbone, or from another's model, and save a plain, merged checkpoint.

    ``section`` is the recipe's, or `Finetune.alone` of it for one training of several; ``tracked`` is what
    trackers call the training (the method's name if not given). Without ``keep`` only the training's record is written. A
    ``trial`` is never ended early: the choice among trials detects a bad rate.
    """
    from cirf.lm.backbone import pick_device
    from cirf.lm.training.spec import TrainingSpec

    method = get(name, context.recipe)
    section = section.resolved(name, method.training)
    release(context)
    begun = load_start(context, method, None if method.frozen else section.adaptation)
    template = begun.tokenizer.chat_template
    method.settle(begun.tokenizer, training=True)
    method.prepared = context.folder.folder(f"prepared/{name}") if method.prepares() else None
    objective = method.objective(begun.model, begun.source)
    training, held_out = training_examples(context, method)
    rows, held_out_rows = (training_rows(context, method, begun.tokenizer, examples) for examples in (training, held_out))
    spec = TrainingSpec(
        section,
        name,
        begun.new_ids,
        work / "scratch",
        context.recipe.seed,
        input_ids=begun.input_ids if method.tokens_learn else [],
        ends=method.ends,
        teach=_teach(method, section, begun.tokenizer, keep),
        objective=objective,
        frozen=method.frozen,
        look=None if trial else _look(context, method, section, begun.tokenizer, held_out),
        device=pick_device(context.recipe.backbone.device),
        attention=context.recipe.backbone.attn_implementation,
        run_name=tracked,
    )
    trained, history = _train(context, begun, rows, held_out_rows, spec, work)
    if keep:
        begun.tokenizer.chat_template = template
        _save(context, method, replace(begun, model=trained), rows, work)
        if is_main():
            method.keep(work, objective)
            if method.functional:
                write_atomic(work / "functions.json", to_json(functions_of(context, training)))
        del begun, trained
        gc.collect()
    curriculum = history.curriculum or {}
    notes = [str(curriculum["note"])] if "note" in curriculum else []
    notes += [f"WARNING: {history.ended}"] if history.ended else []
    return {"rows": len(rows), "notes": notes}


def _train(
    context: Context, begun: StartModel, rows: Sequence[Row], held_out: Sequence[Row], spec: TrainingSpec, work: Path
) -> tuple[Any, History]:
    """The trained model and its history, which is written, with the timings."""
    from cirf.lm.training.finetune import finetune

    with _trackers(context.folder.root / "trackers" / (spec.run_name or spec.method)):
        trained, history, timings = finetune(begun.model, begun.tokenizer, rows, held_out, spec, context.progress)
    if is_main():
        write_atomic(work / "history.json", to_json(history.to_dict()))
        write_atomic(work / "timings.json", to_json(timings))
    return trained, history


def _teach(method: Method, section: Finetune, tokenizer: Any, keep: bool) -> MakeCurriculum:
    """Makes the method's curriculum; where a trial is too short for it, whose model is not kept, the error says so."""

    def teach(train: list[CurriculumRow], validation: list[CurriculumRow], updates: int) -> Curriculum | None:
        try:
            passes = float(section.settled(len(train)).epochs)
            return method.curriculum(train, validation, tokenizer, passes, updates)
        except CirfError as error:
            if keep:
                raise
            advice = f"raise it, or give {method.name} a learning_rate in finetune.overrides"
            raise CirfError(f"finetune.trial_epochs: too few for {method.name} ({error}); {advice}") from None

    return teach


def _save(context: Context, method: Method, trained: StartModel, rows: Sequence[Row], work: Path) -> None:
    """Write a plain checkpoint that answers for a method, and its training rows; the chat template is the source's."""
    from cirf.lm.saving import save_model
    from cirf.lm.training.batches import sft_rows

    recipe, tokenizer, template = context.recipe, trained.tokenizer, trained.tokenizer.chat_template
    method.settle(tokenizer, training=False)
    if method.answering and is_main():
        write_atomic(work / _ASKED_BY, to_json({"settings": method.asked_by, "template": template}))
    delimiters = recipe.vocabulary.delimiters if method.functional else None
    save_model(trained.model, tokenizer, work, recipe.backbone.dtype, delimiters)
    if is_main():
        write_rows(work / "sft.jsonl", sft_rows(rows, tokenizer, trained.new_ids))


@dataclass(frozen=True)
class StartModel:
    """The model that a training begins with, from ``source``, and its tokenizer.

    ``new_ids`` are those of the delimiters and the functional tokens in order, ``input_ids`` of the method's other new tokens.
    """

    source: Path | str
    model: Any
    tokenizer: Any
    new_ids: list[int]
    input_ids: list[int]


def load_start(context: Context, method: Method, adaptation: Literal["full", "lora"] | None) -> StartModel:
    """The start model of a method, loaded for that kind of training (``None``: for answering), with its new rows set."""
    from cirf.lm import backbone, vocabulary

    recipe = context.recipe
    source = source_of(context, method.start) if method.start else resolve(recipe.backbone.model, context.progress)
    tokenizer = backbone.load_tokenizer(source, recipe.backbone)
    model = backbone.load_model(source, recipe.backbone, training=adaptation)
    new_ids: list[int] = []
    if method.functional:
        codes = _codes(context)
        if recipe.vocabulary.init == "words":
            codes = vocabulary.word_rows(model, tokenizer, codes, _pairs(context.examples(method)[0]))
        new_ids = vocabulary.extend(model, tokenizer, codes, recipe.vocabulary, recipe.codebook.codes, recipe.seed)
    input_ids = vocabulary.add_tokens(model, tokenizer, method.tokens, method.tokens_like) if method.tokens else []
    return StartModel(source, model, tokenizer, new_ids, input_ids)


def training_examples(context: Context, method: Method) -> tuple[list[Example], list[Example]]:
    """The examples that a method is trained on and validated by; by ``results.dropout`` some of the first have no results."""
    training, held_out = context.examples(method)
    dropped = context.recipe.results.dropout if method.functional else 0.0
    return _some_bare(training, dropped, context.recipe.seed), held_out


def training_rows(context: Context, method: Method, tokenizer: Any, examples: Sequence[Example]) -> list[Row]:
    """Examples as rows; the tokenizer's chat template is that of the method's training."""
    from cirf.lm import backbone
    from cirf.lm.training.batches import Row

    def row(example: Example) -> Row:
        prompt = method.training_prompt(example, context.tasks[example.problem.task])
        target, answer = method.target(example), example.problem.answer
        length = len(answer) if target.endswith(answer) else None
        given = (example.prepared or {}).get("given")
        return Row(backbone.prompt_text(tokenizer, prompt), target, length, example.segments, given, example.problem.id)

    return [row(example) for example in examples]


def _look(context: Context, method: Method, section: Finetune, tokenizer: Any, held_out: list[Example]) -> EarlyLook | None:
    """Ends a training whose answers to held-out questions are not well-formed; ``None`` if that cannot be checked."""
    from cirf.lm import backbone
    from cirf.lm.decoding import generate as decode

    questions = [example.problem for example in held_out][:_LOOKED_AT]
    checked = section.min_well_formed and method.well_formed("") is not None
    if not checked or method.latents or method.guide or len(questions) < _FEWEST:
        return None
    tasks = [context.tasks[problem.task] for problem in questions]
    prompts = [
        backbone.prompt_text(tokenizer, method.prompt(hide(problem), task))
        for problem, task in zip(questions, tasks, strict=True)
    ]
    cap = max(method.cap(task, context.recipe.evaluate) for task in tasks)

    def look(model: Any, update: int, updates: int) -> str | None:
        outputs = decode.generate(model, tokenizer, prompts, cap, decode.Decoding())  # a grammar would hide what was not learned
        formed = sum(bool(method.well_formed(output.text)) and not output.truncated for output in outputs)
        if formed >= section.min_well_formed * len(outputs):
            return None
        return (
            f"the training of {method.name} was ended after {update} of {updates} updates, since only {formed} of "
            f"{len(outputs)} answers to held-out questions were well-formed; set finetune.epochs: auto or raise "
            "finetune.min_steps, finetune.new_token_lr_multiplier or finetune.learning_rate (finetune.min_well_formed: 0 "
            "disables this)"
        )

    return look


def _some_bare(examples: list[Example], share: float, seed: int) -> list[Example]:
    """The examples, a share of them without results, drawn by the seed."""
    bare = set(Random(f"results {seed}").sample(range(len(examples)), round(share * len(examples))))
    return [
        replace(one, trace=replace(one.trace, results=("",) * len(one.trace.results))) if index in bare else one
        for index, one in enumerate(examples)
    ]


@contextlib.contextmanager
def _trackers(folder: Path) -> Iterator[None]:
    """Have TensorBoard write there, unless the user says where: its default is among the checkpoints, which are removed."""
    name = "TENSORBOARD_LOGGING_DIR"
    if name in os.environ:
        yield
        return
    os.environ[name] = str(folder)
    try:
        yield
    finally:
        del os.environ[name]


def trial(context: Context, name: str, rate: float, work: Path) -> dict[str, Any]:
    """As `finetune`, for a short training that `train_best` is to judge, which leaves no model; one without a finite loss has
    lost."""
    from cirf.lm.training.trainer import DivergedError

    if not context.examples(get(name, context.recipe))[1]:
        raise CirfError("finetune.learning_rates: no validation row is left to choose by; raise problems.validation")
    try:
        section = context.recipe.finetune.alone(name, rate, context.recipe.finetune.trial_epochs)
        return finetune(context, name, section, work, f"{name}/{rate}", keep=False, trial=True)
    except DivergedError as error:
        if is_main():
            write_atomic(work / "history.json", to_json({"diverged": str(error)}))
        return {"rows": 0, "notes": [f"no model: {error}"]}


def train_best(context: Context, name: str, rates: Sequence[float], work: Path) -> dict[str, Any]:
    """As `finetune`, at the learning rate of the short trial with the lowest last validation loss; ``trials.json`` lists all."""
    from cirf.lm.training.trainer import DivergedError

    chosen, tried = _judged(context, name, rates)
    try:
        details = finetune(context, name, context.recipe.finetune.alone(name, chosen), work)
    except DivergedError as error:
        advice = "leave it out, or raise finetune.trial_epochs"
        raise CirfError(f"finetune.learning_rates: {chosen:g} won the trials of {name}, and then {error}; {advice}") from None
    if is_main():
        write_atomic(work / "trials.json", to_json({"trials": tried}))
    return details


def _judged(context: Context, name: str, rates: Sequence[float]) -> tuple[float, list[dict[str, Any]]]:
    """The rate that won, and each trial with its passes and loss; ``CirfError`` where none came to a number."""
    losses = {rate: _last_loss(context.folder.folder(f"trials/{name}/{rate}")) for rate in rates}
    finite = {rate: loss for rate, loss in losses.items() if loss is not None}
    if not finite:
        raise CirfError(f"finetune.learning_rates: no learning rate gave {name} a finite validation loss; try lower ones")
    chosen, epochs = min(finite, key=finite.__getitem__), context.recipe.finetune.trial_epochs
    return chosen, [
        {"learning_rate": rate, "validation_loss": loss, "chosen": rate == chosen, "epochs": epochs}
        for rate, loss in losses.items()
    ]


def _last_loss(folder: Path) -> float | None:
    """The last validation loss of a trial; ``None`` if it is not a number."""
    history = parse_json((folder / "history.json").read_text())
    if "diverged" in history:
        return None
    if not history["validation"]:
        raise CirfError("finetune.learning_rates: every validation row is longer than finetune.max_length; raise one of the two")
    loss = float(history["validation"][-1]["loss"])
    return loss if math.isfinite(loss) else None


def _codes(context: Context) -> np.ndarray:
    from cirf.codebook.codebook import Codebook

    return Codebook.load(context.folder.folder(f"codebook-{context.recipe.codebook.codes}")).codes.numpy()


def functions_of(context: Context, examples: list[Example]) -> dict[str, Any]:
    """The function of each functional token, as `cirf.codebook.functions.describe` gives it."""
    from cirf.codebook.functions import describe

    recipe = context.recipe
    return describe(_pairs(examples), recipe.codebook.codes, recipe.vocabulary.delimiters, recipe.backbone.model)


def _pairs(examples: Sequence[Example]) -> Iterator[tuple[int, str]]:
    return ((code, text) for row in examples for code, text in zip(row.trace.codes, row.segments, strict=True))


def source_of(context: Context, name: str) -> Path | str:
    """The folder or id of the model that answers for a method: one saved before, the run's own, or the backbone."""
    method = get(name, context.recipe)
    if method.learner in context.recipe.models:
        return Path(context.recipe.models[method.learner])
    if method.trained:
        return context.folder.folder(f"models/{method.learner}")
    return resolve(context.recipe.backbone.model, context.progress)


def load(context: Context, source: Path | str) -> tuple[Any, Any]:
    """A model to answer with and its tokenizer. ``CirfError`` if it is gone."""
    from cirf.cpu.packed import settle
    from cirf.lm import backbone

    if Path(source).is_absolute() and not Path(source).exists():
        raise CirfError(f"{source}: the model is missing; run `cirf run` again")
    tokenizer = backbone.load_tokenizer(source, context.recipe.backbone)
    model = backbone.load_model(source, context.recipe.backbone, training=None)
    settle(model, context.recipe.backbone.attn_implementation)
    return model, tokenizer


def load_for(context: Context, name: str) -> tuple[Any, Any]:
    """The model and tokenizer that answer for a method, kept in memory until another is loaded."""
    source = source_of(context, name)
    if context.loaded.get("source") != str(source):
        release(context)
        model, tokenizer = load(context, source)
        context.loaded.update(source=str(source), model=model, tokenizer=tokenizer, template=tokenizer.chat_template)
    tokenizer = context.loaded["tokenizer"]
    tokenizer.chat_template = template_of(context, name, source, tokenizer, context.loaded["template"])
    return context.loaded["model"], tokenizer


def tokenizer_for(context: Context, name: str) -> Any:
    """The tokenizer of the model that answers for a method, without the model."""
    from cirf.lm import backbone

    source = source_of(context, name)
    tokenizer = backbone.load_tokenizer(source, context.recipe.backbone)
    tokenizer.chat_template = template_of(context, name, source, tokenizer, tokenizer.chat_template)
    return tokenizer


def template_of(context: Context, name: str, source: Path | str, tokenizer: Any, saved: str) -> str:
    """The chat template of a method's prompts: the ``saved`` one, unless the method's settings for answering differ from those
    the model was saved with."""
    method = get(name, context.recipe)
    path = Path(source) / _ASKED_BY
    if not method.answering or not path.is_file():
        return saved
    recorded = parse_json(path.read_text(encoding="utf-8"))
    if recorded["settings"] == method.asked_by:
        return saved
    tokenizer.chat_template = recorded["template"]
    method.settle(tokenizer, training=False)
    return str(tokenizer.chat_template)


def save_asking(method: Method, source: Path | str, work: Path) -> None:
    """Save, with a model trained from the one in ``source``, that one's chat template without its method's part."""
    path = Path(source) / _ASKED_BY
    if method.answering and path.is_file():
        template = parse_json(path.read_text(encoding="utf-8"))["template"]
        write_atomic(work / _ASKED_BY, to_json({"settings": method.asked_by, "template": template}))


def release(context: Context) -> None:
    """Forget the model in memory, if there is one."""
    if context.loaded:
        context.loaded.clear()
        gc.collect()
