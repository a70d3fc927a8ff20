"""A trained model on disk: a plain checkpoint that needs nothing of ours."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from cirf.assets.hub import transformers_quiet
from cirf.distributed import is_main
from cirf.errors import CirfError
from cirf.lm.prompt import encode, prompt_text, response_template, stop_ids
from cirf.lm.training.checkpoints import disk_errors
from cirf.lm.vocabulary import token_names
from cirf.store.files import load_object, to_json, write_atomic

_PROCESSORS = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")


def save_model(model: Any, tokenizer: Any, folder: Path, dtype: str, delimiters: str | None = None) -> None:
    """Save a plain checkpoint that needs nothing of ours: safetensors in ``dtype``, tokenizer, generation settings.

    The tokenizer carries the chat template of training and, where the model writes traces (``delimiters``: ``cirf`` or
    ``think``), a ``response_template`` that cuts an answer into ``thinking`` and ``content``. The generation settings name the
    tokens that end an answer and nothing else, so that plain ``generate`` is greedy as in our evaluation. The model is converted
    to ``dtype`` in place. A model that reads images, too, keeps the processors of the model that it was loaded from: vLLM loads
    none without. Under ``accelerate launch`` the main process writes. ``CirfError``: the disk is full.
    """
    from transformers import GenerationConfig

    for parameter in model.parameters():  # not `model.to`, which would round the rotary frequencies, too
        parameter.data = parameter.data.to(getattr(torch, dtype))
    stops = stop_ids(model, tokenizer)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else stops[0]
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=tokenizer.bos_token_id, eos_token_id=stops, pad_token_id=pad
    )
    model.config.use_cache = True
    if delimiters is not None:
        names = token_names(0, delimiters)
        tokenizer.response_template = response_template(tokenizer, names.start, names.end)
    if is_main():
        with disk_errors(folder), transformers_quiet():
            model.save_pretrained(str(folder))
            tokenizer.save_pretrained(str(folder))
            _copy_processors(model.config, folder)
            for weights in folder.glob("*.safetensors"):  # written for this user alone, unlike the files next to them
                weights.chmod((folder / "config.json").stat().st_mode & 0o777)


def _copy_processors(config: Any, folder: Path) -> None:
    """Copy the processors of images, sounds and videos from a model's source, a folder or a hub id."""
    from transformers.utils.hub import cached_file

    if config.get_text_config(decoder=True) is config:
        return
    revision = getattr(config, "_commit_hash", None)
    kinds = ("missing_entries", "gated_repo", "connection_errors")
    never_raise: dict[str, Any] = {f"_raise_exceptions_for_{kind}": False for kind in kinds}
    for name in _PROCESSORS:
        found = cached_file(config.name_or_path, name, revision=revision, **never_raise)
        if found is not None:
            stored = load_object(Path(found)) or {}
            stored.pop("chat_template", None)  # that of training is the tokenizer's
            write_atomic(folder / name, to_json(stored))


def check_tokenizer(model: Any, tokenizer: Any) -> None:
    """Once saved, the tokenizer must cut text as it does now: transformers picks its class by the kind of model. Code that came
    with either runs again. ``CirfError``: it would not, or cannot be loaded."""
    from transformers import AutoTokenizer

    own_code = any(type(part).__module__.startswith("transformers_modules") for part in (tokenizer, model.config))
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        try:
            loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=own_code)
        except Exception as error:  # nothing narrower is raised, also of code that transformers 5 does not save well
            why = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
            raise CirfError(f"backbone.model: its tokenizer, once saved, cannot be loaded ({why}); use another") from None
    probe = prompt_text(tokenizer, "It's 12,345.60 - x_1?\n\n  Yes (a), no. éß数") + "".join(sorted(tokenizer.get_added_vocab()))
    if encode(loaded, probe) != encode(tokenizer, probe):
        kinds = f"{type(tokenizer).__name__} became {type(loaded).__name__}"
        raise CirfError(f"backbone.model: its tokenizer splits text differently once saved and loaded ({kinds}); use another")
