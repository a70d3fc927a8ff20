"""Fine-tuning: every weight, or adapters and the new rows; the result is a plain model either way (paper 3.3, A.2)."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from cirf.cpu.linear import in_place
from cirf.cpu.memory import enough, keep_freed_memory, release_freed_memory
from cirf.distributed import is_main, sharded
from cirf.errors import CirfError
from cirf.lm import vocabulary
from cirf.lm.adapters import put_adapters
from cirf.lm.backbone import positions
from cirf.lm.decoding.prefix_cache import VECTORS
from cirf.lm.prompt import end_token
from cirf.lm.saving import check_tokenizer
from cirf.lm.training.attention import as_trees, for_rows
from cirf.lm.training.batches import Row
from cirf.lm.training.callbacks import EarlyCheck, StopOnSignal, check_update
from cirf.lm.training.checkpoints import clean, disk_errors, latest
from cirf.lm.training.history import History, code_rows, embedding_changes, history_of
from cirf.lm.training.objective import Objective
from cirf.lm.training.sharding import (
    blank_copy,
    check_launch,
    fill,
    free_gathered,
    gathered,
    local,
    part_of,
    refusal,
    shard,
    unseen,
)
from cirf.lm.training.spec import TrainingData, TrainingSpec, training_data
from cirf.lm.training.trainer import AlreadyTrained, ReleaseMemory, TargetTrainer, TrainingControl, arguments
from cirf.lm.vocabulary import is_tied
from cirf.progress import SILENT, Progress

_OBJECTIVE_MODULE = "cirf_beside"
"""The attribute that holds the objective's module during training, so that code over a model's parameters finds it."""

_NAMED = 8
"""Rows that a message names at most."""


def finetune(
    model: Any, tokenizer: Any, train: Sequence[Row], validation: Sequence[Row], spec: TrainingSpec, progress: Progress = SILENT
) -> tuple[Any, History, dict[str, float]]:
    """Train a model on target tokens, resuming from the last complete checkpoint under ``spec.work``.

    Args:
        model: from ``load_model(..., training=section.adaptation)``, extended if the method needs it. It is changed.
        train, validation: rendered prompts with the texts to write.
        spec: what is trained, and how.

    Returns:
        The model, merged and plain; its history; and ``{training_seconds, updates, tokens_per_second}``, which depend on the
        clock; the time before the checkpoint it resumed from is included.

    ``CirfError``: no row to train on, every row too long, a loss that is not a number, a full disk, unknown LoRA targets, no
    memory, or a tokenizer that comes back another after saving. ``KeyboardInterrupt``, ``SystemExit``: stopped by Ctrl-C or
    SIGTERM; progress is saved (`cirf.lm.training.callbacks`).
    """
    if (most := positions(model, VECTORS if spec.objective else 0)) is not None and most < spec.section.max_length:
        spec = replace(spec, section=spec.section.model_copy(update={"max_length": most}))
    data = training_data(tokenizer, train, validation, spec)
    check_tokenizer(model, tokenizer)  # now, not after hours of training
    device = spec.device or str(model.device)
    if torch.device(device).type == "cpu":
        keep_freed_memory()
    objective = _objective(spec)
    before = code_rows(model, spec.new_ids)
    learner = _learner(model, spec, objective, device)
    refusal = (
        f"fine-tuning {spec.method}: the memory of {device} is too small; lower finetune.batch_size (and raise "
        "gradient_accumulation_steps), or set gradient_checkpointing: true or adaptation: lora"
    )
    with enough(refusal):
        trainer = _trainer(learner, data, spec, objective, device, end_token(tokenizer))
        glance = _glance(trainer, learner, data, spec)
        kernel = batch_kernel(learner.model, objective, data.longest, device) if spec.attention == "auto" else None
        with kernel or contextlib.nullcontext(), in_place(learner.model):
            timings = _run(trainer, data, spec, progress)
    history = history_of(trainer, learner.model, data, spec, None if glance is None else glance.ended)
    plain = _plain_model(trainer, learner, spec)
    after = before if plain.device.type == "meta" else code_rows(plain, spec.new_ids)  # only the main process reports them
    objective.leave()
    _forget(trainer)
    return plain, replace(history, functional_rows=embedding_changes(before, after)), timings


def _objective(spec: TrainingSpec) -> Objective:
    """What is minimised. ``CirfError`` where it does not go with the recipe's keys, or with sharding."""
    objective, weight = spec.objective or Objective(), spec.section.functional_token_loss_weight
    if weight != 1 and spec.codes:
        if type(objective).loss is not Objective.loss:
            raise CirfError(f"finetune.functional_token_loss_weight: {spec.method} has a loss of its own; remove the key")
        objective.weigh(spec.codes, weight)
    if sharded():
        check_launch()
        if spec.frozen or not objective.plain or objective.module is not None:
            raise refusal(spec.method)
    return objective


@dataclass(frozen=True, slots=True)
class _Learner:
    """A model in training.

    ``model`` has adapters and the objective's module, ``base`` is the one that was given, ``rows`` are the new tokens' rows that
    are trained apart from its matrices. ``blank``: of a sharded model, a copy without weights, in which they are put together.
    """

    model: Any
    base: Any
    rows: TrainableRows | None
    blank: Any | None


