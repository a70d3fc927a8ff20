"""Resolves the name of a model: to a folder in the cache, a folder of the user's, or a hub id.

A published file is converted to a plain checkpoint folder: safetensors, tokenizer, generation settings. transformers reads the
weights of a GGUF file, but the model it makes keeps a quantisation config and refuses to be saved; its tokenizer lacks the
pre-tokenizer that the file only names (``tokenizer.ggml.pre``). So the weights are put into a model of the plain config, and the
tokenizer is built here from the file's own lists.
"""

import fcntl
import importlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cirf.assets.catalogue import ASSETS, FORMAT, PREFIX, Asset, find
from cirf.assets.hub import quiet, transformers_quiet
from cirf.errors import CirfError
from cirf.progress import SILENT, Progress
from cirf.store.files import hash_file, parse_json, to_json
from cirf.store.paths import user_path

_SPECIAL, _USER_DEFINED, _UNUSED = 3, 4, 5  # token types of the GGUF specification
_CLOSE = 0.1
"""Largest relative difference between an output matrix and the embedding that quantisation alone explains. Two 4-bit to
8-bit copies of one matrix are 4 % (0.5B) and 7 % (1.5B) apart; unrelated matrices of similar norm, 140 %. The choice of the copy
does not change the loss: 1.6697 against 1.6696 a token, with both in use 1.6687 (0.5B, GSM8K)."""


