"""The models of a run side by side, or in turn where they do not fit: real tiny models of a finished run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cirf.cpu import memory
from cirf.methods import get
from cirf.recipe.load import load
from cirf.stages import timing
from cirf.stages.context import Context
from cirf.stages.timing import LoadedModels
from cirf.store.run_folder import RunFolder


@pytest.fixture
def context(finished: Path) -> Context:
    """The finished run, asked for one more method that shares the backbone."""
    recipe = load(str(finished / "recipe.yaml"))
    return Context(recipe.model_copy(update={"methods": (*recipe.methods, "direct")}), RunFolder(finished))


def loaded(context: Context) -> LoadedModels:
    return LoadedModels(context, {name: get(name, context.recipe) for name in context.recipe.methods})


def bytes_of(folder: Path) -> int:
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return sum(file.get_tensor(name).numel() * 4 for name in file.keys())  # noqa: SIM118


def test_models_that_fit_are_held_at_once_and_one_checkpoint_is_loaded_once(context: Context, finished: Path) -> None:
    bench = loaded(context)
    assert bench.groups == [["cirf_full"], ["direct_sft"], ["cot", "direct"]] and bench.together
    bench.load(context.recipe.methods)
    assert len(bench.held) == 3
    timed = bench.one("direct", bench.render("direct", "How many?"), 4)
    assert 1 <= timed.tokens <= 4 and timed.seconds > timed.first_token_seconds > 0
    assert bench.memory("cirf_full") == {"weights_bytes": bytes_of(finished / "models/cirf_full"), "growth_bytes": None}
    bench.release()
    assert not bench.held


def test_models_that_do_not_fit_take_turns_on_the_same_questions(
    context: Context, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = bytes_of(finished / "models/cirf_full")
    monkeypatch.setattr(memory, "free_memory", lambda device: 6 * weights - 1)  # half of it holds less than three
    held = []
    load_one = LoadedModels.load_model
    monkeypatch.setattr(LoadedModels, "load_model", lambda bench, source: (load_one(bench, source), held.append(len(bench.held))))
    timing.latency(context, tmp_path)
    assert max(held) == 1
    made = json.loads((tmp_path / "timings.json").read_text())
    assert made["loads"] == [{"together": False, "models": 3, "weights_bytes": weights, "free_bytes": 6 * weights - 1}]
    before = json.loads((finished / "latency" / "timings.json").read_text())

    def items(summary: dict, method: str) -> set[tuple[str, str]]:
        return {(row["task"], row["id"]) for row in summary["rows"] if row["method"] == method}

    assert items(made, "cot") == items(made, "direct") == items(made, "cirf_full") == items(before, "cot")
    monkeypatch.setattr(memory, "free_memory", lambda device: 6 * weights)
    assert loaded(context).together
    monkeypatch.setattr(memory, "free_memory", lambda device: None)
    assert not loaded(context).together  # by default one at a time


def test_a_gpu_shows_what_an_answer_took_besides_the_weights(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = loaded(context)
    bench.load(["cot"])
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: calls.append("reset"))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 1234)
    model = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    before = timing.allocated_memory(model)
    assert before == 1000 and calls == ["reset"] and timing.peak_memory(model) - before == 234