def _learner(model: Any, spec: TrainingSpec, objective: Objective, device: str) -> _Learner:
    """Give a model its adapters and the objective's module, and this process its shard."""
    base, blank = model, blank_copy(model) if sharded() else None
    model, rows = adapt(model, spec)
    objective.join(model, spec.section, spec.seed)
    if objective.module is not None:
        model.add_module(_OBJECTIVE_MODULE, objective.module.to(device).train())
    if spec.section.gradient_checkpointing:
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    if blank is not None:
        shard(model, base, spec.section.adaptation == "full", device)
    return _Learner(model, base, rows, blank)


def adapt(model: Any, spec: TrainingSpec) -> tuple[Any, TrainableRows | None]:
    """Set what is trained: all weights, or adapters and the new rows, or nothing."""
    from transformers import set_seed

    set_seed(spec.seed)
    model.train()
    if spec.frozen:
        model.requires_grad_(False)
        return model, None
    if spec.section.adaptation == "full":
        model.requires_grad_(True)
        return model, None
    adapted = put_adapters(model, spec.section.lora)
    if not spec.new_ids and not spec.input_ids:
        return adapted, None
    return adapted, TrainableRows(model, list(spec.new_ids), list(spec.input_ids))


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
    learner: _Learner, data: TrainingData, spec: TrainingSpec, objective: Objective, device: str, padding: int
) -> TargetTrainer:
    """The Trainer, whose optimiser has the new rows' own learning rate; ``padding`` is the id that fills rows up."""
    section, plan = spec.section, data.plan
    prepare = None
    if section.new_token_lr_multiplier != 1 and (spec.new_ids or spec.input_ids):
        rows = learner.rows
        prepare = partial(
            scale_learning_rate,
            parameters=vocabulary.matrices(learner.base) if rows is None else rows.parameters(),
            ids=[*spec.new_ids, *spec.input_ids] if rows is None else None,
            ratio=section.new_token_lr_multiplier,
        )
    called = spec.run_name or spec.method
    with unseen():
        args = arguments(section, plan.total, plan.warmup, section.learning_rate, spec.checkpoints, spec.seed, device, called)
        return TargetTrainer(learner.model, args, data, spec, objective, padding, prepare)


def _glance(trainer: TargetTrainer, learner: _Learner, data: TrainingData, spec: TrainingSpec) -> EarlyCheck | None:
    """Have ``spec.look`` called, if there is anything to look at: with parts of weights no answers can be written."""
    at = check_update(data.plan.epoch, data.plan.total)
    if spec.look is None or at is None or sharded():
        return None
    glance = EarlyCheck(spec.look, learner.base, at, trainer.accelerator.autocast)
    trainer.add_callback(glance)
    return glance


def _run(trainer: TargetTrainer, data: TrainingData, spec: TrainingSpec, progress: Progress) -> dict[str, float]:
    """Train to the end, from the last checkpoint on, and return the timings."""
    from transformers import PrinterCallback

    root, plan, validate = spec.checkpoints, data.plan, bool(data.validation)
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
        save, every = spec.section.save_steps, spec.section.eval_steps or plan.epoch

        def rows(update: int) -> str:
            found = [data.problems[row] or f"row {row}" for row in trainer.rows_of(update)]
            return ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")

        trainer.add_callback(
            TrainingControl(save, every, validate, stack, progress, f"fine-tuning {spec.method}", rows, data.curriculum)
        )
        if trainer.args.use_cpu:
            trainer.add_callback(ReleaseMemory())
        stack.enter_context(warnings.catch_warnings())  # torch 2.13 has nothing yet in place of what it deprecates here
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
        stop = StopOnSignal()
        trainer.add_callback(stop)  # after `TrainingControl`, which says when to save
        with disk_errors(root), stop.listening(trainer.accelerator.num_processes), contextlib.suppress(AlreadyTrained):
            trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    seconds = trainer.seconds()
    updates = trainer.state.global_step
    tokens = sum(len(feature.ids) for feature in data.features) / plan.epoch * updates
    return {"training_seconds": round(seconds, 3), "updates": updates, "tokens_per_second": round(tokens / seconds, 1)}


def _plain_model(trainer: TargetTrainer, learner: _Learner, spec: TrainingSpec) -> Any:
    """The trained model without adapters; of a sharded one on the main process's CPU, and on the others without weights."""
    if learner.blank is None:
        return _merged(trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False), learner.rows)
    assert trainer.model is not None
    weights = gathered(dict(trainer.model.named_parameters()))
    if not is_main():
        return learner.blank
    model, rows = adapt(learner.blank, spec)
    fill(model, weights)
    return _merged(model, rows)


def _merged(model: Any, rows: TrainableRows | None) -> Any:
    """The model without the objective's module, adapters and rows merged in."""
    if hasattr(model, _OBJECTIVE_MODULE):
        delattr(model, _OBJECTIVE_MODULE)
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    if rows is not None:
        rows.merge()
    return model.requires_grad_(False).eval()


