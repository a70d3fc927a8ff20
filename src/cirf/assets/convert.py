"""From a published file to a plain checkpoint folder: safetensors, tokenizer, generation settings.

transformers reads the weights of a GGUF file, but the model it makes keeps a quantisation config and refuses to be saved;
its tokenizer lacks the pre-tokenizer that the file only names (``tokenizer.ggml.pre``). So the weights are put into a model of
the plain config, and the tokenizer is built here from the file's own lists.
"""

from __future__ import annotations

import importlib
import json
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from cirf.errors import CirfError
from cirf.progress import Progress

_SPECIAL, _USER_DEFINED, _UNUSED = 3, 4, 5  # token types of the GGUF specification
_CLOSE = 0.1
"""Largest relative difference between an output matrix and the embedding that quantisation alone explains. Two 4-bit to
8-bit copies of one matrix are 4 % (0.5B) and 7 % (1.5B) apart; unrelated matrices of similar norm, 140 %. The choice of the copy
does not change the loss: 1.6697 against 1.6696 a token, with both in use 1.6687 (0.5B, GSM8K)."""


def unpack_zip(file: Path, folder: Path) -> None:
    """Unpack an archive of a model folder; a member outside of it is refused with ``CirfError``."""
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            name = PurePosixPath(info.filename)
            if name.is_absolute() or ".." in name.parts or "\\" in info.filename or info.external_attr >> 28 == 0xA:
                raise CirfError(f"{file}: the archive is refused: its member {info.filename} would land outside of its folder")
        archive.extractall(folder)


def convert_gguf(file: Path, folder: Path, progress: Progress) -> None:
    """Write the model of a GGUF file into ``folder`` as a bfloat16 safetensors checkpoint with a fast tokenizer.

    A separate output matrix that equals the embedding up to quantisation is dropped and tied, as the official configs
    have it; raises ``CirfError`` if it is something else.
    """
    with _quiet():
        config = _write_weights(file, folder, progress)
        _write_tokenizer(file, folder, config.max_position_embeddings)


def _write_weights(file: Path, folder: Path, progress: Progress) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    with _tensors_counted(f"converting {file.stem}", progress):
        read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    settings = read.config.to_dict()
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(name, None)
    config = type(read.config).from_dict(settings | {"tie_word_embeddings": True})
    weights = read.state_dict()
    output = weights.pop("lm_head.weight", None)
    embedding = weights["model.embed_tokens.weight"]
    if output is not None and output.data_ptr() != embedding.data_ptr():
        difference = float((output - embedding).norm() / embedding.norm())
        if difference > _CLOSE:
            raise CirfError(f"{file}: the output matrix differs from the embedding by {difference:.0%}; it cannot be tied")
    del read, output, embedding
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
    small = {}
    for name in list(weights):
        small[name] = weights.pop(name).to(torch.bfloat16)  # one at a time: both sets of a large model may not fit
    result = model.load_state_dict(small, strict=False, assign=True)
    if result.unexpected_keys or set(result.missing_keys) - {"lm_head.weight"}:
        raise CirfError(f"{file}: the tensors do not fit the model: {sorted(result.missing_keys + result.unexpected_keys)[:3]}")
    model.tie_weights()
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    model.save_pretrained(folder)
    return config


def _write_tokenizer(file: Path, folder: Path, max_length: int) -> None:
    from gguf import GGUFReader
    from transformers import PreTrainedTokenizerFast

    fields = GGUFReader(file).fields

    def read(name: str) -> Any:
        field = fields.get(f"tokenizer.{name}")
        return None if field is None else field.contents()

    tokens = read("ggml.tokens")
    specials = {role: read(f"ggml.{long}_token_id") for role, long in _ROLES.items()}
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=_tokenizer(tokens, read("ggml.token_type"), read("ggml.merges"), read("ggml.pre")),
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        **{f"{role}_token": tokens[token] for role, token in specials.items() if token is not None},
    )
    tokenizer.chat_template = read("chat_template")
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # the name that older releases know as well
    for name in ("is_local", "local_files_only", "backend"):
        settings.pop(name, None)
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


_ROLES = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}


def _tokenizer(tokens: list[str], types: list[int], merges: list[str], pre: str) -> Any:
    """A byte-level BPE tokenizer as published with the model.

    Padding rows of the file (type unused) are not tokens, so new ones take their ids.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    vocabulary = {token: number for number, (token, type_) in enumerate(zip(tokens, types, strict=True)) if type_ != _UNUSED}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=pairs, fuse_unk=False, byte_fallback=False))
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(_QWEN2), behavior="isolated", invert=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    elif pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    else:
        raise CirfError(f"the file's pre-tokenizer, {pre}, is not supported")
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True)
            for token, type_ in zip(tokens, types, strict=True)
            if type_ == _SPECIAL
        ]
    )
    tokenizer.add_tokens(
        [
            AddedToken(token, normalized=False, special=False)
            for token, type_ in zip(tokens, types, strict=True)
            if type_ == _USER_DEFINED
        ]
    )
    return tokenizer


# How Qwen2 splits text before merging: contractions, words, single digits, punctuation, line ends, spaces.
_QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@contextmanager
def _tensors_counted(name: str, progress: Progress) -> Iterator[None]:
    """Our progress bar instead of transformers' over the tensors of a GGUF file."""
    reader: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils")

    def counted(tensors: list[Any], **_: object) -> Iterator[Any]:
        with progress.task(name, total=len(tensors), unit="tensors") as advance:
            for tensor in tensors:
                yield tensor
                advance(1)

    theirs = reader.tqdm
    reader.tqdm = counted
    try:
        yield
    finally:
        reader.tqdm = theirs


@contextmanager
def _quiet() -> Iterator[None]:
    """No bars and no warnings of transformers': the file is known, and its special cases are handled above."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
