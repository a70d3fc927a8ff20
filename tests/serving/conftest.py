"""Tiny models to serve: one that writes traces, and one that writes anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import tinyrun
import torch
from running import Running

from cirf.serving.model import ServedModel, load_served

LABELS = {"0": "adds", "1": "multiplies", "2": "not flip", "3": "divides"}
RECIPE = """
name: tiny
seed: 5
backbone: {model: here, dtype: float32, device: cpu, threads: 1}
problems: {tasks: [{task: chain_sum}]}
evaluate: {max_trace_tokens: 16, max_new_tokens: 24}
"""


def write_models(place: Path) -> tuple[Path, Path]:
    """The folders ``traces``, a model of four functional tokens, and ``prose``, one without any."""
    from cirf.lm.prompt import end_token, settle_template
    from cirf.lm.saving import save_model
    from cirf.lm.vocabulary import extend
    from cirf.methods.base import at_head_of_answer
    from cirf.recipe import schema

    tiny, made = tinyrun.builders(), []
    for name, seed in (("traces", 3), ("prose", 8)):
        folder = place / name
        tokenizer, model = tiny.build_tokenizer(), tiny.build_model("llama", False, seed=seed)
        settle_template(tokenizer)
        if name == "traces":
            extend(model, tokenizer, None, schema.Vocabulary(alpha=1.0), len(LABELS), 0)
            tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, "<cirf>")
        with torch.no_grad():  # so that some answers end before their cap
            model.get_output_embeddings().weight[end_token(tokenizer)] *= 2.5
        save_model(model, tokenizer, folder, "float32", "cirf" if name == "traces" else None)
        (folder / "recipe.yaml").write_text(RECIPE)
        made.append(folder)
    codes = {code: {"label": label, "count": 3, "examples": [f"a {label} b", "c"]} for code, label in LABELS.items()}
    functions = {"size": len(LABELS), "delimiters": "cirf", "codes": codes}
    (made[0] / "functions.json").write_text(json.dumps(functions))
    return made[0], made[1]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A saved model of four functional tokens that writes anything, and one without any."""
    return write_models(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def models(folders: tuple[Path, Path]) -> list[ServedModel]:
    """Both, loaded."""
    return [load_served(folder) for folder in folders]


@pytest.fixture(scope="session")
def traces(models: list[ServedModel]) -> ServedModel:
    """The model of functional tokens."""
    return models[0]


@pytest.fixture(scope="session")
def prose(models: list[ServedModel]) -> ServedModel:
    """The model without."""
    return models[1]


@pytest.fixture(scope="module")
def server(models: list[ServedModel]) -> Iterator[Running]:
    """A server of both with the usual limits."""
    with Running(models) as running:
        yield running


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
