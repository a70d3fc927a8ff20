"""The training loop: transformers' Trainer with our loss, our order of rows and checkpoints that survive a kill."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import AutocastKwargs
from safetensors.torch import load_file, save_file
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME

from cirf.cpu.memory import release_freed_memory, scarce
from cirf.cpu.number_formats import computed_in
from cirf.distributed import world_size
from cirf.errors import CirfError
from cirf.lm.training.batches import Feature, LengthSampler
from cirf.lm.training.checkpoints import complete, disk_errors
from cirf.lm.training.objective import Curriculum, Objective
from cirf.lm.training.sharding import (
    clip_gradients,
    free_gathered,
    gathered,
    gathered_optimizer,
    is_sharded,
    load_optimizer,
    local,
    part_of,
)
from cirf.lm.training.spec import TrainingData, TrainingSpec
from cirf.progress import Progress
from cirf.recipe import schema
from cirf.store.files import write_atomic

_WEIGHTS = "trainable.safetensors"
_SECONDS = "seconds"


_BLANK = -1
"""The index of a row that has no target."""


class Features(torch.utils.data.Dataset[Feature]):
    """Features as the Trainer wants them; a curriculum's are indexed by row and update."""

    def __init__(self, features: Sequence[Feature], curriculum: Curriculum | None = None) -> None:
        self.features, self.curriculum = features, curriculum

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int | tuple[int, int]) -> Feature:
        place, *update = index if isinstance(index, tuple) else (index,)
        if place == _BLANK:
            return Feature(self.features[0].ids[:2], 2)
        if not update:
            return self.features[place]
        assert self.curriculum is not None
        return self.curriculum.feature(place, *update)


class UpdateSampler(torch.utils.data.Sampler[Any]):
    """The rows of another sampler, update by update: the same rows an update on any number of processes.

    The processes share the passes of an update. If these do not divide evenly, the update is filled up: with rows without
    targets, or with the epoch's first rows again if the objective needs targets.
    """

    def __init__(
        self, order: LengthSampler, batch: int, passes: int, processes: int = 1, numbered: bool = False, blank: bool = True
    ) -> None:
        """``batch``: rows a pass; ``passes``: of an update, on all processes together; ``numbered``: each row comes with the
        number of its update; ``blank``: fill up with rows without targets."""
        self.order, self.rows_an_update = order, batch * passes
        self._multiple = batch * processes if processes > 1 else 1
        self._numbered, self._blank = numbered, blank

    def set_epoch(self, epoch: int) -> None:
        self.order.set_epoch(epoch)

    def __len__(self) -> int:
        whole, rest = divmod(len(self.order), self.rows_an_update)
        return (
            sum(count * math.ceil(rows / self._multiple) for count, rows in ((whole, self.rows_an_update), (1, rest)))
            * self._multiple
        )

    def __iter__(self) -> Iterator[Any]:
        rows = list(self.order)
        updates = range(math.ceil(len(rows) / self.rows_an_update))
        fill = itertools.cycle([_BLANK] if self._blank else rows)
        for update in updates:
            own = rows[update * self.rows_an_update : (update + 1) * self.rows_an_update]
            own += itertools.islice(fill, -len(own) % self._multiple)
            yield from ((row, self.order.epoch * len(updates) + update) for row in own) if self._numbered else own


