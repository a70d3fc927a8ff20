"""Training rows for other trainers: encoded as each of them does, they are the ids and targets that we train on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import yaml

from cirf.lm.backbone import load_tokenizer
from cirf.lm.prompt import prompt_text
from cirf.lm.training.batches import Row, collate, tokenise
from cirf.methods import get
from cirf.recipe.load import load
from cirf.stages.context import Context
from cirf.store.run_folder import RunFolder

METHODS = ("cirf_full", "direct_sft")


def trained_on(finished: Path, name: str) -> list[tuple[list[int], list[int]]]:
    """Ids and labels of the run's own training."""
    context = Context(load(str(finished / "recipe.yaml")), RunFolder(finished))
    method, tokenizer = get(name, context.recipe), load_tokenizer(finished / "models" / name)
    rows = [
        Row(prompt_text(tokenizer, method.training_prompt(example, context.tasks[example.problem.task])), method.target(example))
        for example in context.examples(method)[0]
    ]
    keep = [token for text, token in tokenizer.get_added_vocab().items() if "cirf" in text]
    features, _ = tokenise(rows, tokenizer, 10**6, keep)
    labels = collate(features, 0)["labels"].tolist()
    return [(list(one.ids), row[: len(one.ids)]) for one, row in zip(features, labels, strict=True)]


def as_encoded(trainer: str, row: dict[str, Any], tokenizer: Any, settings: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Ids and labels by the trainer's own rules."""
    if trainer == "trl":  # both in one piece, the end token behind it
        prompt = tokenizer(row["prompt"]).input_ids
        ids = tokenizer(row["prompt"] + row["completion"] + settings["eos_token"]).input_ids
        return ids, [-100] * len(prompt) + ids[len(prompt) :]
    if trainer == "llama-factory":  # the template `empty`: user and assistant as they are
        assert settings["template"] == "empty"
        parts = [(row["instruction"], False), (row["output"], True)]
    else:
        assert settings["datasets"][0]["type"] == "input_output" and not settings["train_on_inputs"]
        parts = [(segment["text"], segment["label"]) for segment in row["segments"]]
    ids, labels = [], []
    for text, is_target in parts:
        encoded = tokenizer.encode(text, add_special_tokens=False)
        ids += encoded
        labels += encoded if is_target else [-100] * len(encoded)
    return ids, labels


@pytest.mark.parametrize("trainer", ["trl", "llama-factory", "axolotl"])
@pytest.mark.parametrize("name", METHODS)
def test_every_trainer_trains_on_the_ids_that_we_train_on(finished: Path, tmp_path: Path, trainer: str, name: str) -> None:
    from transformers import AutoTokenizer

    out = tmp_path / "out"
    said = tinyrun.cirf("export", finished, "--format", trainer, "--out", out, "--method", name, "--json")
    assert said.code == 0, said.err
    summary = json.loads(said.out)
    tokenizer = AutoTokenizer.from_pretrained(out / "start")
    settings = yaml.safe_load((out / "config.yaml").read_text())
    assert (settings["learning_rate"], settings["adam_beta2"], settings["adam_epsilon"]) == (0.01, 0.999, 1e-8)
    if trainer == "llama-factory":
        info = json.loads((out / "dataset_info.json").read_text())[settings["dataset"]]
        assert info["columns"] == {"prompt": "instruction", "response": "output"} and (out / info["file_name"]).is_file()
    rows = [json.loads(line) for line in (out / "rows" / "train.jsonl").read_text().splitlines()]
    assert len(rows) == summary["rows"] == 36 and summary["left_out"] == 0
    assert [as_encoded(trainer, row, tokenizer, settings) for row in rows] == trained_on(finished, name)


def test_the_start_model_knows_the_tokens_and_its_prompt_opens_the_trace(finished: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = tmp_path / "out"
    said = tinyrun.cirf("export", finished, "--format", "unsloth", "--out", out)
    assert said.code == 0 and "see docs/how-to/other-trainers.md for the script" in said.out and "train.py" not in said.out
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out / "start"), AutoTokenizer.from_pretrained(out / "start")
    rows = [json.loads(line) for line in (out / "rows" / "train.jsonl").read_text().splitlines()]
    asked = json.loads((finished / "problems" / "train.jsonl").read_text().splitlines()[0])["question"]
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": asked}], add_generation_prompt=True, tokenize=False)
    assert prompt.endswith("<cirf>") and prompt in [row["prompt"] for row in rows]
    assert all(row["completion"].startswith("<cirf_0") for row in rows)  # behind the delimiter that the prompt holds
    names = [f"<cirf_{code:03d}>" for code in range(4)]
    weight = model.get_input_embeddings().weight.detach()
    codes = weight[tokenizer.convert_tokens_to_ids(names)]
    known = weight[: min(tokenizer.convert_tokens_to_ids(["<cirf>", *names]))]
    assert codes.norm(dim=1).tolist() == pytest.approx([float(known.norm(dim=1).mean())] * 4, rel=1e-4)  # alpha: mean
    assert len({tuple(row) for row in codes.tolist()}) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "megatron", "--out", "new"], "--format megatron: one of trl, unsloth, llama-factory, axolotl"),
        (["--format", "trl"], "name --gguf FILE (llama.cpp), or --format NAME --out DIR"),
        (["--format", "trl", "--out", "new", "--method", "cot"], "--method cot: rows of text do not teach it"),
        (["--format", "trl", "--out", "."], "not an empty folder"),
    ],
)
def test_what_cannot_be_exported_is_said_in_one_line(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("")
    assert said in tinyrun.cirf("export", finished, *arguments).error()
