"""Tiny models for every test of this room."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    """The module with builders of tiny models and tokenizers."""
    spec = importlib.util.spec_from_file_location("cirf_lm_tiny", Path(__file__).with_name("tiny.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tokenizer(tiny: Any) -> Any:
    """A tokenizer with a settled ChatML template."""
    from cirf.lm.prompt import settle_template

    made = tiny.build_tokenizer()
    settle_template(made)
    return made


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny models run faster so, and alike on every machine
    yield
    torch.set_num_threads(before)
