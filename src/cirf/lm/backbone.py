"""Loading the language model and its tokenizer.

No pickled weights are loaded: unpickling can run code. ``use_safetensors=True`` of transformers is not enough: an index may name
``.bin`` files, and the modules of a sentence model, such as its dense layer, fall back to ``pytorch_model.bin``. All of them open
it with ``torch.load``.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn
from unittest.mock import patch

import torch
from safetensors import SafetensorError, safe_open

from cirf.assets import resolve
from cirf.assets.hub import transformers_quiet
from cirf.cpu.memory import enough
from cirf.cpu.number_formats import widen
from cirf.distributed import sharded
from cirf.errors import CirfError
from cirf.lm.prompt import prompt_text, sanitise, settle_template
from cirf.lm.vocabulary import matrices
from cirf.progress import SILENT, Progress
from cirf.recipe import schema
from cirf.store.files import load_object
from cirf.store.paths import refuse_special
from cirf.user_code import may_run

_REFUSING = threading.RLock()
"""Held while ``torch.load`` is replaced: of two threads that did so at once, the later would put back the other's."""


@contextlib.contextmanager
def no_pickles(source: str | Path) -> Iterator[None]:
    """Refuse every pickle that loading ``source`` would open, unopened: ``CirfError``, whatever the library makes of that."""
    refused: list[str] = []

    def refuse(file: Any, *args: Any, **kwargs: Any) -> NoReturn:
        refused.append(Path(str(file)).name)
        raise ValueError("a pickle")

    try:
        with _REFUSING, patch.object(torch, "load", refuse):
            yield
    finally:
        if refused:
            why = "holds pickled weights, which may run code when they are loaded"
            raise CirfError(f"{source}: {refused[0]} {why}; save the model with its weights as safetensors") from None


__all__ = ["embedding_width", "load_config", "load_model", "load_tokenizer", "locate", "pick_device", "prompt_text", "sanitise"]

