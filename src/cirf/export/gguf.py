"""A checkpoint as one GGUF file, for llama.cpp and software based on it.

The file holds the weights by llama.cpp's names, the tokenizer with functional tokens as ordinary (user-defined) tokens, which
are printed and found in text, and the chat template as saved, so that the prompt is the training prompt. Source of the names
and of the format: the ``gguf`` package of the llama.cpp project.

Which of llama.cpp's pre-tokenizers a tokenizer has is detected by its behaviour and not by its name. The same vocabulary with
another pre-tokenizer gives other ids for the same text, and a model that was trained on one reads the other badly, without any
error. So a tokenizer is tested on a text that the known ways split differently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cirf.errors import CirfError
from cirf.lm.prompt import end_token
from cirf.progress import SILENT, Progress
from cirf.recipe.schema import Backbone
from cirf.store.files import whole_path

if TYPE_CHECKING:
    import numpy as np
    import torch

PROBE = "It's 2024,  I'VE 7\t\tof\n\n them\n "
"""Contractions in both cases, a number of four digits, several blanks, tabs and line ends between words."""

_DIGITS = ("It", "'s", " ", "2", "0", "2", "4", ",", " ", " I")
_WORDS = ("\t", "\tof", "\n\n", " them", "\n", " ")
_BYTES = ("\t", "\t", "of", "\n\n", " them", "\n ")
_WAYS: dict[str, tuple[str, ...]] = {
    "gpt-2": ("It", "'s", " 2024", ",", " ", " I", "'", "VE", " 7", *_BYTES),
    "smollm": (*_DIGITS, "'", "VE", " ", "7", *_BYTES),
    "qwen2": (*_DIGITS, "'VE", " ", "7", *_WORDS),
    "llama-bpe": ("It", "'s", " ", "202", "4", ",", " ", " I", "'VE", " ", "7", *_WORDS),
}


def cut(tokenizer: Any, text: str = PROBE) -> tuple[str, ...]:
    before = tokenizer.backend_tokenizer.pre_tokenizer
    return tuple(text[start:end] for _, (start, end) in before.pre_tokenize_str(text)) if before is not None else (text,)


def name_of(tokenizer: Any, source: Path | str) -> str:
    """llama.cpp's name of the pre-tokenizer; ``CirfError`` for an unknown one."""
    pieces = cut(tokenizer)
    for name, way in _WAYS.items():
        if pieces == way:
            return name
    raise CirfError(f"{source}: its pre-tokenizer is not supported; llama.cpp's convert_hf_to_gguf.py may support it")


Kind = Literal["f32", "f16", "bf16", "q8_0"]
KINDS: tuple[Kind, ...] = ("f32", "f16", "bf16", "q8_0")
"""Number formats of the matrices; vectors are always float32. ``q8_0``: 8 bits with a scale for every 32 numbers."""


_KNOWN = ("llama", "qwen2", "qwen3")
"""Architectures, by transformers' and llama.cpp's name."""

_BLOCK = 32  # numbers that share a scale in q8_0


def write_gguf(model: Path, out: Path, kind: Kind = "f16", progress: Progress = SILENT) -> dict[str, Any]:
    """Write the checkpoint in the folder ``model`` to the file ``out``; returns a summary of it.

    ``CirfError``: no checkpoint; an unsupported architecture, rotary scaling or tokenizer (llama.cpp's own converter may support
    it); a shape that ``q8_0`` cannot hold.
    """
    import gguf

    config = _config(model)
    architecture_name = config["model_type"]
    if architecture_name not in _KNOWN:
        raise CirfError(
            f"{model}: models of type {architecture_name} are not supported ({', '.join(_KNOWN)} are); llama.cpp's "
            "convert_hf_to_gguf.py may support them"
        )
    architecture = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture_name)
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    with whole_path(out) as begun, closing(gguf.GGUFWriter(begun, architecture_name)) as writer:
        _describe(writer, config, model, kind)
        vocabulary = _add_tokenizer(writer, model, config["vocab_size"])
        tensors = list(_tensors(model, config["tie_word_embeddings"]))
        written: set[str] = set()
        with progress.task("gguf", len(tensors), "tensors") as advance:
            for name, load in tensors:
                there = names.get_name(name, try_suffixes=(".weight", ".bias"))
                if there is None:
                    raise CirfError(f"{model}: llama.cpp has no place for {name} in {architecture_name}")
                written.add(there)
                data, dtype = _packed(_ordered(load(), name, config), kind, name)
                writer.add_tensor(there, data, raw_dtype=dtype)
                advance(1)
        if missing := sorted(_needed(config) - written):
            raise CirfError(f"{model}: {len(missing)} weights are missing, {missing[0]} the first; is a file of the model gone?")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    return {"file": str(out), "architecture": architecture_name, "type": kind, "bytes": out.stat().st_size, **vocabulary}


def _config(model: Path) -> dict[str, Any]:
    """The model's configuration, with the defaults of its kind for missing keys."""
    from cirf.lm.backbone import load_config

    if not (model / "config.json").is_file():
        raise CirfError(f"{model}: no model's folder (config.json is missing)")
    config: dict[str, Any] = load_config(model, Backbone()).to_dict()
    rotary = config.get("rope_parameters") or {}
    kind = rotary.get("rope_type") or rotary.get("type") or "default"
    if kind != "default":
        raise CirfError(f"{model}: rotary embeddings of type {kind} are not supported")
    return config


def _describe(writer: Any, config: Mapping[str, Any], model: Path, kind: Kind) -> None:
    import gguf

    heads = config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    rotary = config.get("rope_parameters") or {}
    writer.add_name(model.resolve().name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(float(rotary.get("rope_theta") or config.get("rope_theta") or 10000.0))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType[f"{'ALL' if kind == 'f32' else 'MOSTLY'}_{kind.upper()}"])
    if kind == "q8_0":
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _add_tokenizer(writer: Any, model: Path, rows: int) -> dict[str, Any]:
    """Byte-level BPE: tokens, their types, merges, special ids and the chat template."""
    import gguf

    from cirf.lm.backbone import load_tokenizer

    tokenizer = load_tokenizer(model, Backbone(empty_system=False))
    spelled = json.loads(tokenizer.backend_tokenizer.to_str()) if tokenizer.is_fast else {}
    core = spelled.get("model", {})
    if core.get("type") != "BPE" or core.get("byte_fallback") or "merges" not in core:
        raise CirfError(f"{model}: only byte-level BPE tokenizers are supported; llama.cpp's convert_hf_to_gguf.py has others")
    tokens, kinds = [f"[PAD{row}]" for row in range(rows)], [gguf.TokenType.UNUSED] * rows
    for token, number in core["vocab"].items():
        tokens[number], kinds[number] = token, gguf.TokenType.NORMAL
    for added in spelled["added_tokens"]:
        special = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        tokens[added["id"]], kinds[added["id"]] = added["content"], special
    # A space separates the halves of a merge, so it cannot occur in one.
    merges = [one if isinstance(one, str) else " ".join(part.replace(" ", "\u0120") for part in one) for one in core["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name_of(tokenizer, model))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(end_token(tokenizer))
    begins = tokenizer.bos_token_id is not None and tokenizer("").input_ids[:1] == [tokenizer.bos_token_id]
    writer.add_add_bos_token(begins)
    for number, add in ((tokenizer.bos_token_id, writer.add_bos_token_id), (tokenizer.pad_token_id, writer.add_pad_token_id)):
        if number is not None:
            add(number)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)
    ours = sum(kind == gguf.TokenType.USER_DEFINED for kind in kinds)
    return {"tokens": len(tokenizer), "added": ours}


def _tensors(model: Path, tied: bool) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    """The weights by name, each with what loads it; an output matrix tied to the input matrix occurs once."""
    from safetensors import SafetensorError, safe_open

    files = sorted(model.glob("*.safetensors"))
    if not files:
        raise CirfError(f"{model}: no weights (*.safetensors)")
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                found = sorted(file.keys())
        except (SafetensorError, OSError) as error:
            raise CirfError(f"{path}: cannot be read as weights ({type(error).__name__}); is it whole?") from None
        for name in found:
            if not (tied and name == "lm_head.weight"):
                yield name, partial(_load, path, name)


def _needed(config: Mapping[str, Any]) -> set[str]:
    """The matrices, by llama.cpp's names, that a model of these architectures needs."""
    parts = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
    blocks = {f"blk.{block}.{part}.weight" for block in range(config["num_hidden_layers"]) for part in parts}
    head = set() if config["tie_word_embeddings"] else {"output.weight"}
    return blocks | head | {"token_embd.weight", "output_norm.weight"}


def _load(path: Path, name: str) -> torch.Tensor:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        tensor: torch.Tensor = file.get_tensor(name)
    return tensor


def _ordered(tensor: torch.Tensor, name: str, config: Mapping[str, Any]) -> torch.Tensor:
    """Rows of query and key in llama.cpp's order: transformers rotates the two halves of a head, llama.cpp's ``llama`` each
    two neighbours."""
    if config["model_type"] != "llama" or not any(part in name for part in (".self_attn.q_proj", ".self_attn.k_proj")):
        return tensor
    heads = config["num_attention_heads"]
    if "k_proj" in name:
        heads = config.get("num_key_value_heads") or heads
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def _packed(tensor: torch.Tensor, kind: Kind, name: str) -> tuple[np.ndarray, Any]:
    import gguf

    values = tensor.float().numpy()
    if values.ndim < 2 or kind == "f32":
        return values, gguf.GGMLQuantizationType.F32
    if kind == "f16":
        import numpy as np

        if not np.isfinite(values.astype(np.float16)).all():
            raise CirfError(f"{name} holds numbers beyond float16; export as bf16")
        return values.astype(np.float16), gguf.GGMLQuantizationType.F16
    if kind == "q8_0" and values.shape[-1] % _BLOCK:
        raise CirfError(f"{name} has rows of {values.shape[-1]} numbers, q8_0 takes multiples of {_BLOCK}; export as f16 or bf16")
    dtype = gguf.GGMLQuantizationType.BF16 if kind == "bf16" else gguf.GGMLQuantizationType.Q8_0
    return gguf.quants.quantize(values, dtype), dtype
