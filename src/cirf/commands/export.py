"""``lm-eval``: tasks as files of other harnesses; ``export``: a model for another engine, its rows for other trainers.
``archive``: a run's or a sweep's numbers for a repository; ``push``: a finished model to a repository of a hub.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from cirf.codebook.functions import find_model
from cirf.commands.analyze import open_runs
from cirf.commands.evaluate import task_entry
from cirf.commands.run import absolute, open_context, with_data
from cirf.commands.show import up_to_date
from cirf.errors import CirfError
from cirf.export.archive import is_archive, write
from cirf.export.gguf import KINDS, write_gguf
from cirf.export.parcel import CARD, check_name, of_model, upload
from cirf.methods import get
from cirf.methods.base import Method
from cirf.progress import for_terminal
from cirf.recipe.load import dump, open_run, parse
from cirf.recipe.schema import Problems, Recipe, TaskEntry
from cirf.store.files import to_json, write_atomic
from cirf.store.integrity import check_model
from cirf.tasks import resolve
from cirf.tasks.loading.load import load_problems


def archive(folder: Path, out: Path, as_json: bool) -> None:
    if is_archive(folder):
        raise CirfError(f"{folder}: already an archive; copy it")
    runs = open_runs(folder)
    size = write(runs, out)
    names = list(dict.fromkeys(run.name for run in runs))
    warnings = dict.fromkeys(f"{run.name}: {run.warning}" for run in runs if run.warning)
    if as_json:
        print(json.dumps({"folder": str(out), "runs": names, "bytes": size, "warnings": list(warnings)}, indent=2))
        return
    for line in warnings:
        print(f"warning: {line}")
    print(f"{out}: {len(names)} run{'s' if len(names) != 1 else ''}, {size / 1e6:.2f} MB")
    print(f"cirf analyze {out}")


def lm_eval(
    out: Path,
    names: Sequence[str],
    method: str,
    sets: Sequence[str],
    data: Path | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Write the test problems of tasks for the harness, and print how to run it.

    ``names`` are as those of ``cirf evaluate``: a task's name, a Python file or a JSONL file to test on. ``method`` gives prompt
    and cap as there; ``sets`` are keys of a recipe, such as ``evaluate.max_new_tokens=1024``.
    """
    from cirf.export.formats import write_task

    entries = tuple(task_entry(name).model_copy(update={"test": limit}) for name in dict.fromkeys(names))
    if not entries:
        raise CirfError("--tasks: name tasks, such as --tasks gsm8k,svamp (see `cirf tasks`)")
    recipe = Recipe(name="lm-eval", problems=Problems(tasks=(TaskEntry(task="gsm8k"),), validation=0))
    section = recipe.problems.model_copy(update={"tasks": entries})
    recipe = recipe.model_copy(update={"methods": (method,), "problems": section})
    recipe = absolute(with_data(parse(dump(recipe), "the command line", sets), data))
    asker = get(method, recipe)
    if asker.latents:
        raise CirfError(
            f"--method {method}: it reasons in vectors before it answers, which the harness cannot; use `cirf evaluate`"
        )
    tasks, test = resolve(recipe.problems), load_problems(recipe.problems, recipe.seed).test
    out.mkdir(parents=True, exist_ok=True)
    rows = {
        write_task(out, name, tasks[name], problems, asker, recipe.evaluate): len(problems) for name, problems in test.items()
    }
    for name, task in tasks.items():
        if task.parser or task.equality:
            print(f"{name}: the harness compares texts; its own parser and equality are not known there", file=sys.stderr)
    _say_how(out, rows, as_json)


def _say_how(out: Path, rows: Mapping[str, int], as_json: bool) -> None:
    harness = f"lm_eval --model hf --model_args pretrained=MODEL --include_path {out} --tasks {','.join(rows)} --batch_size 16"
    files = " ".join(str(out / f"{name}.py") for name in rows)
    commands = {
        "command": f"{harness} --apply_chat_template",
        "inspect": f"inspect eval {files} --model hf/local -M model_path=MODEL -M do_sample=false",
    }
    if as_json:
        print(json.dumps({"folder": str(out), "tasks": rows, **commands}, indent=2))
        return
    for there, count in rows.items():
        print(f"{there}: {count:,} rows")
    print(*commands.values(), sep="\n")


