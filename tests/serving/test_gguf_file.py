"""A model as a GGUF file: read back by another reader, it computes the same and its tokenizer gives the same ids."""

from __future__ import annotations

import importlib.util
import json
import resource
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
from benchmarks import gguf

from cirf.errors import CirfError
from cirf.export.gguf import PROBE, Kind, cut, name_of, write_gguf
from cirf.lm.prompt import prompt_text, settle_template
from cirf.lm.vocabulary import extend, token_names
from cirf.recipe import schema

TEXTS = ("What is 12 plus 7?", "<cirf><cirf_002>48<cirf_001></cirf>55", "It's 2024,  I'VE 7\t\tof\n\n them\n ", "é ü 漢字 🙂")


@pytest.fixture(scope="module")
def tiny() -> Any:
    """The module with builders of tiny models and tokenizers."""
    return tinyrun.builders()


def ways() -> dict[str, Any]:
    """What cuts text before BPE, by llama.cpp's names."""
    from tokenizers import Regex, pre_tokenizers

    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return {
        "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
        "qwen2": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(words % ""), "isolated"), bytes_alone]),
        "llama-bpe": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(words % "{1,3}"), "isolated"), bytes_alone]),
    }


def saved(tiny: Any, folder: Path, kind: str, tied: bool = True) -> tuple[Any, Any]:
    """A model with functional tokens, saved as training saves one."""
    tokenizer, model = tiny.build_tokenizer(), tiny.build_model(kind, tied, seed=4)
    if kind == "qwen2":  # whose tokenizers the reader expects to cut text in their own way
        tokenizer.backend_tokenizer.pre_tokenizer = ways()["qwen2"]
    settle_template(tokenizer)
    extend(model, tokenizer, None, schema.Vocabulary(alpha=1.0), 4, 0)
    model.config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def read_back(path: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


@pytest.mark.parametrize(("kind", "tied"), [("llama", True), ("llama", False), ("qwen2", True), ("qwen2", False)])
def test_read_back_it_computes_the_same(tiny: Any, tmp_path: Path, kind: str, tied: bool) -> None:
    model, tokenizer = saved(tiny, tmp_path / "model", kind, tied)
    summary = write_gguf(tmp_path / "model", tmp_path / "out" / "model.gguf", "f32")
    assert summary["bytes"] == (tmp_path / "out" / "model.gguf").stat().st_size and summary["added"] == 6
    again, their = read_back(tmp_path / "out" / "model.gguf")
    ids = torch.tensor([tokenizer(prompt_text(tokenizer, TEXTS[0])).input_ids])
    with torch.no_grad():
        assert torch.allclose(model(ids).logits, again(ids).logits, atol=1e-5)
    for text in TEXTS:
        assert their(text, add_special_tokens=False).input_ids == tokenizer(text, add_special_tokens=False).input_ids
    assert their.chat_template == tokenizer.chat_template
    names = token_names(4)
    assert their.convert_tokens_to_ids(list(names.all)) == tokenizer.convert_tokens_to_ids(list(names.all))


@pytest.mark.parametrize(("kind", "most"), [("f16", 1e-3), ("bf16", 1e-2), ("q8_0", 1e-2)])
def test_smaller_formats_are_near_it(tiny: Any, tmp_path: Path, kind: Kind, most: float) -> None:
    model, _ = saved(tiny, tmp_path / "model", "llama")
    write_gguf(tmp_path / "model", tmp_path / "model.gguf", kind)
    again, _ = read_back(tmp_path / "model.gguf")
    theirs = dict(again.named_parameters())
    for name, weight in model.named_parameters():
        scale = float(weight.detach().abs().max())
        assert torch.allclose(weight, theirs[name].float(), atol=most * scale), name
    assert (tmp_path / "model.gguf").stat().st_size < 0.7 * (tmp_path / "model" / "model.safetensors").stat().st_size + 50_000


def test_what_cannot_be_exported_is_said(tiny: Any, tmp_path: Path) -> None:
    saved(tiny, tmp_path / "gpt2", "gpt2")
    with pytest.raises(CirfError, match="models of type gpt2 are not supported"):
        write_gguf(tmp_path / "gpt2", tmp_path / "out.gguf")
    with pytest.raises(CirfError, match="no model's folder"):
        write_gguf(tmp_path, tmp_path / "out.gguf")
    saved(tiny, tmp_path / "scaled", "llama")
    path = tmp_path / "scaled" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}))
    with pytest.raises(CirfError, match="rotary embeddings of type yarn"):
        write_gguf(tmp_path / "scaled", tmp_path / "out.gguf")
    saved(tiny, tmp_path / "cut", "llama")
    path = tmp_path / "cut" / "tokenizer.json"
    spelled = json.loads(path.read_text())
    spelled["pre_tokenizer"] = {"type": "Whitespace"}
    path.write_text(json.dumps(spelled))
    with pytest.raises(CirfError, match="its pre-tokenizer is not supported"):
        write_gguf(tmp_path / "cut", tmp_path / "out.gguf")
    saved(tiny, tmp_path / "torn", "llama")
    weights = (tmp_path / "torn" / "model.safetensors").read_bytes()
    (tmp_path / "torn" / "model.safetensors").write_bytes(weights[:1000])
    with pytest.raises(CirfError, match="cannot be read as weights"):
        write_gguf(tmp_path / "torn", tmp_path / "out.gguf")
    assert not list(tmp_path.glob("out.gguf*"))