def convert_gguf(file: Path, folder: Path, progress: Progress) -> None:
    """Write the model of a GGUF file into ``folder`` as a bfloat16 safetensors checkpoint with a fast tokenizer. A separate
    output matrix that equals the embedding up to quantisation is dropped and tied, as the official configs have it; raises
    ``CirfError`` if it is something else."""
    with transformers_quiet(), warnings.catch_warnings(action="ignore"):  # the file is known, its special cases are handled here
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
        raise CirfError(f"{file}: the tensors do not match the model: {sorted(result.missing_keys + result.unexpected_keys)[:3]}")
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
    """A byte-level BPE tokenizer as published with the model. Padding rows of the file (type unused) are not tokens, so new ones
    take their ids."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    vocabulary = {token: number for number, (token, type_) in enumerate(zip(tokens, types, strict=True)) if type_ != _UNUSED}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=pairs, fuse_unk=False, byte_fallback=False))
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(_QWEN2), behavior="isolated", invert=False)
        bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_of])
    elif pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    else:
        raise CirfError(f"the file's pre-tokenizer, {pre}, is not supported")
    tokenizer.decoder = decoders.ByteLevel()
    for kind, special, add in ((_SPECIAL, True, tokenizer.add_special_tokens), (_USER_DEFINED, False, tokenizer.add_tokens)):
        found = [token for token, type_ in zip(tokens, types, strict=True) if type_ == kind]
        add([AddedToken(token, normalized=False, special=special) for token in found])
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

    theirs, reader.tqdm = reader.tqdm, counted
    try:
        yield
    finally:
        reader.tqdm = theirs


_MARKER, _FILES = "cirf-asset.json", "cirf-files.json"
_SPARE = 200 * 10**6  # bytes left free beyond what the model takes
VERIFIED: set[Path] = set()  # folders that this process has verified: hashing a gigabyte takes a second or more
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def cache_folder() -> Path:
    """The cache of bundled models: ``$CIRF_CACHE``, else ``~/.cache/cirf``."""
    return user_path(os.environ.get("CIRF_CACHE") or Path.home() / ".cache" / "cirf")


def data_folder() -> Path:
    """The folder of `cirf data get`: ``$CIRF_DATA``, else ``data`` in the cache."""
    return user_path(os.environ["CIRF_DATA"]) if os.environ.get("CIRF_DATA") else cache_folder() / "data"


def listing() -> dict[str, str]:
    """The bundled models by name: the folder of each, or its download size."""
    lines = {}
    for asset in ASSETS.values():
        folder = _folder(asset)
        lines[PREFIX + asset.name] = str(folder) if _is_ready(asset, folder) else f"not fetched yet ({asset.size / 1e6:,.0f} MB)"
    return lines


def resolve(model: str, progress: Progress = SILENT) -> Path | str:
    """The folder or hub id to load for ``model``.

    ``bundled:NAME`` gives a folder with a plain checkpoint, fetched and converted if it is not there, and again if a file has
    changed since (checked once per process). A folder is checked to hold a model and returned unchanged; so is a hub id,
    unchecked. Raises ``CirfError`` for an unknown name, a folder without a model, text that is neither, a full disk, and a model
    that no source gives.
    """
    if model.startswith(PREFIX):
        return _bundled(find(model), progress)
    folder = user_path(model)
    if model and (folder.exists() or is_local(model)):
        _check_folder(model, folder)
        return folder if model.startswith("~") else model
    if not _HUB_ID.fullmatch(model):
        raise CirfError(f"{model or 'model'}: neither a folder that exists, nor a hub id such as Qwen/Qwen3-8B, nor {PREFIX}NAME")
    quiet()  # the loader reports in one line that the hub did not answer
    return model


def is_local(model: str) -> bool:
    """Whether a name means a folder here and no hub id: it begins as a path does, or with ``runs/``, or its parent is here."""
    return model.startswith((".", "/", "~", "runs/")) or ("/" in model and user_path(model).parent.is_dir())


def _check_folder(model: str, folder: Path) -> None:
    if not folder.exists():
        raise CirfError(f"{model}: no such folder; name a folder that holds a model, a hub id, or {PREFIX}NAME")
    if not folder.is_dir():
        raise CirfError(f"{model}: a file, not a folder that holds a model (config.json and safetensors)")
    if (folder / "config.json").is_file() or (folder / "modules.json").is_file():
        return
    adapter = (folder / "adapter_config.json").is_file()
    fix = "holds only adapters; merge them into their model first" if adapter else "holds no config.json, so no model"
    raise CirfError(f"{model}: the folder {fix}")


def _folder(asset: Asset) -> Path:
    return cache_folder() / "models" / asset.name


def _is_ready(asset: Asset, folder: Path) -> bool:
    try:
        return bool(parse_json((folder / _MARKER).read_text()) == _marker(asset))
    except (OSError, json.JSONDecodeError):
        return False


def _marker(asset: Asset) -> dict[str, Any]:
    return {"file": asset.file, "sha256": asset.sha256, "format": FORMAT}


def _is_whole(folder: Path) -> bool:
    if folder in VERIFIED:
        return True
    try:
        written = parse_json((folder / _FILES).read_text())
        if any(hash_file(folder / name) != sha256 for name, sha256 in written.items()):
            return False
    except (OSError, ValueError, AttributeError):
        return False
    VERIFIED.add(folder)
    return True


def _bundled(asset: Asset, progress: Progress) -> Path:
    folder = _folder(asset)
    if _is_ready(asset, folder) and _is_whole(folder):
        return folder
    downloads = cache_folder() / "downloads" / asset.name
    try:
        with exclusive(cache_folder() / "locks" / f"{asset.name}.lock", f"another process fetches {asset.name}", progress):
            if not (_is_ready(asset, folder) and _is_whole(folder)):  # otherwise the process we waited for has made it
                _check_space(asset, downloads)
                _make(asset, folder, downloads, progress)
    except OSError as error:
        raise CirfError(
            f"{PREFIX}{asset.name}: cannot write to the cache {cache_folder()} ({error.strerror or error});"
            " free some space, or name another folder with CIRF_CACHE"
        ) from None
    return folder


def _make(asset: Asset, folder: Path, downloads: Path, progress: Progress) -> None:
    from cirf.assets import fetch

    file = fetch.fetch(asset, downloads, progress)
    made = folder.with_name(f".{folder.name}.making")  # the lock is held: existing files are of a killed process
    if made.exists():
        shutil.rmtree(made)
    made.mkdir(parents=True)
    if asset.form == "gguf":
        convert_gguf(file, made, progress)
    else:
        shutil.unpack_archive(file, made, "zip")
    files = sorted(path for path in made.rglob("*") if path.is_file())
    (made / _FILES).write_text(to_json({path.relative_to(made).as_posix(): hash_file(path) for path in files}))
    (made / _MARKER).write_text(to_json(_marker(asset)))
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(made, folder)
    shutil.rmtree(downloads)


def _check_space(asset: Asset, downloads: Path) -> None:
    """Refuse to start without space for all: the wheels (and pip's copy of them), then the file, then the model."""
    there = sum(path.stat().st_size for path in downloads.rglob("*") if path.is_file())
    needed = max(3 * asset.size, 2 * asset.size + asset.installed) - there + _SPARE
    free = shutil.disk_usage(cache_folder()).free
    if free < needed:
        raise CirfError(
            f"{PREFIX}{asset.name}: {needed / 1e9:.1f} GB are needed in {cache_folder()} and {free / 1e9:.1f} GB are free;"
            " free some space, or name another folder with CIRF_CACHE"
        )


@contextmanager
def exclusive(lock: Path, waiting: str, progress: Progress) -> Iterator[None]:
    """Hold a file lock, which the system releases if this process dies."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.task(waiting, total=None, unit=""):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield
