"""``lm-eval``: our tasks as files of lm-evaluation-harness; ``export``: a model as a file for another engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from cirf.errors import CirfError
from cirf.recipe import Problems, Recipe, TaskEntry


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
    """Write the test problems of tasks for the harness, and say how to run it.

    ``names`` are as those of ``cirf evaluate``: a task's name, a Python file or a JSONL file to test on. ``method`` asks and
    caps as it does there; ``sets`` are keys of a recipe, such as ``evaluate.text_cap=1024``.
    """
    from cirf.commands.evaluating import task_entry
    from cirf.commands.running import absolute, with_data
    from cirf.evaluation.lm_evaluation import Form, write_task
    from cirf.methods import get
    from cirf.recipe_io import dump, parse
    from cirf.tasks import resolve
    from cirf.tasks.load import load_problems

    entries = tuple(task_entry(name).model_copy(update={"test": limit}) for name in dict.fromkeys(names))
    if not entries:
        raise CirfError("--tasks: name what to write, such as --tasks gsm8k,svamp (see `cirf tasks`)")
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
    command = (
        f"lm_eval --model hf --model_args pretrained=MODEL --include_path {out} --tasks {','.join(rows)} --batch_size 16"
        + ("" if choice else " --apply_chat_template")
    )
    if as_json:
        print(json.dumps({"folder": str(out), "tasks": rows, "command": command}, indent=2))
        return
    for there, count in rows.items():
        print(f"{there}: {count:,} rows")
    print(command)


def export(model: Path, out: Path, kind: str, as_json: bool) -> None:
    """Write a model as a GGUF file and say how to use it. ``CirfError`` if it thinks in vectors, which llama.cpp cannot."""
    from cirf.analysis.functions import find_model
    from cirf.integrity import check_model
    from cirf.lm.thinking import vectors_of
    from cirf.progress import for_terminal
    from cirf.serving.gguf_file import KINDS, write_gguf

    chosen = next((known for known in KINDS if known == kind), None)
    if chosen is None:
        raise CirfError(f"--type {kind}: one of {', '.join(KINDS)}")
    folder = find_model(model)
    if vectors_of(folder):
        raise CirfError(
            f"{folder}: it thinks in vectors before it answers, which llama.cpp cannot; use `cirf ask` or `cirf evaluate`"
        )
    check_model(folder.resolve(), for_terminal(as_json))
    told = write_gguf(folder, out, chosen, for_terminal())
    if as_json:
        print(json.dumps(told, indent=2))
        return
    print(f"{told['file']}: {told['architecture']}, {told['type']}, {told['bytes'] / 1e6:,.0f} MB, {told['added']} added tokens")
    print(f"llama-server -m {out} --jinja  # or: llama_cpp.Llama({str(out)!r})")