def export(model: Path, out: Path, kind: str, as_json: bool) -> None:
    """Write a model as a GGUF file and print how to use it. ``CirfError`` if it reasons in vectors, which llama.cpp cannot."""
    from cirf.methods.saved import vectors_of

    chosen = next((known for known in KINDS if known == kind), None)
    if chosen is None:
        raise CirfError(f"--type {kind}: one of {', '.join(KINDS)}")
    folder = find_model(model)
    if vectors_of(folder):
        raise CirfError(
            f"{folder}: it reasons in vectors before it answers, which llama.cpp cannot; use `cirf ask` or `cirf evaluate`"
        )
    check_model(folder.resolve(), for_terminal(as_json))
    details = write_gguf(folder, out, chosen, for_terminal())
    if as_json:
        print(json.dumps(details, indent=2))
        return
    print(
        f"{details['file']}: {details['architecture']}, {details['type']}, {details['bytes'] / 1e6:,.0f} MB, "
        f"{details['added']} added tokens"
    )
    print(f"llama-server -m {out} --jinja  # or: llama_cpp.Llama({str(out)!r})")


def rows(run: Path, trainer: str, out: Path, name: str, as_json: bool) -> None:
    """Write a method's training rows for another trainer, and the model that its training starts from.

    The run needs its traces, no trained model. ``CirfError`` for an unknown trainer, a folder that is not empty, a method that
    rows of text do not teach, or rows that do not exist yet.
    """
    from cirf.export.formats import START, TRAINERS, write_trainer
    from cirf.lm.saving import save_model
    from cirf.stages.models import functions_of, load_start, training_examples, training_rows

    if trainer not in TRAINERS:
        raise CirfError(f"--format {trainer}: one of {', '.join(TRAINERS)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CirfError(f"--out {out}: not an empty folder; name a new one")
    context = open_context(open_run(run), run, quiet=as_json)
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
        raise CirfError(f"{run / made}: missing, or not by the current recipe; `cirf run RECIPE --until {made}` makes it")
    begun = load_start(context, method, None)
    tokenizer, new_ids = begun.tokenizer, begun.new_ids
    template = tokenizer.chat_template
    method.settle(tokenizer, training=True)
    examples = training_examples(context, method)[0]
    found = training_rows(context, method, tokenizer, examples)
    section = context.recipe.finetune.resolved(name, method.training)
    details = write_trainer(out, trainer, found, tokenizer, [*new_ids, *begun.input_ids], section)
    tokenizer.chat_template = template
    method.settle(tokenizer, training=False)
    tokenizer.eos_token = details["end_token"]  # what a trainer appends to an answer
    delimiters = context.recipe.vocabulary.delimiters if method.functional else None
    save_model(begun.model, tokenizer, out / START, context.recipe.backbone.dtype, delimiters)
    if method.functional:
        write_atomic(out / START / "functions.json", to_json(functions_of(context, examples)))
    details = {"folder": str(out), "start": str(out / START)} | details
    if as_json:
        print(json.dumps(details, indent=2))
        return
    left_out = f", {details['left_out']:,} longer than finetune.max_length left out" if details["left_out"] else ""
    print(f"{details['rows']:,} rows{left_out}")
    print(details["command"])


def push(path: Path, repository: str, public: bool, dry_run: bool, as_json: bool) -> None:
    """Send a model's folder (of a run: its CIRF model) to ``repository``, ``OWNER/NAME``, and print what was sent and where.
    ``dry_run``: print what would be sent, and the card. ``CirfError`` for an unfinished model."""
    check_name(repository)
    folder = find_model(path)
    pieces, left_out = of_model(folder, repository)
    check_model(folder.resolve(), for_terminal(as_json))
    seen = "public" if public else "private"
    sizes = {name: len(data) if isinstance(data, bytes) else data.stat().st_size for name, data in pieces.items()}
    details: dict[str, Any] = {
        "repository": repository,
        "visibility": seen,
        "files": [{"name": name, "bytes": size} for name, size in sizes.items()],
        "bytes": sum(sizes.values()),
        "left_out": left_out,
        "pushed": not dry_run,
    }
    if not as_json:
        for name, size in sizes.items():
            print(f"{name:{max(map(len, sizes))}} {size:>15,}")
        print(f"{len(sizes)} files, {details['bytes'] / 1e6:,.1f} MB")
        if left_out:
            print(f"left out: {', '.join(left_out)}")
    if dry_run:
        card = cast(bytes, pieces[CARD]).decode()
        if as_json:
            print(json.dumps(details | {"card": card}, indent=2, ensure_ascii=False))
        else:
            print(f"\n{CARD}:\n\n{card}")
            print(f"nothing was sent; without --dry-run it goes to the {seen} repository {repository}")
        return
    details["url"] = upload(pieces, repository, public, f"{folder.resolve().name}, trained by cirf")
    print(json.dumps(details, indent=2, ensure_ascii=False) if as_json else f"{seen} model {repository}: {details['url']}")
