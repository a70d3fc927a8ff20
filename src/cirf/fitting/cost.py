"""What a training takes: its updates, and whether these are enough for new tokens to be learned; memory, by the backbone's
configuration; and time, by a timed matrix product.

A worked example: 285 rows in batches of 8, 2 an update, make 18 updates a pass and so 36 in 2 passes, which are too few.

How large a model is by its name, for one that is not on this machine: 1.7 billion for ``Qwen/Qwen3-1.7B``.
"""

from __future__ import annotations

import dataclasses
import math
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cirf.recipe.schema import TOO_FEW_UPDATES, Backbone, Finetune, Recipe
from cirf.user_code import may_run


@dataclass(frozen=True, slots=True)
class Updates:
    """The updates of one training: of ``rows`` rows, in ``passes`` epochs; ``summary`` describes them in a line."""

    rows: int
    passes: float
    updates: int
    too_few: bool
    summary: str

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def updates_of(section: Finetune, rows: int) -> Updates:
    """The updates that ``rows`` training rows make by a recipe's section, on one machine, and what to do about too few."""
    settled = section.settled(rows)
    passes = settled.epochs if isinstance(settled.epochs, float) else 0.0  # auto, of no rows
    updates = max(1, math.ceil(passes * settled.an_epoch(rows) - 1e-9)) if rows else 0
    too_few = updates < TOO_FEW_UPDATES
    summary = f"updates: {_number(rows, 'row')} make{'s' if rows == 1 else ''} {_number(updates, 'update')} in {passes:g} passes"
    if too_few:
        summary += f"; fewer than {TOO_FEW_UPDATES} are too few for new tokens to be learned: {_advice(section)}"
    return Updates(rows, passes, updates, too_few, summary)


