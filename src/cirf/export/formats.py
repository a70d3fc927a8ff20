"""Tasks and training rows in the formats of other programs.

Tasks for EleutherAI's lm-evaluation-harness are a YAML file and a file of rows each, to be found with ``--include_path``; for
inspect_ai a Python file each, with the same rows. Prompt and cap are a method's, and the answer is read after the last
``</cirf>``, ``</think>``, ``####`` or functional token.

Training rows make each trainer train on the same ids as ours. They hold the rendered prompt and what follows it as text, since a
chat template that renders a finished conversation writes no opening delimiter (``vocabulary.opening: prompt``), and often a line
break that is no target of ours:

* TRL and unsloth: ``prompt`` and ``completion``. They encode both in one piece, and add the end token and the tokenizer's own
  prefix, unsloth not if the text of the chat template has it.
* LLaMA-Factory: ``instruction`` and ``output`` under its template ``empty``; encoded apart, with the end token in the output.
* axolotl: ``segments`` of the type ``input_output``; encoded apart, with the end token in the last.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.evaluation.harness import hide
from cirf.lm.prompt import end_token, sanitise
from cirf.lm.training.batches import Row, sft_rows, tokenise
from cirf.lm.training.spec import plan_updates
from cirf.methods.base import Method
from cirf.recipe.schema import Evaluate, Finetune
from cirf.records import Problem
from cirf.store.files import to_json, write_atomic, write_rows
from cirf.tasks.task import Task

_ANSWER = r"(?s)\A(?:.*(?:</cirf>|</think>|####|<cirf_\d{3,}>))?\s*(.*?)\s*\Z"
_INSPECT = '''"""{name}: a task of inspect_ai (inspect eval FILE --model ...). The answer follows the trace or the mark."""

import re
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import CORRECT, INCORRECT, Score, accuracy, scorer, stderr
from inspect_ai.solver import generate

ANSWER = re.compile({answer!r})
IGNORED = re.compile({ignored!r})


@scorer(metrics=[accuracy(), stderr()])
def exact_match():
    async def score(state, target):
        said = ANSWER.fullmatch(state.output.completion)[1]
        right = IGNORED.sub("", said).lower() == IGNORED.sub("", target.text).lower()
        return Score(value=CORRECT if right else INCORRECT, answer=said, explanation=state.output.completion)

    return score


@task
def {name}():
    rows = json_dataset(str(Path(__file__).with_suffix(".jsonl")), FieldSpec(input="prompt", target="answer", id="id"))
    return Task(dataset=rows, solver=generate(), scorer=exact_match(), config=GenerateConfig(max_tokens={cap}, temperature=0.0))
'''
_IGNORED = [r"(?<=\d),(?=\d{3})", r"^\$", r"%$", r"\.0*$"]


def write_task(folder: Path, name: str, task: Task, problems: Sequence[Problem], method: Method, section: Evaluate) -> str:
    """Write ``cirf_NAME[_METHOD].yaml``, its rows, and ``.py`` for inspect_ai; returns the task's name in the harness.

    ``method`` gives prompt and cap as in an evaluation with the keys of ``section``; the name includes it unless its model writes
    functional tokens. The rows' paths are absolute, so that the harness can start in any folder. ``CirfError``: no problems.
    """
    import yaml

    if not problems:
        raise CirfError(f"{name}: there are no test problems to write")
    there = f"cirf_{name}" + ("" if method.functional else f"_{method.name}")
    path = folder / f"{there}.jsonl"
    prompts = [(problem, method.prompt(hide(problem), task)) for problem in problems]
    write_rows(path, [{"id": problem.id, "prompt": prompt, "answer": problem.answer} for problem, prompt in prompts])
    cap = method.budget(task, section)
    exact = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True, "ignore_case": True}
    config: dict[str, Any] = {
        "task": there,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path.resolve())}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "metadata": {"version": task.version},
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": [], "do_sample": False, "max_gen_toks": cap},
        "filter_list": [
            {"name": "answer", "filter": [{"function": "regex", "regex_pattern": _ANSWER}, {"function": "take_first"}]}
        ],
        "metric_list": [exact | {"regexes_to_ignore": _IGNORED}],
    }
    called = re.sub(r"\W", "_", there)
    write_atomic(folder / f"{there}.py", _INSPECT.format(name=called, answer=_ANSWER, ignored="|".join(_IGNORED), cap=cap))
    write_atomic(folder / f"{there}.yaml", yaml.safe_dump(config, sort_keys=False, width=1000))
    return there


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
    kept = [row for index, row in enumerate(rows) if index not in left_out]
    if not kept:
        raise CirfError("every row is longer than finetune.max_length; raise it with `cirf run RECIPE --set`")
    end = str(tokenizer.convert_ids_to_tokens(end_token(tokenizer)))
    written: list[dict[str, Any]]
    if trainer in ("trl", "unsloth"):
        written = list(sft_rows(kept, tokenizer, keep))
        bare = trainer == "unsloth" and str(tokenizer.bos_token) in str(tokenizer.chat_template)  # then it adds no such token
        for row, feature in zip(written, features, strict=True):
            text = row["prompt"] + row["completion"] + end
            if tokenizer(text, add_special_tokens=not bare).input_ids != list(feature.ids):
                raise CirfError(
                    f"--format {trainer}: {row['completion'][:40]!r} has other tokens when it is encoded with its prompt, so "
                    f"{trainer} would train on these; use --format axolotl or llama-factory"
                )
    else:
        texts = [(row.prompt, sanitise(row.target, tokenizer, keep) + end) for row in kept]
        if trainer == "llama-factory" and any("{{idx}}" in prompt for prompt, _ in texts):
            raise CirfError("--format llama-factory: it would replace '{{idx}}' in a prompt; use --format axolotl or trl")
        if trainer == "axolotl":
            written = [{"segments": [{"label": False, "text": prompt}, {"label": True, "text": text}]} for prompt, text in texts]
        else:
            written = [{"instruction": prompt, "output": text} for prompt, text in texts]
            entry = {"file_name": ROWS, "columns": {"prompt": "instruction", "response": "output"}}
            write_atomic(out / "dataset_info.json", to_json({"cirf": entry}))
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

    keys = _trainer_keys(section, trainer == "axolotl")
    data: dict[str, Any]
    if trainer == "trl":
        data = {"model_name_or_path": START, "dtype": "float32", "dataset_name": "rows", "eos_token": end}
        keys["max_length"] = section.max_length
    elif trainer == "llama-factory":
        data = {"model_name_or_path": START, "stage": "sft", "do_train": True, "finetuning_type": "full"}
        data |= {"dataset": "cirf", "dataset_dir": ".", "template": "empty", "cutoff_len": section.max_length}
    else:
        data = {
            "base_model": START,
            "datasets": [{"path": ROWS, "ds_type": "json", "type": "input_output"}],
            "train_on_inputs": False,
            "sequence_len": section.max_length,
        }
    note = f"# Ids of the new tokens: {', '.join(map(str, ids))}. Adapters must train their embeddings, too.\n" if ids else ""
    return note + str(yaml.safe_dump({**data, **keys, "output_dir": "trained"}, sort_keys=False))


_SHARED = {"gradient_accumulation_steps", "learning_rate", "warmup_steps", "weight_decay", "max_grad_norm", "bf16"}
_SHARED |= {"adam_beta1", "adam_beta2", "adam_epsilon"}
"""Keys of the recipe that the trainers know by the same names."""


def _trainer_keys(section: Finetune, axolotl: bool) -> dict[str, Any]:
    """The recipe's numbers by a trainer's names: axolotl's, or those of transformers' ``TrainingArguments``."""
    shared, schedule = section.model_dump(include=_SHARED), section.lr_scheduler_type
    cosine = schedule == "cosine"
    if axolotl:
        keys: dict[str, Any] = {"num_epochs": section.epochs, "micro_batch_size": section.batch_size}
        keys |= {"optimizer": "adamw_torch_fused", "lr_scheduler": "constant_with_warmup" if schedule == "constant" else schedule}
        keys |= {"cosine_min_lr_ratio": section.min_lr_ratio} if cosine else {}
    else:
        keys = {"num_train_epochs": section.epochs, "per_device_train_batch_size": section.batch_size}
        names = {"cosine": "cosine_with_min_lr", "linear": "linear", "constant": "constant_with_warmup"}
        keys |= {"lr_scheduler_type": names[schedule]}
        keys |= {"lr_scheduler_kwargs": {"min_lr_rate": section.min_lr_ratio}} if cosine else {}
    return keys | shared
