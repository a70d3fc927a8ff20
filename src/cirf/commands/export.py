"""``lm-eval``: tasks as files of other harnesses; ``export``: a model for another engine, its rows for other trainers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.recipe.schema import Problems, Recipe, TaskEntry


def lm_eval(
    out: Path,
    names: Sequence[str],
    method: str,
    choice: bool,
    sets: Sequence[str],
    data: Path | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Write the test problems of tasks for the harness, and print how to run it.

    ``names`` are as those of ``cirf evaluate``: a task's name, a Python file or a JSONL file to test on. ``method`` gives prompt
    and cap as there; ``sets`` are keys of a recipe, such as ``evaluate.max_new_tokens=1024``.
    """
    from cirf.commands.evaluate import task_entry
    from cirf.commands.run import absolute, with_data
    from cirf.export.lm_eval import Form, write_task
    from cirf.methods import get
    from cirf.recipe.load import dump, parse
    from cirf.tasks import resolve
    from cirf.tasks.loading.load import load_problems

    entries = tuple(task_entry(name).model_copy(update={"test": limit}) for name in dict.fromkeys(names))
    if not entries:
        raise CirfError("--tasks: name tasks, such as --tasks gsm8k,svamp (see `cirf tasks`)")
    recipe = Recipe(name="lm-eval", problems=Problems(tasks=(TaskEntry(task="gsm8k"),), validation=0))
    asked = recipe.problems.model_copy(update={"tasks": entries})
    recipe = recipe.model_copy(update={"methods": (method,), "problems": asked})
    recipe = absolute(with_data(parse(dump(recipe), "the command line", sets), data))
    asker = get(method, recipe)
    if asker.latents:
        raise CirfError(
            f"--method {method}: it thinks in vectors before it answers, which the harness cannot; use `cirf evaluate`"
        )
    tasks, test = resolve(recipe.problems), load_problems(recipe.problems, recipe.seed).test
    out.mkdir(parents=True, exist_ok=True)
    form: Form = "choice" if choice else "generate"
    rows = {
        write_task(out, name, tasks[name], problems, form, asker, recipe.evaluate): len(problems)
        for name, problems in test.items()
    }
    for name, task in tasks.items():
        if not choice and (task.parser or task.equality):
            print(f"{name}: the harness compares texts; its own parser and equality are not known there", file=sys.stderr)
    _say_how(out, rows, choice, as_json)


def _say_how(out: Path, rows: Mapping[str, int], choice: bool, as_json: bool) -> None:
    """Print what was written and the commands that run it."""
    asked = f"lm_eval --model hf --model_args pretrained=MODEL --include_path {out} --tasks {','.join(rows)} --batch_size 16"
    summary: dict[str, Any] = {"folder": str(out), "tasks": rows, "command": asked + ("" if choice else " --apply_chat_template")}
    if not choice:
        files = " ".join(str(out / f"{name}.py") for name in rows)
        summary["inspect"] = f"inspect eval {files} --model hf/local -M model_path=MODEL -M do_sample=false"
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    for there, count in rows.items():
        print(f"{there}: {count:,} rows")
    print(*(summary[name] for name in ("command", "inspect") if name in summary), sep="\n")


def export(model: Path, out: Path, kind: str, as_json: bool) -> None:
    """Write a model as a GGUF file and print how to use it. ``CirfError`` if it thinks in vectors, which llama.cpp cannot."""
    from cirf.codebook.functions import find_model
    from cirf.export.gguf import KINDS, write_gguf
    from cirf.methods.saved import vectors_of
    from cirf.progress import for_terminal
    from cirf.store.integrity import check_model

    chosen = next((known for known in KINDS if known == kind), None)
    if chosen is None:
        raise CirfError(f"--type {kind}: one of {', '.join(KINDS)}")
    folder = find_model(model)
    if vectors_of(folder):
        raise CirfError(
            f"{folder}: it thinks in vectors before it answers, which llama.cpp cannot; use `cirf ask` or `cirf evaluate`"
        )
    check_model(folder.resolve(), for_terminal(as_json))
    summary = write_gguf(folder, out, chosen, for_terminal())
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    print(
        f"{summary['file']}: {summary['architecture']}, {summary['type']}, {summary['bytes'] / 1e6:,.0f} MB, "
        f"{summary['added']} added tokens"
    )
    print(f"llama-server -m {out} --jinja  # or: llama_cpp.Llama({str(out)!r})")


def rows(run: Path, trainer: str, out: Path, name: str, as_json: bool) -> None:
    """Write a method's training rows for another trainer, and the model that its training starts from.

    The run needs its traces, no trained model. ``CirfError`` for an unknown trainer, a folder that is not empty, a method that
    rows of text do not teach, or rows that do not exist yet.
    """
    from cirf.commands.run import opened
    from cirf.commands.status import up_to_date
    from cirf.export.trainers import START, TRAINERS, write_trainer
    from cirf.lm.saving import save_model
    from cirf.methods import get
    from cirf.methods.base import Method
    from cirf.recipe.load import open_run
    from cirf.stages.models import begin, functions_of, learned, rows_of
    from cirf.store.files import to_json, write_atomic

    if trainer not in TRAINERS:
        raise CirfError(f"--format {trainer}: one of {', '.join(TRAINERS)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CirfError(f"--out {out}: not an empty folder; name a new one")
    context = opened(open_run(run), run, quiet=as_json)
    method = get(name, context.recipe)
    if method.reward is not None:
        raise CirfError(f"--method {name}: {name} is trained by reward and has no rows of its own; see docs/how-to/reward.md")
    kind = type(method)
    alone = kind.curriculum is Method.curriculum and kind.objective is Method.objective and not method.prepares()
    if not method.trained or not alone or method.latents or method.guide or method.learner != name:
        raise CirfError(f"--method {name}: rows of text do not teach it; name one that writes functional tokens or prose")
    made = f"compressed/{name}" if method.pruning else "traces" if method.functional else "segments"
    done = up_to_date(run)
    if not (run / made).is_dir() or (done is not None and made not in done):
        raise CirfError(f"{run / made}: not there, or not by the current recipe; `cirf run RECIPE --until {made}` makes it")
    begun = begin(context, method, None)
    tokenizer, new_ids = begun.tokenizer, begun.new_ids
    template = tokenizer.chat_template
    method.settle(tokenizer, training=True)
    examples = learned(context, method)[0]
    found = rows_of(context, method, tokenizer, examples)
    section = context.recipe.finetune.resolved(name, method.training)
    summary = write_trainer(out, trainer, found, tokenizer, [*new_ids, *begun.input_ids], section)
    tokenizer.chat_template = template
    method.settle(tokenizer, training=False)
    tokenizer.eos_token = summary["end_token"]  # what a trainer appends to an answer
    delimiters = context.recipe.vocabulary.delimiters if method.functional else None
    save_model(begun.model, tokenizer, out / START, context.recipe.backbone.dtype, delimiters)
    if method.functional:
        write_atomic(out / START / "functions.json", to_json(functions_of(context, examples)))
    summary = {"folder": str(out), "start": str(out / START)} | summary
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    print(
        f"{summary['rows']:,} rows"
        + (f", {summary['left_out']:,} longer than finetune.max_length left out" if summary["left_out"] else "")
    )
    print(summary["command"])