_INDEX = "model.safetensors.index.json"
_OBJECTS = (  # files that transformers takes for objects
    *("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("preprocessor_config.json", "processor_config.json", "chat_template.json", _INDEX),
)
_MOST_LAYERS = 1000
_NO_TOKENIZER = "no tokenizer there; save the model's tokenizer in the same folder (tokenizer.json, tokenizer_config.json)"
_ADVICE = "give a folder with a saved model, a hub id, or bundled:NAME (see `cirf env`)"


def locate(model: str | Path, progress: Progress = SILENT) -> str:
    """Where a model is: a folder for ``bundled:`` names (fetched if need be), else the folder or hub id as given."""
    return str(resolve(model, progress)) if isinstance(model, str) and model.startswith("bundled:") else str(model)


def pick_device(wanted: str) -> str:
    """A torch device: ``auto`` takes cuda, then mps, then cpu. ``CirfError`` if the requested one is missing."""
    if wanted == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        kind = torch.device(wanted).type
    except RuntimeError:
        raise CirfError(f"backbone.device: {wanted!r} is not a device; use auto, cpu, cuda or mps") from None
    backend = getattr(torch, kind, None)  # torch.cpu, torch.cuda, torch.mps, ...; none for what cannot compute
    there = backend.device_count() if backend is not None and hasattr(backend, "device_count") else 0
    if (torch.device(wanted).index or 0) >= there:
        raise CirfError(f"backbone.device: {wanted}, but this machine has {there or 'no'} {kind} device(s); use auto or cpu")
    return wanted


def load_tokenizer(source: str | Path, section: schema.Backbone | None = None) -> Any:
    """The tokenizer of a model, its chat template settled (see ``settle_template``). ``CirfError``: nothing there, nothing that
    can be read as a tokenizer, or one without a vocabulary."""
    from transformers import AutoTokenizer

    section, source = section or schema.Backbone(), locate(source)
    with explained(source, "tokenizer"):
        tokenizer: Any = AutoTokenizer.from_pretrained(str(source), **where(source, section))
        # Without its files transformers makes one of special tokens alone, for many kinds of models.
        if not tokenizer.decode(tokenizer("How many are 12 + 7?").input_ids, skip_special_tokens=True).strip():
            raise CirfError(f"{source}: {_NO_TOKENIZER}")
    try:
        settle_template(tokenizer, section.empty_system)
    except Exception as error:  # a template may raise anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200].rstrip(". ")
        raise CirfError(f"{source}: its chat template fails ({reason}); fix it, or use another model") from None
    return tokenizer


def load_config(source: str | Path, section: schema.Backbone) -> Any:
    """The configuration of a model. ``CirfError`` if there is none."""
    from transformers import AutoConfig

    source = locate(source)
    with explained(source, "model"):
        config = AutoConfig.from_pretrained(str(source), **where(source, section))
        layers = getattr(config.get_text_config(decoder=True), "num_hidden_layers", 1)
        if layers > _MOST_LAYERS:  # building them would take very long before missing weights are detected
            raise CirfError(f"{source}: its configuration has {layers:,} layers, more than {_MOST_LAYERS:,}; use another model")
        if layers < 1:
            raise CirfError(f"{source}: its configuration has {layers} layers; fetch the whole model again")
        return config


def embedding_width(source: str | Path, section: schema.Backbone) -> int:
    """Width d of the model's input embeddings, read from its configuration. ``CirfError`` if it names none."""
    config = load_config(source, section).get_text_config(decoder=True)
    for name in ("word_embed_proj_dim", "embedding_size", "hidden_size"):  # the first two: models that project afterwards
        width = getattr(config, name, None)
        if width:
            return int(width)
    raise CirfError(f"{source}: the configuration does not say how wide the embeddings are; use another model")


def load_model(source: str | Path, section: schema.Backbone, training: Literal["full", "lora"] | None = None) -> Any:
    """The causal language model, in evaluation mode, on its device.

    Args:
        source: folder or hub id.
        section: number format, device, attention kernel, threads, and what the model must look like.
        training: ``full``: float32 master weights; ``lora`` or ``None``: the recipe's number format, in which they may be
            computed with another (see `number_formats`).

    Where training is sharded over processes, the model stays on the CPU, with all but its embeddings in the files' number format:
    the files' own pages, which the processes of a machine share. ``CirfError``: no such model, weights that are missing or not
    safetensors, another architecture than the recipe demands, or no memory for it.
    """
    from transformers import AutoModelForCausalLM

    if section.threads is not None:
        torch.set_num_threads(section.threads)
    source = locate(source)
    config = load_config(source, section)
    check_causal(config, source)
    check_architecture(config, section.architecture, source)
    attention = {} if section.attn_implementation == "auto" else {"attn_implementation": section.attn_implementation}
    dtype, target = "float32" if training == "full" else section.dtype, pick_device(section.device)
    in_parts = training is not None and sharded()
    loaded_as = "auto" if in_parts and training == "full" else getattr(torch, dtype)
    with explained(source, "model"), transformers_quiet():
        model = from_safetensors(AutoModelForCausalLM, source, section, config=config, dtype=loaded_as, **attention)
        widen(model, dtype, target)
    if in_parts:
        for weight in matrices(model) if training == "full" else ():
            weight.data = weight.data.float()  # new rows are set before the model is sharded
        return model.eval()
    return placed(model, source, target)


def placed(model: Any, source: str, target: str) -> Any:
    """The model in evaluation mode, on a device. ``CirfError``: no memory for it there."""
    with enough(f"{source}: too big for the memory of {target}; use a smaller model or device: cpu"):
        return model.to(target).eval()


def from_safetensors(kind: Any, source: str, section: schema.Backbone, **how: Any) -> Any:
    """The model that ``kind.from_pretrained`` loads. ``CirfError`` if weights are missing, which it would draw at random."""
    model, report = kind.from_pretrained(source, use_safetensors=True, output_loading_info=True, **how, **where(source, section))
    if missing := sorted(report["missing_keys"]):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CirfError(f"{source}: its files lack the weights {missing[0]}{more}; fetch the whole model again")
    return model


def positions(model: Any, besides: int = 0) -> int | None:
    """The most tokens that a model can read, with ``besides`` vectors, where it has a vector for each position (GPT-2, OPT,
    GPT-J); ``None``: any number."""
    parts = {name.rpartition(".")[2] for kind in (model.named_modules, model.named_buffers) for name, _ in kind()}
    if not parts & {"wpe", "embed_positions", "positions_embed"}:
        return None
    found: int | None = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    return found if found is None else max(found - besides, 1)


def check_causal(config: Any, source: str | Path) -> None:
    """``CirfError`` where the configuration is that of another kind of model, such as a sentence embedder, or of one that is only
    loaded together with the part that reads images (LLaVA, Qwen2-VL)."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    listed = getattr(config, "architectures", None)
    classes = [str(name) for name in listed] if isinstance(listed, list) else []
    causal = any(name.endswith(("CausalLM", "LMHeadModel", "ForConditionalGeneration")) for name in classes)
    own = bool(getattr(config, "auto_map", None))  # custom code with any class names
    apart = own or type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    if getattr(config, "is_encoder_decoder", False) or (classes and not causal and not own) or not apart:
        raise CirfError(f"{source}: holds a {[*classes, config.model_type][0]}, not a causal language model; {_ADVICE}")


def check_vocabulary(config: Any, tokenizer: Any, source: str | Path) -> None:
    """``CirfError`` where a tokenizer has more tokens than the model has embeddings, those apart that were added to it."""
    rows = getattr(config.get_text_config(decoder=True), "vocab_size", None)
    if rows is not None and tokenizer.vocab_size > rows:
        counts = f"its tokenizer has {tokenizer.vocab_size:,} tokens, the model embeddings of {rows:,}"
        raise CirfError(f"{source}: {counts}; use the tokenizer that the model came with")


def check_architecture(config: Any, wanted: schema.Architecture, source: str | Path) -> None:
    """``CirfError`` where width, layers or heads are not what the recipe says."""
    text = config.get_text_config(decoder=True)
    for key, attribute in (("hidden_size", "hidden_size"), ("layers", "num_hidden_layers"), ("heads", "num_attention_heads")):
        expected, found = getattr(wanted, key), getattr(text, attribute, None)
        if expected is not None and expected != found:
            mismatch = f"the recipe says {expected}, but {source} has {found}"
            raise CirfError(f"backbone.architecture.{key}: {mismatch}; use the model it was written for")


def check_weights(source: str | Path) -> None:
    """``CirfError`` if a model's folder has no weight files, lacks a file or a weight that its index names, or holds one that is
    truncated or damaged, by its header and length."""
    if Path(source).is_dir():
        files = {path.name: path for path in sorted(Path(source).glob("*.safetensors"))}
        found = (load_object(Path(source) / _INDEX) or {}).get("weight_map")
        places = {weight: str(name) for weight, name in found.items()} if isinstance(found, dict) else {}
        if missing := sorted(({*places.values()} or {"model.safetensors"}) - files.keys()):
            raise CirfError(f"{source}: no weights there ({missing[0]} is missing); save or fetch the model's weights again")
        for name, path in files.items():
            try:
                with safe_open(path, framework="pt") as file:
                    there = set(file.keys())
            except (SafetensorError, OSError) as error:
                reason = f"truncated or damaged ({error}), so no model could be loaded"
                raise CirfError(f"{path}: {reason}; save or fetch the model's weights again") from None
            if lacking := [weight for weight, place in places.items() if place == name and weight not in there]:
                raise CirfError(f"{path}: lacks {lacking[0]}, which {_INDEX} names; save the model again")


def where(source: str | Path, section: schema.Backbone) -> dict[str, Any]:
    """Arguments of ``from_pretrained`` besides the source: the revision of a hub id, and whether its own code may run: never in a
    process that only looks (`cirf.user_code.look_only`)."""
    revision = {} if Path(source).exists() or section.revision is None else {"revision": section.revision}
    return {"trust_remote_code": may_run(section.trust_remote_code), **revision}


def object_of(path: Path) -> dict[str, Any] | None:
    """The JSON object of a file of a model's folder, `None` without the file; ``CirfError`` if it holds anything else."""
    try:
        return load_object(path)
    except CirfError as error:
        raise CirfError(f"{str(error).partition(';')[0]}; use the file that the model came with") from None


@contextlib.contextmanager
def explained(source: str | Path, what: str) -> Iterator[None]:
    """Turn the library's many-line errors into one sentence."""
    path = Path(source)
    looks_local = path.is_absolute() or str(source).startswith((".", "~"))
    if looks_local and not path.exists():
        raise CirfError(f"{source}: no such folder; {_ADVICE}")
    if path.exists() and not path.is_dir():
        raise CirfError(f"{source}: is a file; {_ADVICE}")
    if path.is_dir() and not (path / "config.json").exists():
        raise CirfError(f"{source}: the folder holds no model (no config.json); {_ADVICE}")
    if path.is_dir():
        refuse_special(path)
        if (path / "adapter_config.json").is_file():  # which transformers would load onto the model, and save alone
            raise CirfError(f"{source}: holds adapters next to a model; merge them into it, or remove adapter_config.json")
        for name in _OBJECTS:
            object_of(path / name)
    try:
        with no_pickles(source):
            yield
    except CirfError:
        raise
    except Exception as error:  # nothing narrower: a value of another type in config.json is of no common class
        if "trust_remote_code" in str(error):
            advice = "set backbone.trust_remote_code: true if you trust it (of commands that run no recipe: --trust-remote-code)"
            raise CirfError(f"{source}: the {what} comes with custom code; {advice}") from None
        if "mismatched_sizes" in str(error):  # whose report is not shown: see `transformers_quiet`
            raise CirfError(f"{source}: weights have other shapes than config.json says; fetch the whole model again") from None
        if "instantiate the backend tokenizer" in str(error):
            raise CirfError(f"{source}: {_NO_TOKENIZER}") from None
        for name in ("tokenizer.json", "vocab.json"):  # large, so read only to say what is wrong
            object_of(path / name)
        first = re.split(r"[.!] ", " ".join(str(error).split()))[0][:300].rstrip(". ") or type(error).__name__
        raise CirfError(f"{source}: no {what} could be loaded from there ({first}); {_ADVICE}") from None
