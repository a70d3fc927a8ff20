"""Fine-tuning: every weight, or adapters and the new rows; the result is a plain model either way (paper 3.3, A.2)."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cirf.cpu.linear import in_place
from cirf.cpu.memory import keep_freed_memory, release_freed_memory
from cirf.distributed import is_main, sharded
from cirf.errors import CirfError
from cirf.lm import vocabulary
from cirf.lm.adapters import put_adapters
from cirf.lm.prompt import end_token, sanitise
from cirf.lm.saving import check_tokenizer
from cirf.lm.training.attention import as_trees, for_rows
from cirf.lm.training.batches import Feature, Row, tokenise
from cirf.lm.training.callbacks import Glance, Look, Stop, look_at
from cirf.lm.training.checkpoints import clean, disk_errors, latest
from cirf.lm.training.history import History, code_rows, survival
from cirf.lm.training.new_token_rows import TrainableRows, scale_learning_rate
from cirf.lm.training.objective import Curriculum, CurriculumRow, Objective
from cirf.lm.training.sharding import blank_copy, check_launch, fill, free_gathered, gathered, refusal, shard, unseen
from cirf.lm.training.trainer import Course, ReleaseMemory, TargetTrainer, Trained, arguments
from cirf.progress import SILENT, Progress
from cirf.recipe import schema

_OBJECTIVE_MODULE = "cirf_beside"
"""The attribute that holds the objective's module during training, so that code over a model's parameters finds it."""

_NAMED = 8
"""Rows that a message names at most."""

__all__ = ["History", "Plan", "Row", "finetune", "plan_updates", "tokenise"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The number of updates per epoch, in total, and in the warm-up."""

    epoch: int
    total: int
    warmup: int


