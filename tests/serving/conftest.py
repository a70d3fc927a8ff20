"""Tiny models to serve: one that writes traces, and one that writes anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from running import Running
from served import write_models

from cirf.serving.model import Served, load_served


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A saved model of four functional tokens that writes anything, and one without any."""
    return write_models(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def models(folders: tuple[Path, Path]) -> list[Served]:
    """Both, loaded."""
    return [load_served(folder) for folder in folders]


@pytest.fixture(scope="session")
def traces(models: list[Served]) -> Served:
    """The model of functional tokens."""
    return models[0]


@pytest.fixture(scope="session")
def prose(models: list[Served]) -> Served:
    """The model without."""
    return models[1]


@pytest.fixture(scope="module")
def server(models: list[Served]) -> Iterator[Running]:
    """A server of both with the usual limits."""
    with Running(models) as running:
        yield running


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
