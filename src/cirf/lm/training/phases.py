"""Small trainings in sequence, each of a few weights and each done once: after a kill finished ones are not repeated, and an
unfinished one resumes at its last epoch.

A phase trains for some epochs with AdamW at one learning rate, and keeps the weights of the epoch with the lowest held-out loss;
without held-out rows, the last. Held-out rows are those of the validation split.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from cirf.errors import CirfError
from cirf.progress import SILENT, Progress
from cirf.store.files import to_json, whole_path, write_atomic


def save_whole(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write a safetensors file, with its folder, by an atomic rename: a kill leaves no file, or the previous one."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    with whole_path(path) as temporary:
        save_file(plain, temporary)


@dataclass(frozen=True, slots=True)
class Phase:
    """What a phase is called, what of ``module`` it trains (all that has a gradient), and how. ``loss`` is that of some rows, by
    their numbers, as a mean; ``rows`` are trained on, ``held_out`` judged by."""

    name: str
    module: torch.nn.Module
    loss: Callable[[Sequence[int]], torch.Tensor]
    rows: Sequence[int]
    held_out: Sequence[int]
    epochs: int
    rate: float
    decay: float
    batch: int


def run_phase(phase: Phase, folder: Path, seed: int, progress: Progress = SILENT) -> dict[str, Any]:
    """Train the module, or load what it came to before; returns ``{epochs, best, losses}``: of each epoch the mean loss in
    training and of the held-out rows (``None``: there are none), before the first one too.

    ``CirfError`` for a loss that is not a number.
    """
    done, state = folder / f"{phase.name}.safetensors", folder / f"{phase.name}-begun.pt"
    parameters = [(name, value) for name, value in phase.module.named_parameters() if value.requires_grad]
    if done.is_file():
        _put(parameters, load_file(done))
        return phase_report(phase.name, folder)
    optimizer = torch.optim.AdamW([value for _, value in parameters], lr=phase.rate, weight_decay=phase.decay)
    losses: list[dict[str, float | None]] = []
    best: dict[str, torch.Tensor] = {}
    if state.is_file():
        begun = torch.load(state, map_location="cpu", weights_only=True)
        losses, best = begun["losses"], begun["best"]
        _put(parameters, begun["now"])
        optimizer.load_state_dict(begun["optimizer"])
    else:
        losses = [{"train": None, "held_out": _judge(phase)}]
        best = _taken(parameters)
    with progress.task(phase.name, phase.epochs, "epochs", len(losses) - 1) as advance:
        while len(losses) <= phase.epochs:
            epoch = len(losses)
            order = list(phase.rows)
            random.Random(f"phase {phase.name} {seed} {epoch}").shuffle(order)
            made = run_epoch(phase, order, optimizer, [value for _, value in parameters])
            judged = _judge(phase)
            known = [row["held_out"] for row in losses if row["held_out"] is not None]
            losses.append({"train": made, "held_out": judged})
            if judged is None or judged < min(known):
                best = _taken(parameters)
            with whole_path(state) as temporary:
                now = {"losses": losses, "best": best, "now": _taken(parameters), "optimizer": optimizer.state_dict()}
                torch.save(now, temporary)
            advance(1)
    _put(parameters, best)
    kept = [row["held_out"] for row in losses]
    chosen = phase.epochs if None in kept else kept.index(min(loss for loss in kept if loss is not None))
    report = {"epochs": phase.epochs, "best": chosen, "losses": losses}
    write_atomic(folder / f"{phase.name}.json", to_json(report))
    save_whole(best, done)
    state.unlink(missing_ok=True)
    return report


def phase_report(name: str, folder: Path) -> dict[str, Any]:
    """What `run_phase` returned of a phase that it finished in that folder."""
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


def run_epoch(
    phase: Phase, order: Sequence[int], optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]
) -> float:
    """Train on the rows in this order; returns their mean loss."""
    total = 0.0
    for start in range(0, len(order), phase.batch):
        rows = order[start : start + phase.batch]
        optimizer.zero_grad(set_to_none=True)
        loss = phase.loss(rows)
        if not torch.isfinite(loss):
            raise CirfError(f"{phase.name}: the loss is not a number after {start} rows; lower its learning rate")
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        total += float(loss.detach()) * len(rows)
    return round(total / len(order), 6)


@torch.no_grad()
def _judge(phase: Phase) -> float | None:
    rows = list(phase.held_out)
    batches = [rows[start : start + phase.batch] for start in range(0, len(rows), phase.batch)]
    total = sum(float(phase.loss(batch)) * len(batch) for batch in batches)
    return round(total / len(rows), 6) if rows else None


def _taken(parameters: Sequence[tuple[str, torch.nn.Parameter]]) -> dict[str, torch.Tensor]:
    return {name: value.detach().cpu().clone() for name, value in parameters}


def _put(parameters: Sequence[tuple[str, torch.nn.Parameter]], values: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, value in parameters:
            value.copy_(values[name])
