"""From questions to traces: problems, rationales, segments, results, traces, and the rows that a method prepares itself."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.distributed import ALONE
from cirf.errors import CirfError
from cirf.methods import get, learners
from cirf.rationales.collect import unmatched
from cirf.recipe.schema import Recipe
from cirf.records import Dropped, Problem, Steps, TeacherRationale, Trace
from cirf.stages.context import Context
from cirf.stages.scores import answer
from cirf.store.files import to_json, write_atomic, write_rows
from cirf.store.jsonl import read_rows
from cirf.tasks.loading.unusable import Tolerance, listed

if TYPE_CHECKING:
    from cirf.rationales.redundancy import Redundant
    from cirf.rationales.segmentation import Cut


def problems(context: Context, work: Path) -> dict[str, Any]:
    """Load, split and check the questions (paper 4.1)."""
    from cirf.evaluation.protocols import cut_from_train
    from cirf.stages.lineage import overlaps, trains
    from cirf.tasks.loading.leaks import settle
    from cirf.tasks.loading.load import load_problems

    section = context.recipe.problems
    loaded = settle(load_problems(section, context.recipe.seed), section.near_duplicates, trains(context.recipe))
    loaded.report["overlap"]["models"] = overlaps(context.recipe, loaded.test)
    for entry in filter(cut_from_train, section.tasks):
        loaded.report["tasks"][entry.name or entry.task]["cut"] = True
    write_rows(work / "train.jsonl", loaded.train)
    write_rows(work / "validation.jsonl", loaded.validation)
    for name, rows in loaded.test.items():
        write_rows(work / "test" / f"{name}.jsonl", rows)
    write_rows(work / "dropped.jsonl", [*listed(loaded.unusable, "problems"), *loaded.dropped])
    write_atomic(work / "problems.json", to_json(loaded.report))
    if not loaded.train and learners(context.recipe):
        raise CirfError("problems: no training problem is left; see problems.tasks and the test questions that occur in train")
    count = len(loaded.train) + len(loaded.validation) + sum(map(len, loaded.test.values()))
    unusable = [file.dropped for file in loaded.unusable]
    return {"rows": count, "notes": [*unusable, *_counted(loaded.dropped), *loaded.report["warnings"]]}


def teacher(context: Context, work: Path) -> dict[str, Any]:
    """Ask language models for a worked solution of every training problem (paper A.2, CoT collection)."""
    from cirf.rationales.teachers import statistics, teach

    recipe = context.recipe
    taught, refused = teach(
        [*context.train(), *context.validation()],
        recipe.rationales,
        recipe.segments,
        context.tasks,
        context.asked("rationales"),
        recipe.seed,
        context.progress,
    )
    write_rows(work / "answers.jsonl", taught)
    write_rows(work / "dropped.jsonl", [Dropped(name, None, "teacher", f"refused: {why}") for name, why in refused.items()])
    report = statistics(taught, refused)
    write_atomic(work / "report.json", to_json(report))
    notes = [
        f"{model}: {row['right']:.1%} right, {row['segmentable']:.1%} can be cut into steps ({row['steps_mean']} on average)"
        for model, row in report["models"].items()
    ]
    return {"rows": len(taught), "notes": [*notes, *_refusals(refused.values())]}


def _refusals(reasons: Collection[str]) -> list[str]:
    """How many questions were set aside, and why most of them were."""
    if not reasons:
        return []
    why, count = Counter(reasons).most_common(1)[0]
    often = "" if count == len(reasons) else f"{count:,} of them: "
    return [f"{len(reasons):,} questions were set aside ({often}{why})"]


def rationales(context: Context, work: Path) -> dict[str, Any]:
    """Find a worked solution for every training problem (paper A.2, CoT collection)."""
    from cirf.rationales.collect import collect

    section = context.recipe.rationales
    answers = context.rows("teacher", "answers.jsonl") if section.source == "teacher" else []
    taught = [TeacherRationale.from_dict(row) for row in answers]
    asked, data = [*context.train(), *context.validation()], context.recipe.problems.data
    collected = collect(asked, section, data, context.tasks, taught, Tolerance(context.recipe.problems.max_unusable_share))
    write_rows(work / "rationales.jsonl", collected.rationales)
    write_rows(work / "dropped.jsonl", [*listed(collected.unusable, "rationales"), *collected.dropped])
    write_atomic(work / "report.json", to_json(collected.report))
    unusable = [file.dropped for file in collected.unusable]
    notes = [*unusable, *_counted(collected.dropped), *unmatched(collected.report, every=True)]
    return {"rows": len(collected.rationales), "notes": notes}


def segments(context: Context, work: Path) -> dict[str, Any]:
    """Cut the solutions into steps (paper 3.2)."""
    from cirf.rationales.segmentation import cut

    pieces = cut(context.rationales(), context.recipe.segments, [*context.train(), *context.validation()])
    kept = drawn(context.recipe, context.train(), context.validation(), {steps.problem for steps in pieces.steps})
    write_rows(work / "segments.jsonl", [steps for steps in pieces.steps if steps.problem in kept])
    write_rows(work / "annotated.jsonl", [steps for steps in pieces.annotated if steps.problem in kept])
    write_rows(work / "dropped.jsonl", pieces.dropped)
    report, notes = pieces.report | {"problems_used": len(kept)}, _counted(pieces.dropped)
    if context.recipe.segments.redundant == "drop":
        write_rows(work / "redundant.jsonl", pieces.redundant)
        report["redundant"], more = _score_left_out(context, pieces)
        notes += more
    write_atomic(work / "report.json", to_json(report))
    return {"rows": sum(steps.problem in kept for steps in pieces.steps), "notes": notes}


_SCORED, _LONGEST_SCORED, _FALLEN = 50, 8192, 0.7
"""Rationales scored, tokens of a row that is, and nats by which an answer has become clearly less likely: half as likely."""


def _score_left_out(context: Context, pieces: Cut) -> tuple[dict[str, Any], list[str]]:
    """The tokens of the steps left out, the log-likelihood of answers by the backbone with and without them, and notes."""
    from cirf.compression.scorer import answer_losses
    from cirf.lm.prompt import encode, prompt_text
    from cirf.lm.training.batches import Row, tokenise
    from cirf.methods.prose.cot import prose_target
    from cirf.rationales.redundancy import count_left_out, left_out_notes
    from cirf.stages.models import load_for, release

    model, tokenizer = load_for(context, "cot")
    texts = (text for row in pieces.steps for text in row.segments)
    left_out = count_left_out(pieces.redundant, texts, lambda text: len(encode(tokenizer, text)))
    gone: dict[tuple[str, int], list[Redundant]] = {}
    for each in pieces.redundant:
        gone.setdefault((each.problem, each.sample), []).append(each)
    there = [row for row in pieces.steps if (row.problem, row.sample) in gone]
    problems = {problem.id: problem for problem in [*context.train(), *context.validation()]}
    rows = []
    for steps in there[:: max(1, len(there) // _SCORED)][:_SCORED]:
        problem, whole = problems[steps.problem], list(steps.segments)
        for each in gone[steps.problem, steps.sample]:  # by their places, so that each keeps its place
            whole.insert(each.place, each.text)
        prompt = prompt_text(tokenizer, context.tasks[problem.task].render(problem))
        rows.append([Row(prompt, prose_target(lines, problem.answer), len(problem.answer)) for lines in (whole, steps.segments)])
    _, long = tokenise([whole for whole, _ in rows], tokenizer, _LONGEST_SCORED, ends=False)
    scored = [pair for index, pair in enumerate(rows) if index not in long]
    if scored:
        losses = [
            answer_losses(model, tokenise(texts, tokenizer, _LONGEST_SCORED, ends=False)[0])
            for texts in zip(*scored, strict=True)
        ]
        falls = [without - with_all for with_all, without in zip(*losses, strict=True)]
        means = [round(-sum(nats) / len(scored), 4) for nats in losses]
        left_out["log_likelihood"] = {"rationales": len(scored), "with": means[0], "without": means[1]}
        left_out["log_likelihood"]["fell"] = sum(fall > _FALLEN for fall in falls)
    release(context)
    return left_out, left_out_notes(left_out)


def _counted(dropped: Sequence[Dropped]) -> list[str]:
    """Notes on the dropped rows: how many for which reason."""
    return [f"{count:,} dropped: {reason}" for reason, count in Counter(row.reason for row in dropped).most_common()]


def drawn(recipe: Recipe, training: Sequence[Problem], held_out: Sequence[Problem], usable: Collection[str]) -> set[str]:
    """Ids of the problems to use: all that are usable, or, for a task with a number, that many drawn by the seed."""
    section = recipe.problems
    kept: set[str] = set()
    for entry in section.tasks:
        name = entry.name or entry.task
        for problems, share in ((training, 1.0), (held_out, section.validation)):
            ids = [problem.id for problem in problems if problem.task == name and problem.id in usable]
            count = len(ids) if entry.rows is None else min(len(ids), max(1, round(entry.rows * share)))
            kept.update(random.Random(f"rows {recipe.seed} {name} {share}").sample(ids, count))
    return kept


def results(context: Context, work: Path) -> dict[str, Any]:
    """Say what each step produced (paper 3.3)."""
    from cirf.rationales.results import statistics, write_results

    section = context.recipe.results
    problems = [*context.train(), *context.validation()]
    steps = [Steps.from_dict(row) for row in context.rows("segments", "annotated.jsonl")]  # with the notes that rules read
    marks: list[dict[str, Any]] = [{} for _ in steps]
    details: dict[str, Any] = {}
    notes: list[str] = []
    if section.by == "llm":
        written, marks, details = _by_model(context, steps, problems)
        if details["share_fallen_back"]:
            fault, count = Counter(mark["fault"] for mark in marks if mark["by"] == "rule").most_common(1)[0]
            notes = [
                f"{details['share_fallen_back']:.1%} of the rows have results by rule: the model's could not be used "
                f"(in {count:,}: {fault})"
            ]
        if emptied := details["unused_emptied"]:
            notes.append(f"{emptied:,} of the model's results are left empty, since no later step uses them")
        if rows_empty := sum(not any(results) for results in written):
            notes.append(f"{rows_empty:,} of {len(written):,} rows have no result at all")
    else:
        written = write_results(steps, problems, context.tasks, section, context.recipe.problems.data)
    rows = [
        {"problem": row.problem, "sample": row.sample, "results": list(results)} | mark
        for row, results, mark in zip(steps, written, marks, strict=True)
    ]
    write_rows(work / "results.jsonl", rows)
    write_atomic(work / "report.json", to_json(statistics(written) | details))
    return {"rows": len(rows), "notes": notes}


def _by_model(
    context: Context, steps: list[Steps], problems: list[Problem]
) -> tuple[list[tuple[str, ...]], list[dict[str, Any]], dict[str, Any]]:
    """Results by a language model, a mark per row for its writer, and a report."""
    from cirf.assets import resolve
    from cirf.lm.backbone import load_tokenizer
    from cirf.lm.prompt import encode
    from cirf.rationales.results import shortened
    from cirf.rationales.writers import compare_with_rule, write_with_model

    recipe = context.recipe
    log = context.asked("results")
    made = write_with_model(steps, problems, context.tasks, recipe.results, log, recipe.seed, context.progress)
    written = [shortened(row.results, recipe.results) for row in made]
    tokenizer = load_tokenizer(resolve(recipe.backbone.model, context.progress), recipe.backbone)
    filled = [len(encode(tokenizer, result)) for row in written for result in row if result]
    comparison = compare_with_rule(made, steps, problems, context.tasks, recipe.results)
    comparison["mean_tokens"] = round(sum(filled) / len(filled), 2) if filled else 0.0
    marks = [{"by": row.by} | ({"fault": row.fault} if row.fault else {}) for row in made]
    return written, marks, comparison


def traces(context: Context, work: Path) -> dict[str, Any]:
    """Combine codes and results: the functional form of every solution (paper eq. 13)."""
    size = context.recipe.codebook.codes
    codes = {(row["problem"], row["sample"]): row["codes"] for row in context.rows(f"codebook-{size}", "codes.jsonl")}
    answers = {problem.id: problem.answer for problem in [*context.train(), *context.validation()]}
    rows = []
    for row in context.rows("results", "results.jsonl"):
        where = (row["problem"], row["sample"])
        trace = Trace(*where, tuple(codes[where]), tuple(row["results"]), answers[where[0]])
        rows.append(_merged(trace) if context.recipe.segments.adjacent == "merge" else trace)
    write_rows(work / "traces.jsonl", rows)
    steps = [len(row.codes) for row in rows]
    write_atomic(work / "report.json", to_json({"rows": len(rows), "functional_tokens_mean": sum(steps) / len(steps)}))
    return {"rows": len(rows)}


def _merged(trace: Trace) -> Trace:
    """A trace with one functional token for adjacent steps of one code, and the last of their results that is not empty."""
    runs = [(code, list(run)) for code, run in groupby(zip(trace.codes, trace.results, strict=True), key=itemgetter(0))]
    results = (next((result for _, result in reversed(run) if result), "") for _, run in runs)
    return replace(trace, codes=tuple(code for code, _ in runs), results=tuple(results))


def prepare(context: Context, name: str, work: Path) -> dict[str, Any]:
    """Have a method prepare its training rows: ``rows.jsonl``, one a rationale, and ``report.json``."""
    from cirf.assets import resolve
    from cirf.lm.backbone import load_tokenizer
    from cirf.methods.base import PreparationData
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
        answer(context, judge, drawn, problems, place, ALONE, recipe.evaluate.engine)
        release(context)
        found: dict[str, list[dict[str, Any]]] = {}
        for task in problems:
            rows = read_rows(place / f"{task}.jsonl")
            write_rows(work / f"answers-{judge}" / f"{task}.jsonl", rows)
            for row in rows:
                found.setdefault(row["id"], []).append(row)
        return found

    material = PreparationData(
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
