"""Models from strangers: no pickle is opened and no code of theirs is run, unless the recipe says so."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from safetensors.torch import load_file

from cirf import recipe
from cirf.codebook.embedding import Embedder
from cirf.errors import CirfError
from cirf.lm.backbone import load_model, load_tokenizer


class Bomb:
    """What runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


def pickled(source: Path, folder: Path, mark: Path) -> Path:
    """A copy of a model whose weights are a pickle that leaves a mark."""
    shutil.copytree(source, folder)
    (file,) = folder.rglob("model.safetensors")
    weights = {name: value.numpy() for name, value in load_file(file).items()}
    file.unlink()
    file.with_name("pytorch_model.bin").write_bytes(pickle.dumps({**weights, "bomb": Bomb(mark)}))
    return folder


def coded(source: Path, folder: Path, mark: Path) -> Path:
    """A copy of a model that comes with code which leaves a mark."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "stranger", "auto_map": {"AutoConfig": "m.C", "AutoModelForCausalLM": "m.M", "AutoModel": "m.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    lines = (
        f"open({str(mark)!r}, 'w').close()",
        "from transformers import LlamaConfig, LlamaForCausalLM",
        "class C(LlamaConfig): model_type = 'stranger'",
        "class M(LlamaForCausalLM): config_class = C",
    )
    (folder / "m.py").write_text("\n".join(lines))
    return folder


def test_the_pickle_does_run_where_it_is_opened(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder = pickled(workshop.backbone, tmp_path / "model", tmp_path / "mark")
    pickle.loads((folder / "pytorch_model.bin").read_bytes())
    assert (tmp_path / "mark").exists()


def test_no_pickled_language_model_is_opened(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder = pickled(workshop.backbone, tmp_path / "model", tmp_path / "mark")
    with pytest.raises(CirfError, match="safetensors") as told:
        load_model(folder, recipe.Backbone(model=str(folder)))
    assert "\n" not in str(told.value) and not (tmp_path / "mark").exists()


def test_no_pickled_sentence_model_is_opened(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder = pickled(workshop.embedder, tmp_path / "model", tmp_path / "mark")
    with pytest.raises(CirfError, match="safetensors") as told:
        Embedder(recipe.Embeddings(model=str(folder)), folder, "cpu")
    assert "\n" not in str(told.value) and not (tmp_path / "mark").exists()


def test_code_of_a_model_is_run_only_where_the_recipe_says_so(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder = coded(workshop.backbone, tmp_path / "model", tmp_path / "mark")
    load_tokenizer(folder, recipe.Backbone(model=str(folder)))  # which is a plain one
    with pytest.raises(CirfError, match=r"set backbone\.trust_remote_code: true if you trust it"):
        load_model(folder, recipe.Backbone(model=str(folder)))
    assert not (tmp_path / "mark").exists()
    model = load_model(folder, recipe.Backbone(model=str(folder), trust_remote_code=True, device="cpu"))
    assert type(model).__name__ == "M" and (tmp_path / "mark").exists()


@pytest.mark.parametrize("command", [("ask", "How many?"), ("serve", "--port", "0")], ids=lambda command: command[0])
def test_no_code_is_run_because_the_models_own_recipe_says_so(finished: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    folder = coded(finished / "models" / "cirf_full", tmp_path / "model", tmp_path / "mark")
    text = (folder / "recipe.yaml").read_text()
    (folder / "recipe.yaml").write_text(text.replace("trust_remote_code: false", "trust_remote_code: true"))
    assert "trust_remote_code: true" in (folder / "recipe.yaml").read_text()
    said = tinyrun.cirf(command[0], folder, *command[1:])
    assert "comes with code of its own" in said.error() and "--trust-remote-code" in said.error()
    assert not (tmp_path / "mark").exists()
    if command[0] == "ask":
        said = tinyrun.cirf("ask", folder, "How many?", "--trust-remote-code")
        assert said.code == 0 and (tmp_path / "mark").exists(), said.err


def test_rows_are_pushed_without_running_code_of_the_model(finished: Path, tmp_path: Path) -> None:
    folder = coded(finished / "models" / "cirf_full", tmp_path / "model", tmp_path / "mark")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"auto_map": {"AutoTokenizer": [None, "m.C"]}, "tokenizer_class": "Stranger"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    text = (folder / "recipe.yaml").read_text()
    (folder / "recipe.yaml").write_text(text.replace("trust_remote_code: false", "trust_remote_code: true"))
    tinyrun.cirf("push", folder, "--to", "me/tiny", "--traces", "--dry-run")
    tinyrun.cirf("export", folder, "--gguf", tmp_path / "file.gguf")
    assert not (tmp_path / "mark").exists()


def test_code_of_a_sentence_model_is_not_run(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder, mark = tmp_path / "model", tmp_path / "mark"
    shutil.copytree(workshop.embedder, folder)
    (folder / "own.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Own: pass\n")
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "own.Own"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CirfError) as told:
        Embedder(recipe.Embeddings(model=str(folder)), folder, "cpu")
    assert "\n" not in str(told.value) and not mark.exists()
