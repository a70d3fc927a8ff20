"""Loading a token classifier: an encoder that gives every token of a text a label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from cirf import recipe
from cirf.errors import CirfError
from cirf.lm.backbone import explained, load_config, locate, pick_device, where, without_bars
from cirf.lm.number_formats import widen


def load_classifier(source: str | Path, section: recipe.Backbone) -> Any:
    """The token classifier of a folder or hub id, in evaluation mode, on its device.

    ``section``: number format, device, threads, revision.

    Raises:
        CirfError: no such model, another kind of model (its labels would be drawn at random), weights that are not
            safetensors, or no memory for it.
    """
    from transformers import AutoModelForTokenClassification

    if section.threads is not None:
        torch.set_num_threads(section.threads)
    source = locate(source)
    config = load_config(source, section)
    classes = list(getattr(config, "architectures", None) or ("model of no known kind",))
    if not classes[0].endswith("ForTokenClassification"):
        raise CirfError(f"{source}: holds a {classes[0]}, not a token classifier; give a folder or hub id of one")
    target = pick_device(section.device)
    with explained(source, "model"), without_bars():
        model: Any = AutoModelForTokenClassification.from_pretrained(
            str(source), config=config, dtype=getattr(torch, section.dtype), use_safetensors=True, **where(source, section)
        )
        widen(model, section.dtype, target)
    try:
        model.to(target)
    except torch.OutOfMemoryError:
        raise CirfError(f"{source}: too big for the memory of {target}; use a smaller model or device: cpu") from None
    return model.eval()