def _forget(trainer: TargetTrainer) -> None:
    """Release the optimiser's state and unused memory."""
    trainer.optimizer = trainer.lr_scheduler = None
    trainer.accelerator.free_memory()
    trainer.callback_handler.model = trainer.callback_handler.optimizer = trainer.callback_handler.lr_scheduler = None
    trainer.model = trainer.model_wrapped = None  # type: ignore[assignment]
    release_freed_memory()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


_NAME = "cirf_rows"


class TrainableRows:
    """Float32 copies [n x d] of the rows ``ids``, used by the model instead of its own until ``merge``.

    Adapters alone do not train new tokens. PEFT's ``trainable_token_indices`` copies the whole matrix in every pass, which for
    150,000 rows costs more than the adapters do. Here the frozen matrix is used as it is, and the rows replace its output: the
    embeddings of such tokens, and the logits in their columns. Tied matrices share one set of rows.

    Rows of ``inputs`` follow them in the input matrix alone: tokens that are read and never written. In tied matrices they are in
    both, as in the saved model.

    The parameters are registered on the embedding and head modules (as ``cirf_rows``), so that optimisers,
    data-parallelism and ``requires_grad`` treat them like any other.
    """

    def __init__(self, model: Any, ids: list[int], inputs: list[int] | None = None) -> None:
        """Attach to a model whose matrices are frozen."""
        inner, head = model.get_input_embeddings(), model.get_output_embeddings()
        self._modules = [inner]
        self._hooks = [inner.register_forward_hook(self._embed)]
        tied = is_tied(model)
        slots = torch.full((inner.weight.shape[0],), -1)
        every = [*ids, *(inputs or [])]
        slots[torch.tensor(every)] = torch.arange(len(every))
        self._every = every
        inner.register_buffer("cirf_slots", slots.to(inner.weight.device), persistent=False)
        self._attach(inner, every)
        written = every if tied else ids
        head = head if written else None
        if head is not None:
            if not tied:
                self._modules.append(head)
                self._attach(head, ids)
            head.register_buffer("cirf_ids", torch.tensor(written, device=head.weight.device), persistent=False)
            self._hooks.append(head.register_forward_hook(self._project))
        self._head, self._tied = head, tied

    @staticmethod
    def _attach(module: Any, ids: list[int]) -> None:
        rows = module.weight.detach()[torch.tensor(ids, device=module.weight.device)].float().clone()
        module.register_parameter(_NAME, nn.Parameter(rows))

    @staticmethod
    def _embed(module: Any, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        slots = module.cirf_slots[args[0]]  # [b x s], -1 where the frozen row is used
        rows = nn.functional.embedding(slots.clamp(min=0), module.cirf_rows).to(output.dtype)
        scale = getattr(module, "embed_scale", None)  # some models scale inside the module
        return torch.where((slots >= 0).unsqueeze(-1), rows if scale is None else rows * scale, output)

    def _project(self, module: Any, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        rows = (self._modules[0] if self._tied else module).cirf_rows[: len(module.cirf_ids)]
        bias = None if getattr(module, "bias", None) is None else module.bias[module.cirf_ids].to(args[0].dtype)
        columns = nn.functional.linear(args[0], rows.to(args[0].dtype), bias).to(output.dtype)
        return output.index_copy(-1, module.cirf_ids, columns)

    def parameters(self) -> list[nn.Parameter]:
        """What is trained: one matrix of rows [n x d], or two."""
        return [module.cirf_rows for module in self._modules]

    def merge(self) -> None:
        """Write the rows into the matrices and leave the model as it was, hooks and all."""
        for hook in self._hooks:
            hook.remove()
        with torch.no_grad():
            for module in self._modules:
                ids = torch.tensor(self._every[: len(module.cirf_rows)], device=module.weight.device)
                module.weight[ids] = module.cirf_rows.to(module.weight.dtype)
                del module.cirf_rows
        del self._modules[0].cirf_slots
        if self._head is not None:
            del self._head.cirf_ids


def scale_learning_rate(
    optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], ids: Sequence[int] | None, ratio: float
) -> None:
    """Scale the learning rate of the rows ``ids`` of some matrices, or of all their rows, by ``ratio``.

    Each step is multiplied by ``ratio``. For AdamW with its decay, as for plain descent, a step is proportional to the rate and
    the moments do not depend on it. A parameter group with its own rate would need the rows to be separate parameters.
    """
    held: list[torch.Tensor] = []
    places: list[Any] = []  # of the rows in each matrix, or in this process's part of it
    for parameter in parameters:
        chosen = torch.zeros(parameter.shape[0], dtype=torch.bool)
        chosen[list(range(len(chosen)) if ids is None else ids)] = True
        places.append(local(part_of(chosen, parameter)).nonzero().flatten().to(local(parameter).device))

    def before(*_: Any) -> None:
        held[:] = [local(parameter.detach())[rows] for parameter, rows in zip(parameters, places, strict=True)]

    def after(*_: Any) -> None:
        for parameter, rows, old in zip(parameters, places, held, strict=True):
            whole = local(parameter.detach())
            whole[rows] = old + ratio * (whole[rows] - old)

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)
