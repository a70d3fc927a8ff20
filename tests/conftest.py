"""What all tests share: the bundled models, for the tests marked ``real``, and everything for a whole run in miniature."""

from __future__ import annotations

import functools
import gc
import importlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import nursery
import pytest
import tinyrun
import typer
from hypothesis import HealthCheck, settings

from cirf.assets import resolve
from cirf.errors import CirfError
from cirf.user_code import look_only

# A busy machine is no failure: how long an example takes says nothing of what it shows.
settings.register_profile("cirf", deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("cirf")

_ROOM = 8 * 2**30
"""Bytes, several times what all tests write."""


def pytest_configure() -> None:
    """Keep temporary files in memory where there is room for them: many small ones are written to last. Tiny models are loaded
    without threads, whose start would take a sixth of the time."""
    os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")
    memory, summary = Path("/dev/shm"), Path("/proc/meminfo")
    if not memory.is_dir() or not os.access(memory, os.W_OK) or not summary.is_file():
        return
    available = 1024 * int(next(line.split()[1] for line in summary.read_text().splitlines() if line.startswith("MemAvailable")))
    if min(shutil.disk_usage(memory).free, available) > _ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole runs come first, so that at the end no worker waits for another's long test."""
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Where tests run, take the libraries' million objects out of garbage collections, which runs in miniature would spend half
    their time in; and keep a process to fork others from."""
    options = session.config.option
    if options.collectonly or (getattr(options, "dist", "no") != "no" and not hasattr(session.config, "workerinput")):
        return
    for name in ("accelerate", "matplotlib.pyplot", "peft", "sentence_transformers", "sklearn.metrics", "transformers.trainer"):
        importlib.import_module(name)
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("torch")]:
        logging.getLogger(name).propagate = True  # pytest attaches itself to every logger that does not, three times a test
    gc.collect()
    gc.freeze()
    nursery.open_nursery()


@pytest.fixture(scope="module", autouse=True)
def _objects_apart() -> None:
    """The same for what the modules before have left: a run collects garbage many times. Code of users may be run again, which a
    command that only looks does not do."""
    look_only(trust=True)
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pictures take a third of the time of a run in miniature: they are drawn where tests look at them, sketched elsewhere."""
    if request.path.parent.name in ("analysis", "report") and request.path.stem not in ("test_analyzing", "test_report_data"):
        yield
        return
    with tinyrun.sketched():
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_fetched_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What this machine's user fetched with ``cirf data get`` is not what tests read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CIRF_DATA", str(tmp_path_factory.getbasetemp() / "no-data"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_once() -> Iterator[None]:
    """Typer reads the signatures of all commands anew at every call; a process has but one, tests have thousands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session")
def bundled() -> Callable[[str], Path]:
    """``bundled("smollm2-135m-instruct")``: the model's folder; the test is skipped where it cannot be fetched."""

    def folder(name: str) -> Path:
        try:
            return Path(resolve(f"bundled:{name}"))
        except CirfError as error:
            pytest.skip(str(error))

    return folder


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> tinyrun.Workshop:
    """See ``Workshop``; nothing in it may be changed."""
    folder = tmp_path_factory.mktemp("workshop")
    return tinyrun.Workshop(
        tinyrun.write_backbone(folder / "backbone"),
        tinyrun.write_embedder(folder / "embedder"),
        tinyrun.write_jsonl(folder / "train.jsonl", tinyrun.sums(40)),
        tinyrun.write_jsonl(folder / "test.jsonl", tinyrun.sums(8, seed=9, steps=2)),
    )


@pytest.fixture(scope="session")
def finished(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three methods, as ``run``, with its ``recipe.yaml`` beside it; copy it to change it."""
    folder = tmp_path_factory.mktemp("finished")
    with tinyrun.sketched():
        said = tinyrun.cirf("run", workshop.recipe(folder / "recipe.yaml"), "--out", folder / "run")
    assert said.code == 0, said.err
    return folder / "run"


@pytest.fixture(scope="session")
def learnt(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose tiny model of traces knows 12 questions well enough to end its answers and to answer not all alike; copy it to
    change it."""
    folder = tmp_path_factory.mktemp("learnt")
    rows = tinyrun.sums(12, steps=2)
    test = [row | {"question": f"{row['question']} Tell me."} for row in rows]
    files = {"train": tinyrun.write_jsonl(folder / "train.jsonl", rows), "test": tinyrun.write_jsonl(folder / "test.jsonl", test)}
    keys = {"evaluate__max_completion_tokens": None, "evaluate__latency_questions": 0}
    recipe = workshop.recipe(folder / "recipe.yaml", methods=["cirf_full"], **tinyrun.LEARNT, **files, **keys)
    with tinyrun.sketched():
        said = tinyrun.cirf("run", recipe, "--out", folder / "run")
    assert said.code == 0, said.err
    return folder / "run"