def plan_updates(rows: int, section: schema.Finetune, epochs: float) -> Plan:
    """The updates that ``rows`` rows make. A warm-up as long as the whole training is cut to a tenth of it."""
    epoch = section.an_epoch(rows)
    total = max(1, math.ceil(epochs * epoch - 1e-9))
    return Plan(epoch, total, section.warmup_steps if section.warmup_steps < total else total // 10)


def finetune(
    model: Any,
    tokenizer: Any,
    train: Sequence[Row],
    validation: Sequence[Row],
    section: schema.Finetune,
    method: str,
    new_ids: Sequence[int],
    work: Path,
    seed: int,
    progress: Progress = SILENT,
    device: str | None = None,
    attention: str = "auto",
    run_name: str | None = None,
    input_ids: Sequence[int] = (),
    ends: bool = True,
    teach: Callable[[list[CurriculumRow], list[CurriculumRow], int], Curriculum | None] | None = None,
    objective: Objective | None = None,
    frozen: bool = False,
    look: Look | None = None,
) -> tuple[Any, History, dict[str, float]]:
    """Train a model on target tokens, resuming from the last complete checkpoint under ``work/checkpoints``.

    Args:
        model: from ``load_model(..., training=section.adaptation)``, extended if the method needs it. It is changed.
        train, validation: rendered prompts with the texts to write.
        section: as `Finetune.resolved` gives it for the method.
        method: name of the method.
        new_ids: ids of the rows that are new (LoRA trains them with the adapters): delimiters first, then codes.
        work: folder for checkpoints; remove it when the result is safe.
        seed: of the order of rows, the adapters' first values and dropout.
        device: a torch device; ``None``: where the model is.
        attention: ``auto``: the kernel that is fastest for these rows; else the model's own is kept.
        run_name: what trackers call it; ``None``: the method's name.
        input_ids: ids of new rows that are read and never written; LoRA trains them in the input matrix alone.
        ends: whether the end token is a target.
        teach: makes a curriculum of the training rows, the validation rows and the updates of an epoch.
        objective: what is minimised; ``None``: the cross-entropy of the targets. Its module is left as training leaves it.
        frozen: the model itself is not trained, the objective's module alone is.
        look: shown the model once, about a third of the way (`cirf.lm.training.callbacks`); it may end the training there.

    Returns:
        The model, merged and plain; its history; and ``{training_seconds, updates, tokens_per_second}``, which depend on the
        clock; the time before the checkpoint it resumed from is included.

    Raises:
        CirfError: no row to train on, every row too long, a loss that is not a number, a full disk, unknown LoRA targets, no
            memory, or a tokenizer that comes back another after saving.
        KeyboardInterrupt, SystemExit: stopped by Ctrl-C or SIGTERM; progress is saved (`cirf.lm.training.callbacks`).
    """
    features, dropped = tokenise(train, tokenizer, section.max_length, new_ids, ends)
    held_out, too_long = tokenise(validation, tokenizer, section.max_length, new_ids, ends)
    if not features:
        why = "every row is longer than finetune.max_length" if train else "there is no row to train on"
        raise CirfError(f"fine-tuning {method}: {why}; look at what `cirf check` says of the data")
    section = section.settled(len(features))
    passes = float(section.epochs)
    curriculum = None
    if teach is not None:
        pairs = (
            _paired(train, features, dropped, tokenizer, new_ids),
            _paired(validation, held_out, too_long, tokenizer, new_ids),
        )
        curriculum = teach(*pairs, plan_updates(len(features), section, passes).epoch)
        held_out = curriculum.validation if curriculum is not None else held_out
    check_tokenizer(model, tokenizer)  # now, not after hours of training
    device = device or str(model.device)
    if torch.device(device).type == "cpu":
        keep_freed_memory()
    objective = Objective() if objective is None else objective
    if section.functional_token_loss_weight != 1 and new_ids[2:]:
        if type(objective).loss is not Objective.loss:
            raise CirfError(f"finetune.functional_token_loss_weight: the training of {method} has its own loss; remove the key")
        objective.weigh(new_ids[2:], section.functional_token_loss_weight)
    if sharded():
        check_launch()
        if frozen or not objective.plain or objective.module is not None:
            raise refusal(method)
        look = None  # it would have to write answers with parts of weights
    before = code_rows(model, new_ids)
    base, blank = model, blank_copy(model) if sharded() else None
    model, rows = adapt(model, section, list(new_ids), list(input_ids), seed, frozen)
    objective.join(model, section, seed)
    if objective.module is not None:
        model.add_module(_OBJECTIVE_MODULE, objective.module.to(device).train())
    if section.gradient_checkpointing:
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    if blank is not None:
        shard(model, base, section.adaptation == "full", device)
    try:
        padding = end_token(tokenizer)
        called = run_name or method
        prepare = None
        if section.new_token_lr_multiplier != 1 and (new_ids or input_ids):
            matrices = vocabulary.matrices(base) if rows is None else rows.parameters()
            prepare = partial(
                scale_learning_rate,
                parameters=matrices,
                ids=[*new_ids, *input_ids] if rows is None else None,
                ratio=section.new_token_lr_multiplier,
            )
        trainer, plan = _trainer(
            model, features, held_out, section, work, seed, device, padding, called, curriculum, objective, new_ids[2:], prepare
        )
        glance = None
        if look is not None and (at := look_at(plan.epoch, plan.total)) is not None:
            glance = Glance(look, base, at, trainer.accelerator.autocast)
            trainer.add_callback(glance)
        longest = max(len(feature.ids) for feature in [*features, *held_out])
        kernel = batch_kernel(model, objective, longest, device) if attention == "auto" else contextlib.nullcontext()
        number = "bfloat16" if trainer.args.bf16 else str(model.dtype).removeprefix("torch.")
        with kernel, in_place(model):
            left_out = set(dropped)
            names = [row.problem for index, row in enumerate(train) if index not in left_out]
            timings = _run(trainer, plan, bool(held_out), section, work, progress, f"fine-tuning {method}", features, names)
    except torch.OutOfMemoryError:
        raise CirfError(
            f"fine-tuning {method}: the memory of {device} is too small; lower finetune.batch_size (and raise "
            "gradient_accumulation_steps), or set gradient_checkpointing: true or adaptation: lora"
        ) from None
    counts = [p.numel() for p in model.parameters()], [p.numel() for p in model.parameters() if p.requires_grad]
    if blank is None:
        plain = _plain(trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False), rows)
    else:
        plain = _whole(trainer, blank, partial(adapt, blank, section, list(new_ids), list(input_ids), seed))
    after = before if plain.device.type == "meta" else code_rows(plain, new_ids)  # only the main process reports them
    history = History(
        method=method,
        adaptation="frozen" if frozen else section.adaptation,
        rows=len(features),
        dropped=len(dropped),
        validation_rows=len(held_out),
        updates=trainer.state.global_step,
        updates_per_epoch=plan.epoch,
        epochs=passes,
        warmup_updates=plan.warmup,
        warmup_scaled_down=plan.warmup != section.warmup_steps,
        learning_rate=section.learning_rate,
        tokens=sum(len(feature.ids) for feature in features),
        target_tokens=sum(len(feature.ids) - feature.start for feature in features),
        trainable_parameters=sum(counts[1]),
        parameters=sum(counts[0]),
        computed_in=number,
        losses=[
            {"update": row["step"], "loss": row["loss"], "gradient_norm": row["grad_norm"], "learning_rate": row["learning_rate"]}
            for row in trainer.state.log_history
            if "loss" in row
        ],
        validation=[
            {"update": row["step"], "loss": row["eval_loss"]} | _losses_of_parts(row)
            for row in trainer.state.log_history
            if "eval_loss" in row
        ],
        functional_rows=[survival(name, old, new) for name, old, new in zip(("input", "output"), before, after, strict=False)],
        curriculum=None if curriculum is None else curriculum.summary(),
        ended=None if glance is None else glance.ended,
    )
    objective.leave()
    _forget(trainer)
    return plain, history, timings


def _paired(
    rows: Sequence[Row], features: Sequence[Feature], dropped: Sequence[int], tokenizer: Any, new_ids: Sequence[int]
) -> list[CurriculumRow]:
    """Rows, their targets as they were made safe, and their ids side by side, without those that were too long."""
    left_out = set(dropped)
    kept = [
        dataclasses.replace(row, target=sanitise(row.target, tokenizer, new_ids))
        for index, row in enumerate(rows)
        if index not in left_out
    ]
    return [CurriculumRow(row, feature) for row, feature in zip(kept, features, strict=True)]