class TargetTrainer(Trainer):
    """Trains on target tokens alone; the loss of an update is the mean over all its target tokens, on all processes."""

    def __init__(
        self,
        model: Any,
        args: TrainingArguments,
        data: TrainingData,
        spec: TrainingSpec,
        objective: Objective,
        padding: int,
        prepare: Callable[[torch.optim.Optimizer], None] | None = None,
    ) -> None:
        """``objective`` is minimised; ``padding`` is the id that fills rows up; ``prepare`` is given the optimiser when it is
        made."""
        self.objective: Objective = objective
        self._padding, self._prepare = padding, prepare
        self._validation, self.curriculum = data.validation, data.curriculum
        self._group, self._passes = spec.section.group_by_length, spec.section.gradient_accumulation_steps
        self._codes = torch.tensor(list(spec.codes))
        self._lengths = [len(feature.ids) for feature in data.features]
        self._before, self._begun = 0.0, time.perf_counter()
        super().__init__(
            model=model, args=args, train_dataset=Features(data.features, data.curriculum), data_collator=self._collate
        )
        self.model_accepts_loss_kwargs = True  # so that the targets of the whole update are counted
        self.loss_is_scaled_for_ga = True
        if is_sharded(model):
            self.accelerator.clip_grad_norm_ = clip_gradients

    def _collate(self, features: Sequence[Feature]) -> dict[str, torch.Tensor]:
        return self.objective.collate(features, self._padding)

    def _get_train_sampler(self, train_dataset: Any = None) -> torch.utils.data.Sampler[Any]:
        batch, processes = self.args.per_device_train_batch_size, self.accelerator.num_processes
        order = LengthSampler(self._lengths, batch, self.args.seed, self._group)
        return UpdateSampler(order, batch, self._passes, processes, self.curriculum is not None, self.objective.plain)

    def rows_of(self, update: int) -> list[int]:
        """The rows of an update, counted from 1, of all processes: their places among the training rows."""
        size, batch = len(self._lengths), self.args.per_device_train_batch_size
        share = batch * self._passes
        epoch, place = divmod(update - 1, math.ceil(size / share))
        order = LengthSampler(self._lengths, batch, self.args.seed, self._group)
        order.set_epoch(epoch)
        return list(order)[place * share : (place + 1) * share]

    def create_optimizer(self, *args: Any, **keys: Any) -> torch.optim.Optimizer:
        made = self.optimizer is None
        optimizer: torch.optim.Optimizer = super().create_optimizer(*args, **keys)
        if made and self._prepare is not None:
            self._prepare(optimizer)
        return optimizer

    def _autocast(self) -> contextlib.AbstractContextManager[None]:
        """The Trainer's. Casts of gathered weights are not cached, or they would add up to the whole model."""
        handler = AutocastKwargs(cache_enabled=False) if is_sharded(self.model) else None
        made: contextlib.AbstractContextManager[None] = self.accelerator.autocast(autocast_handler=handler)
        return made

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        with self._autocast():  # also outside the model; weights are cast once for all passes
            loss = self.objective.loss(model, inputs, num_items_in_batch)
        return loss * self.accelerator.num_processes  # gradients are averaged over the processes

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> dict[str, float]:
        """Mean negative log-likelihood of the validation rows' target tokens, of those from the answer on, and of the functional
        tokens, which measures how well each is predicted from the text before it."""
        size = self.args.per_device_train_batch_size
        order = sorted(range(len(self._validation)), key=lambda i: len(self._validation[i].ids))
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        ranks, rank = self.accelerator.num_processes, self.accelerator.process_index
        model, sums = self.model_wrapped, torch.zeros(6, dtype=torch.float64)
        model.eval()
        with torch.no_grad():
            for turn in range(math.ceil(len(batches) / ranks)):
                mine = turn * ranks + rank
                # Every process makes as many passes as the others.
                rows = [self._validation[i] for i in batches[min(mine, len(batches) - 1)]]
                inputs = self._prepare_inputs(self._collate(rows))
                with self._autocast():
                    logits, targets = self.objective.logits(model, inputs)
                if mine < len(batches):
                    nll = torch.nn.functional.cross_entropy(logits, targets, reduction="none").double().cpu()
                    answers = answer_places(rows)
                    coded = torch.isin(targets.cpu(), self._codes)
                    parts = (torch.ones_like(coded), answers, coded)
                    counted = [number for part in parts for number in (nll[part].sum().item(), int(part.sum()))]
                    sums += torch.tensor(counted, dtype=torch.float64)
        model.train()
        free_gathered(self.model)
        sums = self.accelerator.reduce(sums.float().to(self.args.device) if ranks > 1 else sums)
        metrics = {f"{metric_key_prefix}_loss": float(sums[0] / sums[1])}
        for name, total, count in (("answer", sums[2], sums[3]), ("code", sums[4], sums[5])):
            if count > 0:
                metrics[f"{metric_key_prefix}_{name}_loss"] = float(total / count)
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def floating_point_ops(self, inputs: Any) -> int:
        return 0

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        with disk_errors(folder):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                write_atomic(folder / _SECONDS, f"{self.seconds():.3f}")
                complete(folder)

    def begin(self, checkpoint: Path | None) -> None:
        """Start the clock, at what it showed when ``checkpoint`` was saved."""
        seconds_file = checkpoint / _SECONDS if checkpoint is not None else None
        self._before = float(seconds_file.read_text()) if seconds_file is not None and seconds_file.exists() else 0.0
        self._begun = time.perf_counter()

    def seconds(self) -> float:
        """Seconds of training, those before the checkpoint it went on from included."""
        return self._before + time.perf_counter() - self._begun

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write what is trained, whole, by the main process; all of them must call it."""
        weights = gathered(dict(_trainable(self.model)))
        if self.args.should_save:
            folder = output_dir or str(self.args.output_dir)
            os.makedirs(folder, exist_ok=True)
            save_file({name: weight.contiguous() for name, weight in weights.items()}, os.path.join(folder, _WEIGHTS))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        saved = load_file(os.path.join(resume_from_checkpoint, _WEIGHTS))
        with torch.no_grad():
            for name, parameter in _trainable(self.model):
                local(parameter).copy_(local(part_of(saved[name], parameter)))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not is_sharded(self.model):
            return super()._save_optimizer_and_scheduler(output_dir)
        optimizer = gathered_optimizer(self.optimizer)
        if self.args.should_save:
            torch.save(optimizer, os.path.join(output_dir, OPTIMIZER_NAME))
            assert self.lr_scheduler is not None
            torch.save(self.lr_scheduler.state_dict(), os.path.join(output_dir, SCHEDULER_NAME))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None or not is_sharded(self.model):
            return super()._load_optimizer_and_scheduler(checkpoint)
        optimizer = torch.load(os.path.join(checkpoint, OPTIMIZER_NAME), map_location="cpu", mmap=True, weights_only=True)
        load_optimizer(self.optimizer, optimizer)
        assert self.lr_scheduler is not None
        self.lr_scheduler.load_state_dict(torch.load(os.path.join(checkpoint, SCHEDULER_NAME), weights_only=True))

    def _move_model_to_device(self, model: Any, device: torch.device) -> None:
        if not is_sharded(model):  # whose parts are there
            super()._move_model_to_device(model, device)


def answer_places(rows: Sequence[Feature]) -> torch.Tensor:
    """Of the targets of some rows, in order, which belong to the answer [n]."""
    kept = [index >= row.answer if row.answer is not None else False for row in rows for index in range(row.start, len(row.ids))]
    return torch.tensor(kept, dtype=torch.bool)


def _trainable(model: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)


class DivergedError(CirfError):
    """The loss or gradient of an update is not a number; the message names its rows."""


class AlreadyTrained(Exception):
    """A training resumed from its last update has nothing left to do; the Trainer would do one update more."""


class TrainingControl(TrainerCallback):
    """When to evaluate, to save and to forget the optimiser's moments, a bar, and a stop at the last update or where the loss or
    its gradient becomes NaN, before anything is saved, so that the last checkpoint is valid."""

    def __init__(
        self,
        save_steps: int,
        eval_steps: int,
        validate: bool,
        stack: contextlib.ExitStack,
        progress: Progress,
        title: str,
        rows: Callable[[int], str],
        curriculum: Curriculum | None = None,
    ) -> None:
        """``stack`` closes the bar; ``rows`` names those of an update, counted from 1."""
        self._curriculum, self._rows = curriculum, rows
        self._save, self._evaluate, self._validate = save_steps, eval_steps, validate
        self._stack, self._progress, self._title = stack, progress, title
        self._advance: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            bar = self._progress.task(self._title, state.max_steps, "updates", state.global_step)
            self._advance = self._stack.enter_context(bar)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._curriculum is not None and self._curriculum.fresh(state.global_step):
            getattr(kwargs["optimizer"], "optimizer", kwargs["optimizer"]).state.clear()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step >= state.max_steps:
            raise AlreadyTrained

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        last = state.global_step >= state.max_steps
        control.should_log = True
        # Evaluation comes before saving within an update, so a checkpoint holds all that was measured up to it.
        control.should_evaluate = self._validate and (last or state.global_step % self._evaluate == 0)
        control.should_save = last or state.global_step % self._save == 0
        if self._advance is not None:
            self._advance(1)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        bad = [what for what in ("loss", "grad_norm") if logs and not math.isfinite(logs.get(what, 0.0))]
        if bad:
            what = {"loss": "the training loss", "grad_norm": "the gradient"}[bad[0]]
            where = f"update {state.global_step} ({self._rows(state.global_step)})"
            raise DivergedError(f"{what} is not a number in {where}; lower finetune.learning_rate")


class ReleaseMemory(TrainerCallback):
    """Hands memory that is kept but no longer used back to the system now and then, and whenever little is left."""

    every = 16  # updates: clearing pages again costs some seconds per minutes of training

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.every == 0 or scarce():
            release_freed_memory()


def arguments(
    section: schema.Finetune, total: int, warmup: int, learning_rate: float, folder: Path, seed: int, device: str, name: str
) -> TrainingArguments:
    """The Trainer's settings for a section of the recipe; trackers know the training by ``name``."""
    schedule = {"cosine": "cosine_with_min_lr", "linear": "linear", "constant": "constant_with_warmup"}[section.lr_scheduler_type]
    kind = torch.device(device).type
    args = TrainingArguments(
        output_dir=str(folder),
        run_name=name,
        max_steps=total,
        per_device_train_batch_size=section.batch_size,
        gradient_accumulation_steps=math.ceil(section.gradient_accumulation_steps / world_size()),
        learning_rate=learning_rate,
        weight_decay=section.weight_decay,
        adam_beta1=section.adam_beta1,
        adam_beta2=section.adam_beta2,
        adam_epsilon=section.adam_epsilon,
        max_grad_norm=section.max_grad_norm,
        warmup_steps=warmup,
        lr_scheduler_type=schedule,
        lr_scheduler_kwargs={"min_lr_rate": section.min_lr_ratio} if section.lr_scheduler_type == "cosine" else {},
        optim="adamw_torch_fused" if kind in ("cpu", "cuda") else "adamw_torch",
        bf16=section.bf16 and computed_in("bfloat16", device) == "bfloat16",
        use_cpu=kind == "cpu",
        seed=seed,
        # When to log, evaluate and save is decided by `TrainingControl`.
        logging_strategy="no",
        eval_strategy="no",
        save_strategy="no",
        logging_nan_inf_filter=False,
        report_to=list(section.report_to) or "none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=kind == "cuda",
        ddp_find_unused_parameters=False,
        ddp_broadcast_buffers=False,  # they never change; and processes may make unlike numbers of passes
        label_names=["labels"],
    )
    if args.parallel_mode.value == "not_distributed":
        args._n_gpu = min(args.n_gpu, 1)  # several GPUs without a launcher: the first one, not threads over all
    return args
