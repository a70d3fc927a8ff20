"""LoRA adapters on a model: one set, or two, of which other passes use the second (PEFT)."""

from __future__ import annotations

import contextlib
import copy
import re
import warnings
from collections.abc import Collection, Iterator
from typing import Any

import torch

from cirf.errors import CirfError
from cirf.recipe import schema

_INCOMPATIBLE = re.compile(r"Module '([^']+)' is incompatible")
"""What PEFT says of a layer whose weights a kernel reads without calling it (Mamba's ``out_proj``)."""


def put_adapters(model: Any, section: schema.Lora) -> Any:
    """The model with adapters, which alone are trained; with ``all-linear`` on all layers that PEFT can adapt. ``CirfError``: the
    recipe names no layer of the model, or one that cannot have an adapter."""
    from peft import get_peft_model

    refused = _routers(model)
    while True:
        try:
            with _quiet():
                return get_peft_model(model, _config(section, refused))
        except ValueError as error:
            _take_off(model)
            why = str(error).strip()
            found = _INCOMPATIBLE.search(why)
            if section.target_modules == "all-linear" and found and found[1] not in refused:
                refused.append(found[1])
                continue
            raise CirfError(f"finetune.lora.target_modules: {_explained(model, section.target_modules, why, found)}") from None


def check_adapters(config: Any, section: schema.Lora) -> None:
    """`put_adapters` on a model of this configuration without weights, to raise its ``CirfError`` before any work."""
    from transformers import AutoModelForCausalLM

    causal: Any = AutoModelForCausalLM
    try:
        with torch.device("meta"):
            model = causal.from_config(copy.deepcopy(config))
    except Exception:  # custom code, or kernels that need a device: checked when the model itself is loaded
        return
    put_adapters(model, section)


def _routers(model: Any) -> list[str]:
    """Names of linear layers that, without their weights, do not give what such a layer gives (Llama 4's router)."""
    odd = []
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and type(layer).__module__.startswith("transformers"):
            with contextlib.suppress(Exception):
                out = copy.deepcopy(layer).to("meta")(torch.empty(3, layer.in_features, device="meta", dtype=layer.weight.dtype))
                if isinstance(out, torch.Tensor) and out.shape == (3, layer.out_features):
                    continue
            odd.append(name)
    return odd


def _explained(model: Any, targets: str, why: str, found: re.Match[str] | None) -> str:
    """Why these targets fail, and what else there is."""
    head = model.get_output_embeddings()
    linear = [name for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear) and layer is not head]
    names = list(dict.fromkeys(name.rpartition(".")[2] for name in linear))
    full = "set finetune.adaptation: full"
    if targets == "all-linear":
        return f"no linear layer of this model can have an adapter ({why.splitlines()[0][:120]}); {full}"
    if found:
        return f"{found[1]} of this model cannot have an adapter; set all-linear, which leaves it out, or {full}"
    some = ", ".join(names[:8])
    return f"{targets!r} names no layer that can have an adapter ({why.splitlines()[0][:120]}); use all-linear, or some of {some}"


def _take_off(model: Any) -> None:
    """Undo adapters that were put on a part of the layers."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, layer in list(model.named_modules()):
        if isinstance(layer, BaseTunerLayer):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, layer.get_base_layer())


def add_second(model: Any, section: schema.Lora, name: str, seed: int) -> None:
    """Put a second set of adapters, trained as the first is, on a model that has one. The seed alone decides its first weights,
    and nothing goes through it but within `through`."""
    first = model.active_adapter
    with seeded(seed), _quiet():
        model.add_adapter(name, _config(section, model.peft_config[first].exclude_modules))
    _choose(model, first, [first, name])


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within, weights made on the CPU depend on the seed alone. All random numbers elsewhere, on a GPU too, are as without it:
    ``torch.manual_seed`` would seed those of GPUs."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


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


def _config(section: schema.Lora, refused: Collection[str] | None = None) -> Any:
    from peft import LoraConfig

    targets = section.target_modules
    return LoraConfig(
        r=section.rank,
        lora_alpha=section.alpha,
        lora_dropout=section.dropout,
        target_modules=targets if targets == "all-linear" else [name.strip() for name in targets.split(",")],
        exclude_modules=list(refused) if refused else None,
        task_type="CAUSAL_LM",
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        # PEFT mends `fan_in_fan_out` for GPT-2's layers itself, and asks transformers by an old name about checkpointing.
        warnings.filterwarnings("ignore", message="fan_in_fan_out")
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield
