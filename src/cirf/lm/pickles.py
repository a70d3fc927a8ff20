"""No pickled weights while a model is loaded: unpickling can run code.

``use_safetensors=True`` of transformers is not enough: an index may name ``.bin`` files, and the modules of a sentence model,
such as its dense layer, fall back to ``pytorch_model.bin``. All of them open it with ``torch.load``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import torch

from cirf.errors import CirfError


@contextlib.contextmanager
def no_pickles(source: str | Path) -> Iterator[None]:
    """Refuse every pickle that loading ``source`` would open, unopened: ``CirfError``, whatever the library makes of that."""
    refused: list[str] = []

    def refuse(file: Any, *args: Any, **kwargs: Any) -> NoReturn:
        refused.append(Path(str(file)).name)
        raise ValueError("a pickle")

    try:
        with patch.object(torch, "load", refuse):
            yield
    finally:
        if refused:
            raise CirfError(
                f"{source}: {refused[0]} holds pickled weights, which may run code when they are loaded; "
                "save the model with its weights as safetensors"
            ) from None
