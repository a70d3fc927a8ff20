"""A run from a stranger: to look at it runs none of the Python that came with it. Models from strangers: no pickle is opened and
no code of theirs is run, unless the recipe says so.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
import yaml
from safetensors.torch import load_file, save_file

from cirf.codebook.embedding import Embedder
from cirf.codebook.functions import functions_of
from cirf.errors import CirfError
from cirf.lm.backbone import load_model, load_tokenizer
from cirf.recipe import schema

LOOKS = (
    ["status"],
    ["status", "--verify"],
    ["show"],
    ["report"],
    ["analyze"],
    ["archive", "--out", "archive"],
    ["push", "--to", "me/theirs", "--dry-run"],
)


@pytest.fixture
def theirs(finished: Path, tmp_path: Path) -> Path:
    """A finished run whose recipe names a method of its own besides."""
    run = shutil.copytree(finished, tmp_path / "theirs")
    (run / "notes.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).write_text('!')\nMETHOD = None\n")
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["methods"].append(str(run / "notes.py"))
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return run


def test_looking_runs_nothing_that_came_with_a_run(theirs: Path, tmp_path: Path) -> None:
    for command, *options in LOOKS:
        said = tinyrun.cirf(command, theirs, *(tmp_path / one if one == "archive" else one for one in options))
        assert not (tmp_path / "ran").exists(), command
        assert "Traceback" not in said.err, said.err
    summary = " ".join(tinyrun.cirf("status", theirs).out.split())
    assert "notes.py: Python code named by this run; if you trust it, add --trust-remote-code" in summary


@pytest.fixture
def coded_run(finished: Path, workshop: tinyrun.Workshop, tmp_path: Path) -> Path:
    """A finished run whose recipe wants a backbone and models with code of their own, and trusts them."""
    run = shutil.copytree(finished, tmp_path / "coded")
    shutil.rmtree(run / "models" / "cirf_full")
    coded(finished / "models" / "cirf_full", run / "models" / "cirf_full", tmp_path / "ran")
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["backbone"] |= {
        "model": str(coded(workshop.backbone, tmp_path / "backbone", tmp_path / "ran")),
        "trust_remote_code": True,
    }
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return run


@pytest.mark.parametrize("command", [["analyze"], ["report"], ["status"], ["codes"], ["run", "--dry-run"], ["check"]])
def test_looking_runs_no_code_of_a_model_whatever_the_recipe_says(coded_run: Path, tmp_path: Path, command: list[str]) -> None:
    recipe = coded_run / "recipe.yaml"
    said = tinyrun.cirf(command[0], recipe if command[0] in ("run", "check") else coded_run, *command[1:])
    assert not (tmp_path / "ran").exists(), said
    assert "Traceback" not in said.err
    if command[0] == "run":
        assert "comes with custom code" in said.error() and "--trust-remote-code" in said.error()
        tinyrun.cirf("run", recipe, "--dry-run", "--trust-remote-code")
        assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("key", ["methods", "problems", "variants"])
def test_a_dry_run_and_a_check_run_no_file_that_the_recipe_names(theirs: Path, tmp_path: Path, key: str) -> None:
    recipe = yaml.safe_load((theirs / "recipe.yaml").read_text())
    if key == "problems":
        recipe["methods"].pop()
        recipe["problems"]["tasks"].append({"task": str(theirs / "notes.py")})
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    for command in (["run", tmp_path / "recipe.yaml", "--dry-run"], ["check", tmp_path / "recipe.yaml"]):
        said = tinyrun.cirf(*command)
        assert not (tmp_path / "ran").exists()
        if said.code:  # a check needs no method
            assert "if you trust it, add --trust-remote-code" in said.error()
    assert "defines no" in tinyrun.cirf("run", tmp_path / "recipe.yaml", "--dry-run", "--trust-remote-code").error()
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("file", ["evaluation/cot/stage.json", "models/cirf_full/functions.json", "notes"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_no_command_waits_for_a_pipe_or_a_device(finished: Path, tmp_path: Path, file: str, kind: str) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / file).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(run / file)
    else:
        (run / file).symlink_to("/dev/zero")
    looks = [
        (command, run, *(tmp_path / one if one == "archive" else one for one in options)) for command, *options in LOOKS[:-1]
    ]
    for said in (tinyrun.cirf(*look) for look in (*looks, ("run", run / "recipe.yaml", "--out", run))):
        assert f"{run / file}: a pipe or a device" in said.error()
    if file.startswith("models"):
        assert "a pipe or a device" in tinyrun.cirf("ask", run / "models/cirf_full", "How many?").error()


def test_who_trusts_a_run_has_its_code_run(theirs: Path, tmp_path: Path) -> None:
    said = tinyrun.cirf("status", theirs, "--trust-remote-code")
    assert (tmp_path / "ran").exists() and "defines no METHOD" in said.out


NESTED = b"[" * 5000
INSIDE = b"[" * 400 + b"]" * 400  # which Python reads, and cannot write with indents


@pytest.mark.parametrize("text", [NESTED, b'{"a": ' + INSIDE + b"}", b"\xff\xfe\x00"], ids=["endless", "deep", "binary"])
@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("models/cirf_full/functions.json", ["ask", "How many?"]),
        ("models/cirf_full/sft.jsonl", ["ask", "How many?"]),
        ("models/cirf_full/functions.json", ["codes"]),
        ("codebook-4/codebook.json", ["codes", "One and one is two."]),
        ("codebook-4/codebook.json", ["report"]),
        ("evaluation/cot/scores.json", ["show"]),
        ("evaluation/cot/timings.json", ["status"]),
        ("evaluation/cot/stage.json", ["status"]),
        ("evaluation/cot/stage.json", ["report"]),
        pytest.param("models/cirf_full/model.safetensors", ["analyze"], marks=pytest.mark.slow),
        ("models/cirf_full/model.safetensors", ["analyze", "geometry"]),
        ("codebook-4/codebook.safetensors", ["analyze", "geometry"]),
        pytest.param("models/cirf_full/history.json", ["analyze"], marks=pytest.mark.slow),
    ],
    ids=lambda given: given if isinstance(given, str) else given[0],
)
def test_no_file_of_a_run_ends_a_command_in_a_traceback(
    finished: Path, tmp_path: Path, file: str, command: list[str], text: bytes
) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / file).chmod(0o644)
    (run / file).write_bytes(text)
    said = tinyrun.cirf(command[0], run, *command[1:])
    assert "Traceback" not in said.err, said.err
    assert said.code in (0, 1) or said.error()


def test_no_text_of_a_run_commands_the_terminal(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    path = run / "evaluation/cot/sums.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["prompt"], row["output"], row["parsed"] = "\x1b[2Jquestion\x9b1m", "\x1b]0;title\x07", "\x1b[8m\u202e4"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    functions = json.loads((run / "models/cirf_full/functions.json").read_text())
    for code in functions["codes"].values():
        code["examples"] = ["\x1b[2Jstep"]
    (run / "models/cirf_full/functions.json").write_text(json.dumps(functions))
    shown = tinyrun.cirf("show", run, "--method", "cot").out + tinyrun.cirf("codes", run).out
    assert r"\x1b[2Jquestion\x9b1m" in shown and r"\x1b[2Jstep" in shown
    assert all(character.isprintable() or character == "\n" for character in shown)


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
    with pytest.raises(CirfError, match="safetensors") as summary:
        load_model(folder, schema.Backbone(model=str(folder)))
    assert "\n" not in str(summary.value) and not (tmp_path / "mark").exists()


def test_no_pickled_sentence_model_is_opened(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder = pickled(workshop.embedder, tmp_path / "model", tmp_path / "mark")
    with pytest.raises(CirfError, match="safetensors") as summary:
        Embedder(schema.Embeddings(model=str(folder)), folder, "cpu")
    assert "\n" not in str(summary.value) and not (tmp_path / "mark").exists()


def placed(folder: Path, file: str, index: str = "model.safetensors.index.json") -> None:
    """Have an index place all weights of a model in another file than its safetensors."""
    weights = load_file(folder / "model.safetensors")
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(weights, file)}))


def by_capitals(folder: Path) -> None:
    placed(folder, "model.SAFETENSORS")
    (folder / "model.safetensors").rename(folder / "model.SAFETENSORS")


def by_configuration(folder: Path) -> None:
    placed(folder, "weights.bin", "other.safetensors.index.json")
    config = json.loads((folder / "config.json").read_text()) | {"transformers_weights": "other.safetensors.index.json"}
    (folder / "config.json").write_text(json.dumps(config))


def by_adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": str(folder)}))
    (folder / "adapter_model.bin").write_bytes(b"")


@pytest.mark.parametrize("place", [by_capitals, by_configuration, by_adapter])
def test_no_settings_of_a_model_lead_to_a_pickle(
    place: Callable[[Path], None], workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(workshop.backbone, tmp_path / "model")
    place(folder)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("a pickle is opened"))
    with pytest.raises(CirfError, match=r"holds pickled weights|holds adapters") as summary:
        load_model(folder, schema.Backbone(model=str(folder), device="cpu"))
    assert "\n" not in str(summary.value)


@pytest.mark.parametrize("inner", ["2_Dense", "0_Router/query_0_Dense"])
@pytest.mark.parametrize("beside", [None, "model.safetensors.index.json"])
def test_no_module_of_a_sentence_model_is_a_pickle(
    inner: str, beside: str | None, workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(workshop.embedder, tmp_path / "model")
    (folder / inner).mkdir(parents=True)
    (folder / inner / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    if beside is not None:
        (folder / inner / beside).write_text('{"weight_map": {}}')
    dense = {"in_features": 32, "out_features": 32, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
    (folder / inner / "config.json").write_text(json.dumps(dense))
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": inner, "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps(modules))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("a pickle is opened"))
    with pytest.raises(CirfError, match=r"pytorch_model\.bin holds pickled weights") as summary:
        Embedder(schema.Embeddings(model=str(folder)), folder, "cpu")
    assert "\n" not in str(summary.value)


def test_a_pickle_next_to_safetensors_is_left_alone(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder = shutil.copytree(workshop.embedder, tmp_path / "model")
    (folder / "openvino").mkdir()
    for file in (folder / "openvino" / "openvino_model.bin", folder / "pytorch_model.bin", folder / "training_args.bin"):
        file.write_bytes(b"no pickle at all")
    assert Embedder(schema.Embeddings(model=str(folder)), folder, "cpu")(["one"]).shape[0] == 1


def test_no_weight_is_drawn_at_random(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder = shutil.copytree(workshop.backbone, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    name = sorted(weights)[-1]
    del weights[name]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CirfError, match=f"its files lack the weights {name}; fetch the whole model again"):
        load_model(folder, schema.Backbone(model=str(folder), device="cpu"))


def test_weights_of_another_shape_are_one_line(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder = shutil.copytree(workshop.backbone, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    name = next(name for name, value in weights.items() if value.ndim == 2 and "embed" not in name)
    weights[name] = weights[name][:1].clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CirfError, match=r"weights have other shapes than config\.json says") as summary:
        load_model(folder, schema.Backbone(model=str(folder), device="cpu"))
    assert "\n" not in str(summary.value)


def test_a_configuration_of_countless_layers_is_refused_at_once(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder = shutil.copytree(workshop.backbone, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 10**7, "layer_types": None}))
    with pytest.raises(CirfError, match="its configuration has 10,000,000 layers"):
        load_model(folder, schema.Backbone(model=str(folder), device="cpu"))
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": -1, "layer_types": None}))
    with pytest.raises(CirfError, match="its configuration has -1 layers"):
        load_model(folder, schema.Backbone(model=str(folder), device="cpu"))


def test_code_of_a_model_is_run_only_where_the_recipe_says_so(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder = coded(workshop.backbone, tmp_path / "model", tmp_path / "mark")
    load_tokenizer(folder, schema.Backbone(model=str(folder)))  # which is a plain one
    with pytest.raises(CirfError, match=r"set backbone\.trust_remote_code: true if you trust it"):
        load_model(folder, schema.Backbone(model=str(folder)))
    assert not (tmp_path / "mark").exists()
    model = load_model(folder, schema.Backbone(model=str(folder), trust_remote_code=True, device="cpu"))
    assert type(model).__name__ == "M" and (tmp_path / "mark").exists()


@pytest.mark.parametrize("command", [("ask", "How many?"), ("serve", "--port", "0")], ids=lambda command: command[0])
def test_no_code_is_run_because_the_models_own_recipe_says_so(finished: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    folder = coded(finished / "models" / "cirf_full", tmp_path / "model", tmp_path / "mark")
    text = (folder / "recipe.yaml").read_text()
    (folder / "recipe.yaml").write_text(text.replace("trust_remote_code: false", "trust_remote_code: true"))
    assert "trust_remote_code: true" in (folder / "recipe.yaml").read_text()
    said = tinyrun.cirf(command[0], folder, *command[1:])
    assert "comes with custom code" in said.error() and "--trust-remote-code" in said.error()
    assert not (tmp_path / "mark").exists()
    if command[0] == "ask":
        said = tinyrun.cirf("ask", folder, "How many?", "--trust-remote-code")
        assert said.code == 0 and (tmp_path / "mark").exists(), said.err


def test_a_model_is_pushed_without_running_code_of_the_model(finished: Path, tmp_path: Path) -> None:
    folder = coded(finished / "models" / "cirf_full", tmp_path / "model", tmp_path / "mark")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"auto_map": {"AutoTokenizer": [None, "m.C"]}, "tokenizer_class": "Stranger"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    text = (folder / "recipe.yaml").read_text()
    (folder / "recipe.yaml").write_text(text.replace("trust_remote_code: false", "trust_remote_code: true"))
    tinyrun.cirf("push", folder, "--to", "me/tiny", "--dry-run")
    tinyrun.cirf("export", folder, "--gguf", tmp_path / "file.gguf")
    assert not (tmp_path / "mark").exists()


def test_code_of_a_sentence_model_is_not_run(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder, mark = tmp_path / "model", tmp_path / "mark"
    shutil.copytree(workshop.embedder, folder)
    (folder / "own.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Own: pass\n")
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "own.Own"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CirfError) as summary:
        Embedder(schema.Embeddings(model=str(folder)), folder, "cpu")
    assert "\n" not in str(summary.value) and not mark.exists()


def indexed(source: Path, folder: Path, mark: Path) -> Path:
    """A copy of a model with one weight in a pickle, which an index of safetensors names."""
    folder = shutil.copytree(source, folder)
    (file,) = folder.rglob("model.safetensors")
    weights = load_file(file)
    name = sorted(weights)[0]
    file.with_name("a.bin").write_bytes(pickle.dumps({name: weights.pop(name).numpy(), "bomb": Bomb(mark)}))
    file.unlink()
    save_file(weights, file.with_name("first.safetensors"), metadata={"format": "pt"})
    places = {name: "a.bin"} | dict.fromkeys(weights, "first.safetensors")
    file.with_name("model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def test_no_pickle_is_opened_because_an_index_names_it(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    folder = indexed(workshop.backbone, tmp_path / "model", tmp_path / "mark")
    with pytest.raises(CirfError, match=r"a\.bin holds pickled weights") as summary:
        load_model(folder, schema.Backbone(model=str(folder)))
    assert "\n" not in str(summary.value) and not (tmp_path / "mark").exists()
    folder = indexed(workshop.embedder, tmp_path / "embedder", tmp_path / "mark")
    with pytest.raises(CirfError, match=r"a\.bin holds pickled weights") as summary:
        Embedder(schema.Embeddings(model=str(folder)), folder, "cpu")
    assert "\n" not in str(summary.value) and not (tmp_path / "mark").exists()


MODULES = {
    "Dense": {"in_features": 16, "out_features": 16, "bias": True, "activation_function": "torch.nn.modules.linear.Identity"},
    "LayerNorm": {"dimension": 16},
    "WeightedLayerPooling": {"word_embedding_dimension": 16, "layer_start": 1, "num_hidden_layers": 1},
}


@pytest.mark.parametrize("kind", MODULES)
def test_no_pickle_of_a_sentence_models_module_is_opened(workshop: tinyrun.Workshop, tmp_path: Path, kind: str) -> None:
    folder, mark = shutil.copytree(workshop.embedder, tmp_path / "model"), tmp_path / "mark"
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": len(modules), "name": "last", "path": "last", "type": f"sentence_transformers.models.{kind}"})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "last").mkdir()
    (folder / "last" / "config.json").write_text(json.dumps(MODULES[kind]))
    (folder / "last" / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(CirfError, match=r"pytorch_model\.bin holds pickled weights") as summary:
        Embedder(schema.Embeddings(model=str(folder)), folder, "cpu")
    assert "\n" not in str(summary.value) and not mark.exists()


def test_more_functional_tokens_than_any_model_has_are_damage(tmp_path: Path) -> None:
    code = {"label": "adds", "count": 1, "examples": ["1 + 1 = 2"]}
    summary = {"delimiters": "cirf", "size": 10**9, "codes": {"0": code}}
    (tmp_path / "functions.json").write_text(json.dumps(summary))
    with pytest.raises(CirfError, match=r"functions\.json: damaged"):
        functions_of(tmp_path)
    (tmp_path / "functions.json").write_text("[" * 100_000)
    with pytest.raises(CirfError, match=r"functions\.json: damaged"):
        functions_of(tmp_path)


@pytest.mark.parametrize("key", ["methods", "problems", "variants"])
def test_no_command_runs_a_file_that_only_a_run_or_a_model_names(finished: Path, tmp_path: Path, key: str) -> None:
    run = shutil.copytree(finished, tmp_path / "theirs")
    model, code, out = run / "models" / "cirf_full", run / "notes.py", ("--out", tmp_path / "out")
    code.write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).write_text('{key}')\n")
    for file in (run / "recipe.yaml", model / "recipe.yaml"):
        recipe = yaml.safe_load(file.read_text())
        if key == "methods":
            recipe["methods"].append(str(code))
        elif key == "variants":
            recipe["methods"].append("theirs")
            recipe["variants"] = {"theirs": {"method": str(code)}}
        else:
            recipe["problems"]["tasks"].append({"task": str(code), "name": "gsm8k"})
        file.write_text(yaml.safe_dump(recipe))
    rows = ["export", run, "--format", "trl", *out]
    opened = [rows, ["evaluate", run, *out], ["probe", run, *out]]
    if key == "problems":
        opened += [["evaluate", model, *out], ["evaluate", model, "--tasks", "gsm8k", *out], ["probe", model, *out]]
        named = ["evaluate", model, "--tasks", code, *out]
    elif key == "variants":
        opened += [["evaluate", model, "--method", "theirs", *out], ["evaluate", run, "--method", "theirs", *out]]
        named = ["evaluate", run, "--set", f"variants.theirs.method={code}", "--trust-remote-code", *out]
    else:
        named = [*rows, "--trust-remote-code"]
    for command in opened:
        assert "notes.py: Python code named by this run; if you trust it" in tinyrun.cirf(*command).error(), command
    assert not (tmp_path / "ran").exists()
    assert "defines no" in tinyrun.cirf(*named).error()
    assert (tmp_path / "ran").exists()


def test_code_of_a_model_needs_consent_even_where_a_runs_recipe_gave_it(coded_run: Path, tmp_path: Path) -> None:
    (coded_run / "notes.py").write_text("METHOD = None")
    recipe = yaml.safe_load((coded_run / "recipe.yaml").read_text())
    recipe["variants"] = {"theirs": {"method": str(coded_run / "notes.py")}}  # which is not evaluated
    (coded_run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    few = ("--limit", "1", "--protocol", "own", "--set", "evaluate.latency_questions=0", "--out", tmp_path / "out")
    for command in (["evaluate", coded_run, *few, "--method", "cirf_full"], ["ask", coded_run, "How many?"]):
        assert "comes with custom code" in tinyrun.cirf(*command).error()
        assert not (tmp_path / "ran").exists(), command
    said = tinyrun.cirf("evaluate", coded_run, *few, "--method", "cirf_full", "--trust-remote-code")
    assert (tmp_path / "ran").exists(), said.err
