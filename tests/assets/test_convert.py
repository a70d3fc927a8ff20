"""From a published file to a checkpoint that transformers loads with no help of ours."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cirf.assets.resolve import convert_gguf, unpack_zip
from cirf.errors import CirfError
from cirf.progress import SILENT

WIDTH, HIDDEN, ROWS = 8, 16, 300


def byte_tokens() -> list[str]:
    """One token a byte, written as byte-level BPE writes them: printable ones as they are, the rest from U+0100 on."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return [chr(byte) for byte in kept] + [chr(256 + number) for number in range(len(others))]


def write_gguf(path: Path, pre: str = "qwen2", output: str = "near") -> dict[str, np.ndarray[Any, Any]]:
    """A one-layer Qwen2 with a byte tokenizer; its output matrix is near the embedding, far from it, or absent."""
    import gguf

    draw = np.random.default_rng(0)
    tokens = [*byte_tokens(), "Ċ" * 2, "<|endoftext|>", "<|im_end|>", "<tool_call>"]
    types = [1] * 257 + [3, 3, 4]
    unused = ROWS - len(tokens)
    writer = gguf.GGUFWriter(str(path), "qwen2")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens + [f"[PAD{number}]" for number in range(unused)])
    writer.add_token_types(types + [5] * unused)
    writer.add_token_merges(["Ċ Ċ"])
    writer.add_eos_token_id(258)
    writer.add_pad_token_id(257)
    writer.add_bos_token_id(257)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")
    shapes = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (WIDTH // 2, WIDTH),
        "attn_v": (WIDTH // 2, WIDTH),
        "attn_output": (WIDTH, WIDTH),
    }
    shapes |= {"ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}
    tensors = {f"blk.0.{name}.weight": draw.normal(size=shape) for name, shape in shapes.items()}
    tensors |= {f"blk.0.attn_{name}.bias": draw.normal(size=shapes[f"attn_{name}"][0]) for name in "qkv"}
    tensors |= {f"blk.0.{name}_norm.weight": np.ones(WIDTH) for name in ("attn", "ffn")} | {"output_norm.weight": np.ones(WIDTH)}
    tensors["token_embd.weight"] = draw.normal(size=(ROWS, WIDTH))
    if output != "absent":
        noise = draw.normal(size=(ROWS, WIDTH))
        tensors["output.weight"] = (
            tensors["token_embd.weight"] * (1 if output == "near" else 0) + (0.02 if output == "near" else 1) * noise
        )
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def converted(tmp_path: Path, **choices: str) -> Path:
    write_gguf(tmp_path / "tiny.gguf", **choices)
    folder = tmp_path / "out"
    folder.mkdir()
    convert_gguf(tmp_path / "tiny.gguf", folder, SILENT)
    return folder


@pytest.mark.parametrize("output", ["near", "absent"])
def test_the_checkpoint_loads_tied_and_holds_the_files_weights(tmp_path: Path, output: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    tensors = write_gguf(tmp_path / "tiny.gguf", output=output)
    folder = tmp_path / "out"
    folder.mkdir()
    convert_gguf(tmp_path / "tiny.gguf", folder, SILENT)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    assert model.config.tie_word_embeddings
    assert not hasattr(model.config, "quantization_config")
    assert model.get_output_embeddings().weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
    expected = torch.tensor(tensors["token_embd.weight"]).to(torch.bfloat16)
    assert torch.equal(model.get_input_embeddings().weight, expected)
    down = torch.tensor(tensors["blk.0.ffn_down.weight"]).to(torch.bfloat16)
    assert torch.equal(model.model.layers[0].mlp.down_proj.weight, down)
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (258, 257)
    model.save_pretrained(tmp_path / "again")  # what a model read from GGUF refuses
    assert not list(folder.glob("*.bin"))


def test_an_output_matrix_of_its_own_is_not_thrown_away(tmp_path: Path) -> None:
    with pytest.raises(CirfError, match=r"tiny\.gguf: the output matrix differs from the embedding by 1\d\d%"):
        converted(tmp_path, output="far")


def test_the_tokenizer_is_fast_and_complete(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(converted(tmp_path))
    assert tokenizer.is_fast
    assert len(tokenizer) == 260  # rows that the file fills up with are no tokens
    assert tokenizer.model_max_length == 64
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    text = "Ann's 12 é\n\n<|endoftext|>x<tool_call><|im_end|>"
    ids = tokenizer(text).input_ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Ann's 12 é\n\nx<tool_call>"
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi<|im_end|>"
    assert tokenizer("e\u0301").input_ids == tokenizer("é").input_ids  # Qwen2 normalises to NFC


@pytest.mark.parametrize("pre", ["qwen2", "smollm"])
def test_line_ends_before_a_digit_stay_together(tmp_path: Path, pre: str) -> None:
    """Plain byte-level splitting would leave one of them to the digit, and the model has never seen that."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(converted(tmp_path, pre=pre) / "tokenizer.json"))
    assert tokenizer.encode("a\n\n12").tokens == ["a", "ĊĊ", "1", "2"]


def test_an_unknown_way_of_splitting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CirfError, match="llama-bpe, is not supported"):
        converted(tmp_path, pre="llama-bpe")


def test_converting_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
    one, two = converted(tmp_path / "one"), converted(tmp_path / "two")
    assert {path.name: path.read_bytes() for path in one.iterdir()} == {path.name: path.read_bytes() for path in two.iterdir()}


def test_converting_is_quiet(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    converted(tmp_path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "a\\..\\evil"])
def test_an_archive_that_would_write_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr(name, "x")
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(CirfError, match="would be written outside"):
        unpack_zip(tmp_path / "m.zip", folder)
    assert not list(folder.iterdir())


@pytest.mark.real
@pytest.mark.slow
def test_the_bundled_language_model_answers(bundled: Callable[[str], Path]) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = bundled("smollm2-135m-instruct")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert tokenizer.tokenize(":\n\n12") == [":", "ĊĊ", "1", "2"]
    turn = [{"role": "user", "content": "What is the capital of France? Answer with one word."}]
    ids = tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=8)
    assert "Paris" in tokenizer.decode(out[0, ids.shape[1] :])


@pytest.mark.real
def test_the_bundled_sentence_model_distinguishes_meanings(bundled: Callable[[str], Path]) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(bundled("all-minilm-l6-v2")), device="cpu")
    one, same, other = model.encode(
        ["She adds 3 and 4.", "She sums three and four.", "The coin is flipped."], normalize_embeddings=True
    )
    assert float(one @ same) > float(one @ other) + 0.2