def _losses_of_parts(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: row[f"eval_{name}"] for name in ("answer_loss", "code_loss") if f"eval_{name}" in row}


def adapt(
    model: Any, section: schema.Finetune, new_ids: list[int], input_ids: list[int], seed: int, frozen: bool = False
) -> tuple[Any, TrainableRows | None]:
    """Set what is trained: all weights, or adapters and the new rows, or nothing."""
    from transformers import set_seed

    set_seed(seed)
    model.train()
    if frozen:
        model.requires_grad_(False)
        return model, None
    if section.adaptation == "full":
        model.requires_grad_(True)
        return model, None
    adapted = put_adapters(model, section.lora)
    return adapted, TrainableRows(model, new_ids, input_ids) if new_ids or input_ids else None


@contextlib.contextmanager
def batch_kernel(model: Any, objective: Objective, longest: int, device: str) -> Iterator[None]:
    """Within, the fastest attention for training, with batches to match: prefix trees where possible."""
    with as_trees(model, longest, device) if objective.plain else contextlib.nullcontext(False) as fits:
        objective.trees = fits
        try:
            with contextlib.nullcontext() if fits else for_rows(model, longest, device):
                yield
        finally:
            objective.trees = False


def _trainer(
    model: Any,
    features: list[Feature],
    held_out: list[Feature],
    section: schema.Finetune,
    work: Path,
    seed: int,
    device: str,
    padding: int,
    method: str,
    curriculum: Curriculum | None,
    objective: Objective,
    codes: Sequence[int],
    prepare: Callable[[torch.optim.Optimizer], None] | None,
) -> tuple[TargetTrainer, Plan]:
    plan = plan_updates(len(features), section, float(section.epochs))
    how = (section.group_by_length, padding, section.gradient_accumulation_steps, curriculum, objective, codes, prepare)
    with unseen():
        args = arguments(section, plan.total, plan.warmup, section.learning_rate, work / "checkpoints", seed, device, method)
        return TargetTrainer(model, args, features, held_out, *how), plan


def _run(
    trainer: TargetTrainer,
    plan: Plan,
    validate: bool,
    section: schema.Finetune,
    work: Path,
    progress: Progress,
    title: str,
    features: list[Feature],
    names: Sequence[str],
) -> dict[str, float]:
    from transformers import PrinterCallback

    root = work / "checkpoints"
    free_gathered(trainer.model)  # the choice of kernels tries a pass
    trainer.accelerator.wait_for_everyone()
    resume = latest(root)
    trainer.accelerator.wait_for_everyone()  # all have looked before anything is removed
    if trainer.is_world_process_zero():
        clean(root)
    trainer.remove_callback(PrinterCallback)
    trainer.begin(resume)
    trainer.args.eval_on_start = validate and resume is None
    with contextlib.ExitStack() as stack:
        every = section.eval_steps or plan.epoch

        def rows(update: int) -> str:
            found = [names[row] or f"row {row}" for row in trainer.rows_of(update)]
            return ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")

        trainer.add_callback(Course(section.save_steps, every, validate, stack, progress, title, rows, trainer.curriculum))
        if trainer.args.use_cpu:
            trainer.add_callback(ReleaseMemory())
        stop = Stop()
        trainer.add_callback(stop)  # after `Course`, which says when to save
        with disk_errors(root), stop.listening(trainer.accelerator.num_processes), contextlib.suppress(Trained):
            trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    seconds = trainer.seconds()
    updates = trainer.state.global_step
    tokens = sum(len(feature.ids) for feature in features) / plan.epoch * updates
    return {"training_seconds": round(seconds, 3), "updates": updates, "tokens_per_second": round(tokens / seconds, 1)}


def _plain(model: Any, rows: TrainableRows | None) -> Any:
    """The model without the objective's module, adapters and rows merged in."""
    if hasattr(model, _OBJECTIVE_MODULE):
        delattr(model, _OBJECTIVE_MODULE)
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    if rows is not None:
        rows.merge()
    return model.requires_grad_(False).eval()


def _whole(trainer: TargetTrainer, blank: Any, adapt: Callable[[], tuple[Any, TrainableRows | None]]) -> Any:
    """As `_plain`, of a sharded model, on the main process's CPU; the others have it without weights."""
    assert trainer.model is not None
    weights = gathered(dict(trainer.model.named_parameters()))
    if not is_main():
        return blank
    model, rows = adapt()
    fill(model, weights)
    return _plain(model, rows)


def _forget(trainer: TargetTrainer) -> None:
    """Release the optimiser's state and unused memory."""
    trainer.optimizer = trainer.lr_scheduler = None
    trainer.accelerator.free_memory()
    trainer.callback_handler.model = trainer.callback_handler.optimizer = trainer.callback_handler.lr_scheduler = None
    trainer.model = trainer.model_wrapped = None  # type: ignore[assignment]
    release_freed_memory()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