def _number(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _advice(section: Finetune) -> str:
    steps = [] if section.epochs == "auto" else ["set finetune.epochs: auto"]
    if section.gradient_accumulation_steps > 1:
        steps.append("lower finetune.gradient_accumulation_steps")
    elif section.epochs == "auto" and section.batch_size > 1:
        steps.append("lower finetune.batch_size")
    if section.epochs == "auto":
        steps.append("add rows")
    return ", or ".join(steps)


def shares(section: Finetune, processes: int) -> float:
    """The time of an update by so many processes, which share its passes, relative to that of one process."""
    passes = section.gradient_accumulation_steps
    return math.ceil(passes / processes) / passes


def idle(section: Finetune, processes: int) -> str | None:
    """A sentence where the passes of an update do not come out even among so many processes: the share of their time in which
    they wait, and the next number that does."""
    passes = section.gradient_accumulation_steps
    if passes % processes == 0:
        return None
    even = math.ceil(passes / processes) * processes
    rows = section.batch_size * passes
    smaller = f", and finetune.batch_size to {rows // even} for as many rows an update" if rows % even == 0 else ""
    return (
        f"finetune.gradient_accumulation_steps: {passes} is not a multiple of the {processes} processes, which idle "
        f"{1 - passes / even:.0%} of the time in training; set it to {even}{smaller}"
    )


_SIZE = re.compile(r"(?<![\d.])(\d{1,4}(?:\.\d{1,3})?)\s?([bm])(?![a-z])", re.IGNORECASE)


def size_in_name(model: str) -> int | None:
    """The number of parameters in a model's name; ``None`` if there is none."""
    found = _SIZE.search(model.rpartition("/")[2])
    return None if found is None else int(float(found[1]) * (10**9 if found[2] in "bB" else 10**6)) or None


def in_words(parameters: int) -> str:
    """``494 million``, ``1.7 billion``."""
    if parameters < 1_000_000:
        return f"{parameters:,}"
    return f"{parameters / 1e9:.1f} billion" if parameters >= 999_500_000 else f"{parameters / 1e6:.0f} million"


GIB = 2**30


@dataclass(frozen=True, slots=True)
class Room:
    """Memory for trainings: the bytes that are ``free``, and those that ``traces`` and ``prose`` need with a number of rows a
    forward pass."""

    free: int
    traces: Callable[[int], float]
    prose: Callable[[int], float]

    def batch(self, rows: int, needed: Callable[[int], float]) -> int:
        """``rows`` a forward pass, or the half, quarter, ... of them that fits; at least one."""
        while rows > 1 and needed(rows) > self.free:
            rows //= 2
        return rows

    def reason(self, rows: int, needed: Callable[[int], float]) -> str:
        """Why not ``rows``."""
        return f"{rows} rows would take about {needed(rows) / GIB:.1f} GiB of memory, and {self.free / GIB:.1f} are free"


def parameter_count(source: str | Path, recipe: Recipe) -> dict[str, int]:
    """The `sizes_of` a model, by its configuration."""
    import torch
    from transformers import AutoModelForCausalLM

    from cirf.lm.backbone import check_causal, load_config

    config = load_config(source, recipe.backbone)
    check_causal(config, source)
    with torch.device("meta"):
        build: Any = AutoModelForCausalLM.from_config
        model = build(config, trust_remote_code=may_run(recipe.backbone.trust_remote_code))
    return sizes_of(model)


def sizes_of(model: Any) -> dict[str, int]:
    """Parameters of a model: all, those ``inside``, without embeddings, and those of the largest ``layer``; of an adapter of rank
    one, of all layers and of the largest; its layers, widths and embedding ``matrices``, one where they are tied."""
    text = model.config.get_text_config()
    count = sum(parameter.numel() for parameter in model.parameters())
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    words = {id(part.weight): part.weight.numel() for part in ends if part is not None}
    kinds = set(model._no_split_modules or ())
    layers = [module for module in model.modules() if type(module).__name__ in kinds]
    largest = max(layers, key=_held, default=None)
    inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size  # a list where layers are of several widths
    shape = {"layers": text.num_hidden_layers, "width": text.hidden_size, "vocabulary": text.vocab_size}
    shape["inner"] = max(inner) if isinstance(inner, (list, tuple)) else inner
    inside, adapted = count - sum(words.values()), _adapted(model)
    layer = (
        {"layer": inside, "layer_per_rank": adapted}
        if largest is None
        else {
            "layer": _held(largest),
            "layer_per_rank": _adapted(largest),
        }
    )
    return {"parameters": count, "inside": inside, "lora_per_rank": adapted, "matrices": len(words)} | layer | shape


def _held(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _adapted(module: Any) -> int:
    """Weights of an adapter of rank one on every linear layer but the head."""
    import torch

    return sum(
        part.in_features + part.out_features
        for name, part in module.named_modules()
        if isinstance(part, torch.nn.Linear) and "lm_head" not in name
    )


_KEPT = 3.0
"""Peak memory of a training process on a CPU, without weights, relative to the memory in use at once: glibc keeps freed memory
until it is returned (so does jemalloc, not measured). Measured with LoRA on three methods of a 0.5B model: 2.8, 2.8 and 3.2."""


def _computed(backbone: Backbone, section: Finetune) -> tuple[str, str, bool]:
    """The device of a training, the number format of its frozen weights, and whether it computes in bfloat16 by autocast."""
    from cirf.cpu.number_formats import computed_in
    from cirf.lm.backbone import pick_device

    device = pick_device(backbone.device)
    cast = section.bf16 and computed_in("bfloat16", device) == "bfloat16"
    return device, computed_in(backbone.dtype, device), cast


def training_memory(
    backbone: Backbone, section: Finetune, sizes: Mapping[str, int], longest: int, longest_target: int, shards: int = 1
) -> float:
    """Bytes of weights, gradients, Adam's two moments and a batch of rows of ``longest`` tokens, ``longest_target`` of them
    targets; of each process where so many share the weights. ``sizes``: see `sizes_of`."""
    device, own, cast = _computed(backbone, section)
    narrow = cast or (section.adaptation == "lora" and own != "float32")
    passing = activations(section, sizes, longest, longest_target, 2.0 if narrow else 4.0)
    if device == "cpu" and platform.libc_ver()[0] == "glibc":
        passing *= _KEPT
    held = 4.0 if own == "float32" else 2.0
    if shards > 1:
        return sum(shard_memory(section, sizes, held, shards).values()) + passing
    if section.adaptation == "full":
        return (16.0 + (2.0 if narrow else 0.0)) * sizes["parameters"] + passing
    return held * sizes["parameters"] + 16.0 * sizes["lora_per_rank"] * section.lora.rank + passing


def shard_memory(
    section: Finetune, sizes: Mapping[str, int], a_weight: float, shards: int, new_rows: int = 0
) -> dict[str, float]:
    """Bytes of each process of a training that shares its weights: its part of weights, gradients and moments, and what is
    gathered at once. ``a_weight``: bytes of a frozen weight; trained ones have four. ``new_rows``: of each embedding matrix,
    trained next to adapters."""
    full, rank, rows = section.adaptation == "full", section.lora.rank, sizes["width"] * new_rows
    trained = sizes["parameters"] if full else sizes["lora_per_rank"] * rank + sizes["matrices"] * rows
    words = (sizes["parameters"] - sizes["inside"]) // max(1, sizes["matrices"])
    whole = [(sizes["layer"], sizes["layer_per_rank"] * rank)] * min(2, sizes["layers"]) + [(words, rows)] * sizes["matrices"]
    parts = [(4.0 * held, 4.0 * held) if full else (a_weight * held + 4.0 * added, 4.0 * added) for held, added in whole]
    frozen = 0.0 if full else a_weight * sizes["parameters"]
    divided = {"weights": frozen + 4.0 * trained, "gradients": 4.0 * trained, "moments": 8.0 * trained}
    return {name: size / shards for name, size in divided.items()} | {"gathered": most_gathered(parts)}


def most_gathered(parts: Sequence[tuple[float, float]]) -> float:
    """The most bytes that sharded training gathers at once: two of the ``parts`` (layers and embedding matrices), one of them
    while the other computes, and the gradients of one. Each is given by its bytes of weights, and of gradients."""
    return sum(sorted(weights for weights, _ in parts)[-2:]) + max((gradients for _, gradients in parts), default=0.0)


def activations(section: Finetune, sizes: Mapping[str, int], longest: int, longest_target: int, a_number: float) -> float:
    """Bytes of a batch of rows of ``longest`` tokens, ``longest_target`` of them targets, at ``a_number`` bytes a number: for a
    token and layer about ten vectors as wide as the model and four as wide as its feed-forward part, and three float32 logits
    (with their gradients) a target token and word. ``sizes``: layers, width, inner and vocabulary."""
    layers = a_number * section.batch_size * longest * sizes["layers"] * (10 * sizes["width"] + 4 * sizes["inner"])
    if section.gradient_checkpointing:
        layers /= sizes["layers"] ** 0.5
    return layers + 3 * 4.0 * section.batch_size * longest_target * sizes["vocabulary"]


_SHARE = 0.6
"""Speed of a training relative to that of its largest matrix products. Measured once, with LoRA of a
135M model on a CPU that other work shared: 0.57 in processor time."""

_LEAST_ROWS, _MOST_ROWS, _PRODUCT = 64, 4096, 2**32
"""Rows of the timed product, and its most multiplications on a CPU, so that it takes no more than seconds."""


def operations(section: Finetune, sizes: Mapping[str, int], tokens: float, target_tokens: float) -> float:
    """Floating-point operations of training on ``tokens``, ``target_tokens`` of them targets. ``sizes``: see `sizes_of`.

    A weight costs two for a token going forward and two for the gradient of its input; two more for its own gradient where it is
    trained. The head's weights are used for targets alone. Adapters and attention are small compared with these and left out.
    """
    each = 6.0 if section.adaptation == "full" else 4.0
    return each * (sizes["inside"] * tokens + sizes["width"] * sizes["vocabulary"] * target_tokens)


def speed(backbone: Backbone, section: Finetune, sizes: Mapping[str, int], row_tokens: float) -> float:
    """Floating-point operations a second of a training with rows of ``row_tokens``, by timing a product of the backbone's
    shape."""
    device, own, cast = _computed(backbone, section)
    kept = "float32" if section.adaptation == "full" else own
    rows = 2 ** round(math.log2(section.batch_size * max(1.0, row_tokens)))  # about as many as a batch has tokens
    most = min(_MOST_ROWS, (_PRODUCT if device == "cpu" else 64 * _PRODUCT) // (sizes["width"] * sizes["inner"]))
    shape = (max(_LEAST_ROWS, min(rows, most)), sizes["width"], sizes["inner"])
    return _SHARE * 2.0 * math.prod(shape) / _product_seconds(*shape, "bfloat16" if cast else kept, device)


@cache
def _product_seconds(rows: int, width: int, inner: int, dtype: str, device: str) -> float:
    """The shortest time of a matrix product in a fifth of a second, at the present load of the machine."""
    import torch

    left, right = (torch.ones(*shape, dtype=getattr(torch, dtype), device=device) for shape in ((rows, width), (width, inner)))
    taken, began = list[float](), time.perf_counter()
    while len(taken) < 2 or time.perf_counter() - began < 0.2:
        start = time.perf_counter()
        left @ right
        getattr(torch, torch.device(device).type).synchronize()
        taken.append(time.perf_counter() - start)
    return min(taken)


def in_hours(seconds: float) -> str:
    """``3.5 hours``, ``25 minutes``."""
    if seconds < 90 * 60:
        minutes = max(1, round(seconds / 60))
        return f"{minutes} minute{'s' * (minutes > 1)}"
    return f"{seconds / 3600:.1f} hours"
