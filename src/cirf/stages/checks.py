"""A check of a trained model: held-out training questions, answered and judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.distributed import Share
from cirf.methods import get
from cirf.stages.context import Context
from cirf.stages.rewards import unchanged
from cirf.stages.scores import answer
from cirf.store.files import load_object, to_json, write_atomic
from cirf.store.jsonl import read_rows

if TYPE_CHECKING:
    from cirf.methods.base import Method


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
    method = get(name, context.recipe)
    summary = faults(name, found, limits_of(method)) if method.trained else []
    summary = [*_ended(context, name), *summary]
    write_atomic(work / "check.json", to_json(found.to_dict() | {"faults": summary}))
    return {"rows": found.n, "notes": [f"WARNING: {line}" for line in summary]}


def limits_of(method: Method) -> dict[str, Any]:
    """The settings that limit the traces of a method which answers with another's model; none where it is trained itself."""
    from cirf.methods.cirf.cirf import FormSettings

    if method.learner == method.name:
        return {}
    known = {key: field.default for key, field in FormSettings.model_fields.items() if key != "grammar"}
    given = {key: getattr(method.settings, key, default) for key, default in known.items()}
    return {key: value for key, value in given.items() if value != known[key]}


def _ended(context: Context, name: str) -> list[str]:
    """Why the training of the model that answers was ended early, where it was, and whether it came to nothing."""
    history = load_object(context.folder.folder(f"models/{get(name, context.recipe).learner}") / "history.json") or {}
    return [*([history["ended"]] if "ended" in history else []), *unchanged(history)]
