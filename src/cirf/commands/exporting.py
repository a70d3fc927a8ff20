"""``lm-eval``: our tasks as files of lm-evaluation-harness."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from cirf.errors import CirfError
from cirf.recipe import Problems, TaskEntry


def lm_eval(out: Path, names: Sequence[str], choice: bool, data: Path | None, limit: int | None, as_json: bool) -> None:
    """Write the test problems of tasks for the harness, and say how to run it."""
    from cirf.evaluation.lm_evaluation import Form, write_task
    from cirf.tasks import resolve
    from cirf.tasks.load import load_problems

    if data is not None and not data.is_dir():
        raise CirfError(f"--data {data}: no such folder")
    entries = tuple(TaskEntry(task=name, test=limit) for name in dict.fromkeys(names))
    if not entries:
        raise CirfError("--tasks: name what to write, such as --tasks gsm8k,svamp (see `cirf tasks`)")
    section = Problems(tasks=entries, data=str(data) if data is not None else None, validation=0)
    tasks, test = resolve(section), load_problems(section, seed=1).test
    out.mkdir(parents=True, exist_ok=True)
    form: Form = "choice" if choice else "generate"
    rows = {write_task(out, name, tasks[name], problems, form): len(problems) for name, problems in test.items()}
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
