"""Rationales from language models (paper A.2, CoT Collection).

Every question is sent to every model, and again while too few answers are usable: they end in the right answer, are not
truncated, and can be cut into steps. Rationales without a readable answer are second choice.
"""

import hashlib
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from cirf.endpoints.fleet import ask
from cirf.endpoints.requests import Answer, Request, fill, read_template
from cirf.errors import CirfError
from cirf.progress import SILENT, Progress
from cirf.rationales.collect import agrees_with, may_reach
from cirf.rationales.segmentation import cut_all
from cirf.rationales.thoughts import rationale_of
from cirf.recipe import schema
from cirf.records import Problem, Rationale, TeacherRationale
from cirf.store.files import RowLog
from cirf.tasks.parsing.thoughts import split_thoughts
from cirf.tasks.task import Task

PROMPT = ("rationale", ("question",), "rationales.teacher.prompt")
"""The shipped prompt, its required placeholders, and the recipe's key for another."""


def teach(
    problems: Sequence[Problem],
    section: schema.Rationales,
    segments: schema.Segments,
    tasks: Mapping[str, Task],
    log: RowLog,
    seed: int,
    progress: Progress = SILENT,
) -> tuple[list[TeacherRationale], dict[str, str]]:
    """What the teachers wrote for ``problems``: by problem, then sample, then model; and refusals by problem. ``log`` keeps every
    answer, also across recipes: only missing ones are requested. Raises ``CirfError`` where no endpoint is named, or as `ask`
    does."""
    teacher = section.teacher
    if not teacher.endpoints:
        raise CirfError("rationales.teacher.endpoints: empty although rationales.source is teacher; name one server")
    template = read_template(teacher.prompt, *PROMPT)
    prompt = hashlib.sha256(template.encode()).hexdigest()[:16]
    models = tuple(dict.fromkeys(endpoint.model for endpoint in teacher.endpoints))
    taught: dict[tuple[str, int, str], TeacherRationale] = {}
    refused: dict[str, str] = {}
    for sample in range(teacher.samples):
        wanted = problems
        if sample and teacher.ask == "needed":
            enough = [row.problem for row in taught.values() if row.right is not None and row.fault(section.check) is None]
            wanted = [problem for problem in problems if enough.count(problem.id) < section.per_problem]
        requests = {
            (problem.id, sample, model): _request(problem, tasks[problem.task], template, model, sample, teacher, seed)
            for problem in wanted
            for model in models
        }
        title = "asking" if teacher.samples == 1 else f"asking, sample {sample + 1} of {teacher.samples}"
        answers, refusals = ask(list(requests.values()), teacher, log, progress, title)
        by_id = {problem.id: problem for problem in wanted}
        for (name, number, model), request in requests.items():
            if request.key in answers:
                problem = by_id[name]
                row = _judged(problem, tasks[problem.task], model, number, answers[request.key], prompt, segments, section.part)
                taught[name, number, model] = row
            elif request.key in refusals:
                refused[name] = refusals[request.key]
    for model in models:
        rows = [row for row in taught.values() if row.model == model]
        if rows and all(row.fault("keep") == "empty answer" for row in rows):
            raise CirfError(
                f"{model}: none of its {len(rows):,} answers holds any text (finish: {rows[0].finish}); of a model that thinks "
                "first the server must separate thoughts and answer, and max_tokens must leave room for both; then run again"
            )
    order = {problem.id: index for index, problem in enumerate(problems)}
    return sorted(taught.values(), key=lambda row: (order[row.problem], row.sample, models.index(row.model))), refused


def _request(problem: Problem, task: Task, template: str, model: str, sample: int, section: schema.Teacher, seed: int) -> Request:
    text = fill(template, {"question": task.render(problem)})
    own = hashlib.sha256(f"{seed}/{model}/{problem.id}/{sample}".encode()).digest()
    number = int.from_bytes(own[:4], "big") >> 1
    return Request(model, (("user", text),), number, section.temperature, section.top_p, section.max_tokens)


def _judged(
    problem: Problem,
    task: Task,
    model: str,
    sample: int,
    answer: Answer,
    prompt: str,
    segments: schema.Segments,
    part: schema.Part,
) -> TeacherRationale:
    text = rationale_of(answer.text, part).strip() if split_thoughts(answer.text)[1] else ""  # thoughts alone are no answer
    right = agrees_with(text, None, problem, task) if text else False
    right = right if right is not None or may_reach(text, problem, task) else False
    found = cut_all([Rationale(problem.id, sample, text, model, right)], segments, [problem]).steps if text else []
    steps = len(found[0].segments) if found else 0
    finish = answer.finish
    if finish == "cap":  # some servers always report "stop": only the right answer at the end shows that it is complete
        finish = "stop" if right else "length"
    return TeacherRationale(problem.id, model, sample, text, prompt, finish, answer.tokens, right, steps)


def statistics(taught: Sequence[TeacherRationale], refused: Mapping[str, str]) -> dict[str, Any]:
    """For each model: answers, the share right and the share that can be cut into steps, their mean steps and tokens."""
    models = {}
    for model in dict.fromkeys(row.model for row in taught):
        rows = [row for row in taught if row.model == model]
        fitting = [row.steps for row in rows if row.steps]
        counted = [row.tokens for row in rows if row.tokens is not None]
        models[model] = {
            "answers": len(rows),
            "right": _share(row.right is True for row in rows),
            "unread": _share(row.right is None for row in rows),
            "empty": _share(row.fault("keep") == "empty answer" for row in rows),
            "cut_off": _share(row.finish == "length" for row in rows),
            "segmentable": _share(row.steps > 0 for row in rows),
            "usable": _share(row.fault("drop") is None for row in rows),
            "steps_mean": round(fmean(fitting), 2) if fitting else None,
            "tokens_mean": round(fmean(counted), 1) if counted else None,
        }
    return {"models": models, "refused": len(refused)}


def _share(which: Any) -> float:
    values = list(which)
    return round(sum(values) / len(values), 4) if values else 0.0
