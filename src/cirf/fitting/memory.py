"""The memory that a training takes, estimated from the backbone's configuration."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cirf.recipe.schema import Backbone, Finetune, Recipe

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
    """Parameters of a model (all, and those ``inside``, without embeddings), its layers and widths, by its configuration."""
    import torch
    from transformers import AutoModelForCausalLM

    from cirf.lm.backbone import load_config
    from cirf.user_code import may_run

    config = load_config(source, recipe.backbone)
    with torch.device("meta"):
        build: Any = AutoModelForCausalLM.from_config
        model = build(config, trust_remote_code=may_run(recipe.backbone.trust_remote_code))
    linear = sum(
        module.in_features + module.out_features
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name
    )
    text = config.get_text_config()
    count = sum(parameter.numel() for parameter in model.parameters())
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    words = {id(part.weight): part.weight.numel() for part in ends if part is not None}  # one where they are tied
    inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size  # a list where layers are of several widths
    shape = {"layers": text.num_hidden_layers, "width": text.hidden_size, "vocabulary": text.vocab_size}
    shape["inner"] = max(inner) if isinstance(inner, (list, tuple)) else inner
    return {"parameters": count, "inside": count - sum(words.values()), "lora_per_rank": linear} | shape


_KEPT = 3.0
"""Peak memory of a training process on a CPU, without weights, relative to the memory in use at once: glibc keeps freed memory
until it is returned (so does jemalloc, not measured). Measured with LoRA on three methods of a 0.5B model: 2.8, 2.8 and 3.2."""


def training_memory(backbone: Backbone, section: Finetune, sizes: Mapping[str, int], longest: int, longest_target: int) -> float:
    """Bytes of weights, gradients, Adam's two moments and a batch of rows of ``longest`` tokens, ``longest_target`` of them
    targets. ``sizes``: see `parameter_count`."""
    from cirf.cpu.number_formats import computed_in
    from cirf.lm.backbone import pick_device

    device = pick_device(backbone.device)
    own = computed_in(backbone.dtype, device)
    cast = section.bf16 and computed_in("bfloat16", device) == "bfloat16"
    narrow = cast or (section.adaptation == "lora" and own != "float32")
    passing = activations(section, sizes, longest, longest_target, 2.0 if narrow else 4.0)
    if device == "cpu" and platform.libc_ver()[0] == "glibc":
        passing *= _KEPT
    if section.adaptation == "full":
        return (16.0 + (2.0 if narrow else 0.0)) * sizes["parameters"] + passing
    held = 4.0 if own == "float32" else 2.0
    return held * sizes["parameters"] + 16.0 * sizes["lora_per_rank"] * section.lora.rank + passing


def activations(section: Finetune, sizes: Mapping[str, int], longest: int, longest_target: int, a_number: float) -> float:
    """Bytes of a batch of rows of ``longest`` tokens, ``longest_target`` of them targets, at ``a_number`` bytes a number: for a
    token and layer about ten vectors as wide as the model and four as wide as its feed-forward part, and three float32 logits
    (with their gradients) a target token and word. ``sizes``: layers, width, inner and vocabulary."""
    layers = a_number * section.batch_size * longest * sizes["layers"] * (10 * sizes["width"] + 4 * sizes["inner"])
    if section.gradient_checkpointing:
        layers /= sizes["layers"] ** 0.5
    return layers + 3 * 4.0 * section.batch_size * longest_target * sizes["vocabulary"]
