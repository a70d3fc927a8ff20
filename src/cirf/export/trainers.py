"""Training rows in the formats of other trainers, so that each trains on the same ids as ours.

Our prompt ends with the opening delimiter where the chat template writes it (``vocabulary.opening: prompt``), and a template that
renders a finished conversation does not: its assistant's turn would lack the delimiter, and often ends with a line break that
is no target of ours. So rows hold the rendered prompt, and what follows it, as text:

* TRL and unsloth: ``prompt`` and ``completion``. They encode both in one piece, and add the end token.
* LLaMA-Factory: ``instruction`` and ``output`` under its template ``empty``; encoded apart, with the end token in the output.
* axolotl: ``segments`` of the type ``input_output``; encoded apart, with the end token in the last.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.lm.prompt import end_token, sanitise
from cirf.lm.training.batches import Row, sft_rows, tokenise
from cirf.lm.training.finetune import plan_updates
from cirf.recipe.schema import Finetune
from cirf.store.files import to_json, write_atomic, write_rows

TRAINERS = ("trl", "unsloth", "llama-factory", "axolotl")
_PAGE = "docs/how-to/other-trainers.md"
START, ROWS, CONFIG = "start", "rows/train.jsonl", "config.yaml"
"""Of the exported folder: the model to start from, the rows, and the trainer's settings."""


def write_trainer(
    out: Path, trainer: str, rows: Sequence[Row], tokenizer: Any, keep: Collection[int], section: Finetune
) -> dict[str, Any]:
    """Write the rows and the settings for a trainer; answers how many rows, how many were left out, and the command; of
    unsloth, which has none, where to find its script.

    Rows longer than ``finetune.max_length`` tokens are left out, as our training leaves them out. ``keep`` are the ids of the new
    tokens. ``CirfError``: no row is left, or TRL would cut a row into other tokens than ours.
    """
    features, dropped = tokenise(rows, tokenizer, section.max_length, keep)
    left_out = set(dropped)
    kept = [row for place, row in enumerate(rows) if place not in left_out]
    if not kept:
        raise CirfError("every row is longer than finetune.max_length; raise it with `cirf run RECIPE --set`")
    end = str(tokenizer.convert_ids_to_tokens(end_token(tokenizer)))
    written: list[dict[str, Any]]
    if trainer in ("trl", "unsloth"):
        written = list(sft_rows(kept, tokenizer, keep))
        for row, feature in zip(written, features, strict=True):
            if tokenizer(row["prompt"] + row["completion"] + end).input_ids != list(feature.ids):
                raise CirfError(
                    f"--format {trainer}: {row['completion'][:40]!r} has other tokens when it is encoded with its prompt, so "
                    f"{trainer} would train on these; use --format axolotl or llama-factory"
                )
    else:
        texts = [(row.prompt, sanitise(row.target, tokenizer, keep) + end) for row in kept]
        if trainer == "axolotl":
            written = [{"segments": [{"label": False, "text": prompt}, {"label": True, "text": text}]} for prompt, text in texts]
        else:
            written = [{"instruction": prompt, "output": text} for prompt, text in texts]
            summary = {"file_name": ROWS, "columns": {"prompt": "instruction", "response": "output"}}
            write_atomic(out / "dataset_info.json", to_json({"cirf": summary}))
    write_rows(out / ROWS, written)
    if trainer != "unsloth":
        section = section.settled(len(kept))
        warmup = plan_updates(len(kept), section, float(section.epochs)).warmup
        settled = section.model_copy(update={"warmup_steps": warmup})
        write_atomic(out / CONFIG, _settings(trainer, settled, end, sorted(keep)))
    commands = {
        "trl": f"trl sft --config {CONFIG}",
        "llama-factory": f"llamafactory-cli train {CONFIG}",
        "axolotl": f"axolotl train {CONFIG}",
    }
    command = f"cd {shlex.quote(str(out))} && {commands[trainer]}" if trainer in commands else f"see {_PAGE} for the script"
    return {"rows": len(kept), "left_out": len(dropped), "end_token": end, "command": command}


def _settings(trainer: str, section: Finetune, end: str, ids: Sequence[int]) -> str:
    """The trainer's own settings as YAML: full fine-tuning by the recipe's numbers; paths are those of the exported folder."""
    import yaml

    keys = _axolotl(section) if trainer == "axolotl" else _transformers(section)
    data: Mapping[str, Any]
    if trainer == "trl":
        data = {"model_name_or_path": START, "dtype": "float32", "dataset_name": "rows", "eos_token": end}
        keys["max_length"] = section.max_length
    elif trainer == "llama-factory":
        data = {
            "model_name_or_path": START,
            "stage": "sft",
            "do_train": True,
            "finetuning_type": "full",
            "dataset": "cirf",
            "dataset_dir": ".",
            "template": "empty",
            "cutoff_len": section.max_length,
        }
    else:
        data = {
            "base_model": START,
            "datasets": [{"path": ROWS, "ds_type": "json", "type": "input_output"}],
            "train_on_inputs": False,
            "sequence_len": section.max_length,
        }
    note = f"# Rows of new tokens: {', '.join(map(str, ids))}. Adapters must train them, too.\n" if ids else ""
    return note + str(yaml.safe_dump({**data, **keys, "output_dir": "trained"}, sort_keys=False))


def _transformers(section: Finetune) -> dict[str, Any]:
    """The settings by the names of transformers' ``TrainingArguments``."""
    schedule = {"cosine": "cosine_with_min_lr", "linear": "linear", "constant": "constant_with_warmup"}[section.lr_scheduler_type]
    minimum = {"lr_scheduler_kwargs": {"min_lr_rate": section.min_lr_ratio}} if section.lr_scheduler_type == "cosine" else {}
    return {
        "num_train_epochs": section.epochs,
        "per_device_train_batch_size": section.batch_size,
        "gradient_accumulation_steps": section.gradient_accumulation_steps,
        "learning_rate": section.learning_rate,
        "lr_scheduler_type": schedule,
        **minimum,
        "warmup_steps": section.warmup_steps,
        "weight_decay": section.weight_decay,
        "max_grad_norm": section.max_grad_norm,
        "bf16": section.bf16,
    }


def _axolotl(section: Finetune) -> dict[str, Any]:
    """The settings by axolotl's names."""
    minimum = {"cosine_min_lr_ratio": section.min_lr_ratio} if section.lr_scheduler_type == "cosine" else {}
    return {
        "num_epochs": section.epochs,
        "micro_batch_size": section.batch_size,
        "gradient_accumulation_steps": section.gradient_accumulation_steps,
        "learning_rate": section.learning_rate,
        "optimizer": "adamw_torch_fused",
        "lr_scheduler": "constant_with_warmup" if section.lr_scheduler_type == "constant" else section.lr_scheduler_type,
        **minimum,
        "warmup_steps": section.warmup_steps,
        "weight_decay": section.weight_decay,
        "max_grad_norm": section.max_grad_norm,
        "bf16": section.bf16,
    }