def test_half_a_model_is_no_file(tiny: Any, tmp_path: Path) -> None:
    model, _ = saved(tiny, tmp_path / "model", "llama", tied=False)
    model.save_pretrained(tmp_path / "model", max_shard_size="60KB")
    (tmp_path / "model" / "model.safetensors").unlink(missing_ok=True)
    write_gguf(tmp_path / "model", tmp_path / "whole.gguf", "f32")
    shards = sorted((tmp_path / "model").glob("*.safetensors"))
    assert len(shards) > 1
    shards[-1].unlink()
    with pytest.raises(CirfError, match="weights are missing"):
        write_gguf(tmp_path / "model", tmp_path / "half.gguf", "f32")
    assert not list(tmp_path.glob("half.gguf*"))


def test_where_no_more_can_be_written_nothing_is_left(tiny: Any, tmp_path: Path) -> None:
    saved(tiny, tmp_path / "model", "llama", tied=False)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(OSError, match="Errno"):
            write_gguf(tmp_path / "model", tmp_path / "out" / "full.gguf", "f32")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list((tmp_path / "out").iterdir())


def test_the_ways_of_cutting_are_distinguished(tiny: Any) -> None:
    tokenizer = tiny.build_tokenizer()
    for name, way in ways().items():
        tokenizer.backend_tokenizer.pre_tokenizer = way
        assert name_of(tokenizer, "here") == name
        assert "".join(cut(tokenizer)) == PROBE


def test_the_command_writes_the_file_and_refuses_thinkers(finished: Path, tmp_path: Path) -> None:
    said = tinyrun.cirf("export", finished, "--gguf", tmp_path / "m.gguf", "--type", "bf16", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["type"] == "bf16" and (tmp_path / "m.gguf").is_file()
    assert "one of f32, f16, bf16, q8_0" in tinyrun.cirf("export", finished, "--gguf", tmp_path / "m.gguf", "--type", "q2").err
    assert tinyrun.cirf("export", tmp_path, "--gguf", tmp_path / "n.gguf").code == 2


@pytest.mark.engine
@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed")
def test_llama_cpp_computes_as_the_checkpoint_does(tiny: Any, tmp_path: Path) -> None:
    model, tokenizer = saved(tiny, tmp_path / "model", "llama")
    write_gguf(tmp_path / "model", tmp_path / "model.gguf", "f32")
    server = gguf.serve(tmp_path / "model.gguf", threads=1)

    def post(path: str, **body: Any) -> Any:
        request = urllib.request.Request(
            f"{server.listening_address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    prompt = prompt_text(tokenizer, TEXTS[0])
    assert post("/apply-template", messages=[{"role": "user", "content": TEXTS[0]}])["prompt"] == prompt
    for text in (*TEXTS, prompt):
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert post("/tokenize", content=text)["tokens"] == ids
        with torch.no_grad():
            ours = model(torch.tensor([ids])).logits[0, -1].log_softmax(dim=0)
        reply = post("/completion", prompt=ids, n_predict=1, temperature=0, n_probs=8)
        for token in reply["completion_probabilities"][0]["top_logprobs"]:
            assert token["logprob"] == pytest.approx(float(ours[token["id"]]), abs=0.02)  # its cache has 16 bits
