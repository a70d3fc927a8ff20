"""A check of a trained model: held-out training questions, answered and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cirf.distributed import Share
from cirf.methods import get
from cirf.stages.context import Context
from cirf.stages.scores import answer
from cirf.store.files import load_object, to_json, write_atomic
from cirf.store.jsonl import read_rows


def checking(context: Context, name: str, work: Path) -> dict[str, Any]:
    """Answer the first ``evaluate.check_questions`` held-out questions, greedily, and write ``check.json``; faults are notes."""
    from cirf.evaluation.check import check, faults, majority_share

    section = context.recipe.evaluate.model_copy(update={"temperature": 0.0, "runs": 1})
    held_out = context.validation()[: section.check_questions]
    if not held_out:
        note = "no question is held out, so the model cannot be checked; raise problems.validation"
        write_atomic(work / "check.json", to_json({"n": 0, "faults": [], "note": note}))
        return {"rows": 0, "notes": [note]}
    asked = {task: [problem for problem in held_out if problem.task == task] for task in context.tasks}
    asked = {task: problems for task, problems in asked.items() if problems}
    answer(context, name, section, asked, work, Share.of_launch())
    rows = [row for task in asked for row in read_rows(work / f"{task}.jsonl")]
    training = context.train()
    share = sum(
        len(problems) * majority_share([p.answer for p in training if p.task == task], [p.answer for p in problems])
        for task, problems in asked.items()
    ) / len(held_out)
    found = check(rows, share)
    summary = faults(name, found) if get(name, context.recipe).trained else []
    summary = [*_ended(context, name), *summary]
    write_atomic(work / "check.json", to_json(found.to_dict() | {"faults": summary}))
    return {"rows": found.n, "notes": [f"WARNING: {line}" for line in summary]}


def _ended(context: Context, name: str) -> list[str]:
    """Why the training of the model that answers was ended early, where it was."""
    history = context.folder.folder(f"models/{get(name, context.recipe).learner}") / "history.json"
    ended = (load_object(history) or {}).get("ended")
    return [] if ended is None else [ended]
