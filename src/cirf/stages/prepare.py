"""From rationales to what a method itself makes of them, before it is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cirf.distributed import ALONE
from cirf.errors import CirfError
from cirf.methods import get
from cirf.records import Problem, Steps
from cirf.stages.context import Context
from cirf.stages.scores import answer
from cirf.store.files import to_json, write_atomic, write_rows
from cirf.store.jsonl import read_rows


def prepare(context: Context, name: str, work: Path) -> dict[str, Any]:
    """Have a method prepare its training rows: ``rows.jsonl``, one a rationale, and ``report.json``."""
    from cirf.assets import resolve
    from cirf.lm.backbone import load_tokenizer
    from cirf.methods.base import Material
    from cirf.stages.models import release

    recipe = context.recipe
    release(context)
    backbone = resolve(recipe.backbone.model, context.progress)
    steps, held_out = context.steps(), context.validation()
    known = {problem.id: problem for problem in [*context.train(), *held_out]}

    def answers(judge: str, runs: int, temperature: float, top_p: float) -> dict[str, list[dict[str, Any]]]:
        problems: dict[str, list[Problem]] = {}
        for problem in map(known.__getitem__, dict.fromkeys(row.problem for row in steps)):
            problems.setdefault(problem.task, []).append(problem)
        drawn = recipe.evaluate.model_copy(update={"runs": runs, "temperature": temperature, "top_p": top_p})
        place = work / "scratch" / f"answers-{judge}"
        answer(context, judge, drawn, problems, place, ALONE)
        release(context)
        found: dict[str, list[dict[str, Any]]] = {}
        for task in problems:
            rows = read_rows(place / f"{task}.jsonl")
            write_rows(work / f"answers-{judge}" / f"{task}.jsonl", rows)
            for row in rows:
                found.setdefault(row["id"], []).append(row)
        return found

    material = Material(
        recipe=recipe,
        problems=known,
        held_out=frozenset(problem.id for problem in held_out),
        tasks=context.tasks,
        steps=steps,
        annotated=[Steps.from_dict(row) for row in context.rows("segments", "annotated.jsonl")],
        tokenizer=lambda: load_tokenizer(backbone, recipe.backbone),
        asked=context.asked,
        answers=answers,
        scratch=work / "scratch",
        folder=work,
        progress=context.progress,
    )
    rows, report = get(name, recipe).prepare(material)
    wanted = {(row.problem, row.sample) for row in steps}
    if {(row.get("problem"), row.get("sample")) for row in rows} != wanted or len(rows) != len(wanted):
        raise CirfError(f"{name}: prepared {len(rows)} rows for {len(wanted)} rationales; it must make one of each")
    write_rows(work / "rows.jsonl", rows)
    write_atomic(work / "report.json", to_json(report))
    return {"rows": len(rows), "notes": [str(report["note"])] if "note" in report else []}
