"""Rows of a saved model's matrices, read from its files without loading the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.errors import CirfError
from cirf.store.files import parse_json

if TYPE_CHECKING:
    import numpy as np

    from cirf.analysis.source import Run

_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def functional_rows(folder: Path, size: int, run: Run) -> dict[str, np.ndarray]:
    """The functional tokens' rows [K x d], float32: ``input``, and ``output`` if the model has a separate head.

    ``folder``: a saved model; ``run`` has the settings of its backbone. ``CirfError`` if the model lacks one of the K tokens or
    its files do not match.
    """
    from cirf.lm.backbone import check_weights, load_tokenizer
    from cirf.recipe.schema import Backbone

    check_weights(folder)
    section = Backbone.model_validate({**run.recipe["backbone"], "revision": None})
    vocabulary = load_tokenizer(folder, section).get_vocab()
    names = [f"<cirf_{code:03d}>" for code in range(size)]
    missing = [name for name in names if name not in vocabulary]
    if missing:
        raise CirfError(f"{folder}: the tokenizer lacks {missing[0]}; the model is of a codebook of another size")
    ids = [vocabulary[name] for name in names]
    found = {}
    for matrix, key in zip(("input", "output"), _keys(folder, section), strict=True):
        if key is not None and (file := _file(folder, key)) is not None:
            found[matrix] = _read(folder / file, key, ids)
    if "input" not in found:
        raise CirfError(f"{folder}: its input embeddings are not in its safetensors files; save the model again")
    return found


def parameters(folder: Path) -> int | None:
    """The number of parameters of a saved model, by its tensors' headers; ``None`` if it has no safetensors."""
    from math import prod

    from safetensors import SafetensorError, safe_open

    total = 0
    for path in sorted(folder.glob("model*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                total += sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 (not a mapping)
        except SafetensorError:
            raise CirfError(f"{path}: damaged, or no safetensors; `cirf run` makes the model again") from None
    return total or None


def _keys(folder: Path, section: Any) -> tuple[str | None, str | None]:
    """The names of the input matrix and of the head, from the architecture without weights."""
    import torch
    from transformers import AutoModelForCausalLM

    from cirf.lm.backbone import load_config

    config = load_config(folder, section)
    with torch.device("meta"):
        build: Any = AutoModelForCausalLM.from_config
        model = build(config, trust_remote_code=section.trust_remote_code)
    names = {id(module): f"{name}.weight" for name, module in model.named_modules()}
    first, head = names[id(model.get_input_embeddings())], model.get_output_embeddings()
    return first, None if head is None or getattr(config, "tie_word_embeddings", False) else names[id(head)]


def _file(folder: Path, key: str) -> str | None:
    """The file of a tensor; ``None`` if it is in none."""
    from safetensors import safe_open

    if (folder / _INDEX).is_file():
        found: str | None = parse_json((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].get(key)
        return found
    if not (folder / _WHOLE).is_file():
        return None
    with safe_open(folder / _WHOLE, framework="pt") as file:
        return _WHOLE if key in file.keys() else None  # noqa: SIM118 (not a mapping)


def _read(path: Path, key: str, ids: Sequence[int]) -> np.ndarray:
    """Rows of a tensor; only the part of the file from the first to the last of them is read."""
    from safetensors import safe_open

    first = min(ids)
    with safe_open(path, framework="pt") as file:
        part = file.get_slice(key)
        if max(ids) >= part.get_shape()[0]:
            raise CirfError(f"{path}: {key} has fewer rows than the tokenizer has tokens; save the model again")
        block = part[first : max(ids) + 1].float().numpy()
    rows: np.ndarray = block[[place - first for place in ids]]
    return rows
