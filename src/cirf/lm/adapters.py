"""LoRA adapters on a model: one set, or a second one beside it that other passes go through (PEFT)."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from cirf import recipe
from cirf.errors import CirfError


def put_adapters(model: Any, section: recipe.Lora) -> Any:
    """The model with adapters, which alone are trained. ``CirfError`` where they name no layer of it."""
    from peft import get_peft_model

    try:
        with _quiet():
            return get_peft_model(model, _config(section))
    except ValueError as error:
        why = str(error).splitlines()[0][:120]
        raise CirfError(
            f"finetune.lora.targets: {section.targets!r} names no layer of this model ({why}); use all-linear"
        ) from None


def add_second(model: Any, section: recipe.Lora, name: str, seed: int) -> None:
    """Put a second set of adapters, trained as the first is, on a model that has one. The seed alone decides its first weights,
    and nothing goes through it but within `through`."""
    first = model.active_adapter
    with torch.random.fork_rng(devices=[]), _quiet():
        torch.default_generator.manual_seed(seed)
        model.add_adapter(name, _config(section))
    _choose(model, first, [first, name])


@contextlib.contextmanager
def through(model: Any, name: str) -> Iterator[None]:
    """Within, passes go through the adapters of that name and not through the first ones. All of them stay trained."""
    first = model.active_adapter
    _choose(model, name, [first, name])
    try:
        yield
    finally:
        _choose(model, first, [first, name])


def _choose(model: Any, name: str, trained: list[str]) -> None:
    model.set_adapter(name)
    model.set_requires_grad(trained)  # PEFT freezes those that are not chosen


def _config(section: recipe.Lora) -> Any:
    from peft import LoraConfig

    targets = section.targets
    return LoraConfig(
        r=section.rank,
        lora_alpha=section.alpha,
        lora_dropout=section.dropout,
        target_modules=targets if targets == "all-linear" else [name.strip() for name in targets.split(",")],
        task_type="CAUSAL_LM",
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        # PEFT mends `fan_in_fan_out` for GPT-2's layers itself, and asks transformers by an old name about checkpointing.
        warnings.filterwarnings("ignore", message="fan_in_fan_out")
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield
