"""``check``: the quality of questions and rationales, before any training.

``init``: a short recipe fitted to a user's file.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.assets import listing
from cirf.assets import resolve as resolve_model
from cirf.assets.hub_rows import pinned
from cirf.commands.run import with_data
from cirf.cpu.memory import free_memory
from cirf.errors import CirfError
from cirf.fitting.choices import suited
from cirf.fitting.cost import Updates, parameter_count, size_in_name, updates_of
from cirf.fitting.facts import BETTER, FEWEST_STEPS, MOST_STEPS, best_rule, of_good_length
from cirf.fitting.fit import FEW, fit
from cirf.progress import print_table, printable, write_line
from cirf.rationales.check import MOST_CHARACTERS, CheckReport, says_little, some
from cirf.rationales.check import check as look
from cirf.rationales.collect import gather, other_answers, unmatched, without_thoughts
from cirf.rationales.redundancy import left_out_notes
from cirf.rationales.results import write_results
from cirf.rationales.segmentation import cut_all
from cirf.recipe.load import load, parse
from cirf.recipe.schema import FIELDS, Recipe
from cirf.records import Problem
from cirf.store.hub_names import is_hub_name
from cirf.store.jsonl import by_reason
from cirf.store.paths import user_path
from cirf.store.row_files import ENDINGS, is_row_file
from cirf.tasks import JSONL, get, names, resolve
from cirf.tasks.loading.load import cut_of, load_problems
from cirf.tasks.loading.sources import mirror_paths
from cirf.tasks.loading.unusable import Tolerance
from cirf.tasks.own_rows import lines_of
from cirf.tasks.parsing.answers import number_value
from cirf.tasks.steps.calculations import numbers_named
from cirf.tasks.task import Task, with_options
from cirf.text.numerals import with_points

_FEW_UNREAD = 0.02
_MOST_REFUSED, _LONGEST_REASON = 5, 160  # refused rows that are shown, and characters of each
_ONE_STEP = 1.5
"""Steps a row, on average, below which most rationales are a single one."""

_LITTLE = 1.5
"""The ratio of rationale tokens to trace tokens below which little is saved."""


def check(
    source: str,
    sets: Sequence[str],
    data: Path | None,
    as_json: bool,
    show: int = 0,
    columns: str | None = None,
    part: str | None = None,
    delimiter: Sequence[str] = (),
) -> None:
    """Check a file of rows, a mirror folder or the data of a recipe, as a run would read it, and print the findings.

    Every row of a file or folder is read; unusable rows are counted by reason. Of many long rationales only some are cut (see
    `cirf.rationales.check`). ``columns``, ``part``, ``delimiter``: as of `_rows`. ``CirfError`` if no row is
    left.
    """
    source = pinned(source) if is_hub_name(source) else source
    recipe = with_data(_recipe_of(source, sets, columns, part, delimiter), data)
    count, counted_by = token_counter(recipe)
    allowed = recipe.problems.max_unusable_share
    question_files, rationale_files = (Tolerance(allowed, looking=True) for _ in range(2))
    problems = load_problems(recipe.problems, recipe.seed, question_files, whole=is_row_file(source))
    tasks = resolve(recipe.problems, lenient=True)
    training = [*problems.train, *problems.validation]
    found = look(
        training, recipe.rationales, recipe.segments, recipe.results, tasks, count, recipe.problems.data, rationale_files
    )
    made: dict[str, Any] = {"source": source, "tokens_counted_by": counted_by, "problems": problems.report} | found.to_dict()
    made["answers"] = {name: task.answer for name, task in tasks.items()}
    files = [*question_files.files, *rationale_files.files]
    refused = [error for file in files for error in file.errors]
    made["refused"] = by_reason(refused)
    made["unusable"] = [
        file.to_dict() | {"share": file.share, "stops": file.stops(allowed), "summary": file.predicted(allowed)} for file in files
    ]
    made["updates"] = _updates(recipe, problems.train, problems.validation, found, is_row_file(source)).to_dict()
    if show:
        made["shown"] = _shown(training[:show], recipe, tasks)
        made["shown_refused"] = [{"row": error.place, "message": error.message} for error in refused[: min(show, _MOST_REFUSED)]]
    made["notes"] = _notes(made, recipe) + _without_answers(training, tasks) + _better_cut(training, recipe, tasks)
    if as_json:
        print(json.dumps(made, indent=2, ensure_ascii=False))
    else:
        _print(made)
    if not found.total.usable:
        reasons = {reason: each["rows"] for reason, each in made["refused"].items()} | made["problems"]["dropped"]
        counts = ", ".join(f"{reason} ({count:,})" for reason, count in (reasons | found.total.unusable).items())
        raise CirfError(f"{source}: no usable row: {counts or 'there are no rows'}")


def _updates(recipe: Recipe, train: Sequence[Problem], validation: Sequence[Problem], found: CheckReport, whole: bool) -> Updates:
    """The updates that the usable rows make, at most as many as the recipe draws, without the held-out ones, and of a ``whole``
    file without the test cut from it."""
    learnt = len(train) / max(1, len(train) + len(validation))
    if whole:
        usable = found.total.usable
        rows = round(learnt * (usable - (cut_of(usable) if usable > 1 else 0)))
        return updates_of(suited(recipe.finetune, rows), rows)
    drawn = {entry.name or entry.task: entry.rows for entry in recipe.problems.tasks}
    usable_by_task = {name: learnt * task.usable for name, task in found.tasks.items()}
    return updates_of(recipe.finetune, round(sum(min(count, drawn[name] or count) for name, count in usable_by_task.items())))


def columns_of(said: str | None) -> dict[str, str]:
    """Our names of columns with a file's own: ``question=exercise,answer=key``. ``CirfError`` for another form."""
    pairs = [pair.partition("=") for pair in (said or "").split(",") if pair.strip()]
    wrong = [name.strip() for name, sign, column in pairs if name.strip() not in FIELDS or not column.strip()]
    if wrong:
        raise CirfError(f"--columns: {wrong[0]!r}: expected FIELD=COLUMN, with FIELD one of {', '.join(FIELDS)}")
    return {name.strip(): column.strip() for name, _, column in pairs}


def _rows(file: str, columns: str | None, part: str | None, delimiter: Sequence[str]) -> dict[str, Any]:
    """The parts of a recipe for a file of rows: ``columns`` as of `columns_of`, ``part`` and ``delimiter`` as in a recipe."""
    task = {"task": "jsonl", "train_file": file, "columns": columns_of(columns), "delimiter": list(delimiter)}
    return {"problems": {"tasks": [task]}, "rationales": {"part": part or "auto"}}


def _recipe_of(source: str, sets: Sequence[str], columns: str | None, part: str | None, delimiter: Sequence[str]) -> Recipe:
    """The recipe to check by: the one named, or the defaults with a file's or a folder's data, with the overrides."""
    path = user_path(source)
    keys = {"columns": "problems.tasks.*.columns", "part": "rationales.part", "delimiter": "problems.tasks.*.delimiter"}
    for (option, key), given in zip(keys.items(), (columns, part, delimiter), strict=True):
        if given and not is_row_file(source):
            raise CirfError(f"--{option} is for a file of rows, which {source} is not; set {key} in a recipe")
    if path.is_dir():
        made = _of_folder(path)
    elif is_row_file(source):
        made = _rows(source, columns, part, delimiter)
    elif path.is_file() and path.suffix not in ("", ".yaml", ".yml"):
        raise CirfError(f"{source}: neither a recipe (.yaml) nor a file of rows ({', '.join(ENDINGS)}, each also .gz)")
    else:
        return load(source, sets)
    return parse(json.dumps({"name": "check"} | made, ensure_ascii=False), source, sets)


def _of_folder(folder: Path) -> dict[str, Any]:
    """The published tasks whose training files a mirror folder holds, with the rationale files in it."""
    learnt = {name: get(name) for name in names() if get(name).hub is not None and not get(name).evaluation_only}
    there = [name for name, task in learnt.items() if all(p.is_file() for p in mirror_paths(task, str(folder), "train").values())]
    if not there:
        wanted = ", ".join(str(path) for task in learnt.values() for path in mirror_paths(task, "", "train").values())
        raise CirfError(f"{folder}: no training file of a task ({wanted}); for a file of your own, name the file")
    files = [str(path) for path in sorted((folder / "rationales").glob("*.jsonl"))]
    return {"problems": {"data": str(folder), "tasks": [{"task": name} for name in there]}, "rationales": {"files": files}}


def token_counter(recipe: Recipe) -> tuple[Callable[[str], int], str]:
    """Tokens of a text by the backbone's tokenizer where it is on this machine; else words and marks, an approximation."""
    model, bundled = recipe.backbone.model, listing()
    elsewhere = not model.startswith(("bundled:", ".", "/", "~")) and not Path(model).exists()  # a hub id: not fetched for this
    if elsewhere or bundled.get(model, "").startswith("not fetched"):
        piece = re.compile(r"\d|\w+|[^\w\s]")
        return (lambda text: len(piece.findall(text))), f"words, digits and marks ({model} is not on this machine)"
    from cirf.lm.backbone import load_tokenizer

    tokenizer = load_tokenizer(resolve_model(model), recipe.backbone)
    return (lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])), model


def _notes(made: dict[str, Any], recipe: Recipe) -> list[str]:
    notes = [f"read from {made['source']}"] if is_hub_name(made["source"]) else []
    notes += made["problems"]["warnings"]
    if made["looked_at"] < made["total"]["problems"]:
        notes.append(
            f"the rationales are long: {made['looked_at']:,} of {made['total']['problems']:,}, evenly spread, are checked, "
            "and counts are scaled up"
        )
    notes += left_out_notes(made["redundant"] or {})
    rules = made["segmentation"]["rules"]
    if recipe.segments.redundant == "drop" and rules and "function" not in rules:
        notes.append(
            f"segments.redundant has no effect: these rationales are cut by {' and '.join(rules)}; set segments.by: function"
        )
    for name, counts in made["problems"]["tasks"].items():
        if counts["test"]:
            notes.append(f"{name}: {counts['test']:,} test rows are set aside and not counted here")
    notes += without_thoughts(made["collection"])
    notes += unmatched(made["collection"])
    differ = other_answers(made["collection"])
    notes += [differ] if differ else []
    for name, row in made["tasks"].items():
        if row["decimal_commas"]:
            notes.append(
                f"{name}: numbers have decimal commas, so 1.350,5 is read as 1350.5, and results and answers are written that way"
            )
        if says_little(row["share_results_empty"], row["rules"], row["usable"]) and recipe.results.by != "none":
            notes.append(
                f"{name}: {row['share_results_empty']:.0%} of the steps have no result, so a trace says little; write in each "
                "step what it finds, set results.by=llm or results.by=file, or compare with direct_sft"
            )
        if row["usable"] and row["steps"]["mean"] < _ONE_STEP:
            notes.append(
                f"{name}: most rationales are cut into one step; number their steps or write one a line (segments.by), "
                "or compare with direct_sft"
            )
        if row["unread"] > _FEW_UNREAD * row["problems"]:
            written = "1.996,25" if row["decimal_commas"] else "1,996.25"
            notes.append(
                f"{name}: {row['unread']:,} of {row['problems']:,} problems have numbers that are not read, such as "
                f"{row['unread_example']}; numbers are read as {written}"
            )
        if 0 < row["usable"] < FEW:
            notes.append(f"{name}: {row['usable']} usable rows are too few to learn from; {FEW} are needed, 300 are better")
        if row["usable"] and row["speedup"] < _LITTLE:
            notes.append(f"{name}: traces are hardly shorter than the rationales, which are short already")
    return notes


def _without_answers(problems: Sequence[Problem], tasks: Mapping[str, Task]) -> list[str]:
    """A note where most rationales of numbers do not have the answer's number, in digits or in a word."""
    rows = [row for row in some(problems, MOST_CHARACTERS // 4) if row.rationale and tasks[row.task].kind(row) == "number"]
    rows = [row for row in rows if row.answer not in ("0", "1")]  # these may mean no and yes
    texts = [re.sub("<<|>>", " ", row.rationale or "") for row in rows]  # of GSM8K-Aug the notes are all there is
    texts = [with_points(text) if tasks[row.task].decimal_commas else text for text, row in zip(texts, rows, strict=True)]
    found = ({*map(abs, numbers_named(text))} for text in texts)  # a sign may be in words
    absent = sum(abs(number_value(row.answer) or 0) not in numbers for row, numbers in zip(rows, found, strict=True))
    if 2 * absent <= len(rows):
        return []
    return [f"{absent:,} of {len(rows):,} rationales do not have the answer's number in them; do they belong to their questions?"]


def _better_cut(problems: Sequence[Problem], recipe: Recipe, tasks: Mapping[str, Task]) -> list[str]:
    """A note on ``segments.by`` if another value cuts clearly more rationales into a few steps."""
    if recipe.rationales.source == "teacher" or not problems:
        return []
    looking = Tolerance(recipe.problems.max_unusable_share, looking=True)
    problems = problems if recipe.rationales.files else some(problems, MOST_CHARACTERS // 4)
    rationales = gather(problems, recipe.rationales, recipe.problems.data, tasks, looking).rationales
    by, share, _ = best_rule(rationales, problems)
    cut = cut_all(rationales, recipe.segments, problems).steps
    now = sum(map(of_good_length, cut)) / max(1, len(cut))
    if not cut or share < now + BETTER:
        return []
    return [
        f"segments.by: {by} would cut {share:.0%} of the rationales into {FEWEST_STEPS} to {MOST_STEPS} steps, "
        f"{recipe.segments.by} cuts {now:.0%}"
    ]


def _shown(problems: Sequence[Problem], recipe: Recipe, tasks: Mapping[str, Task]) -> list[dict[str, Any]]:
    """Print some problems: question, options, each step with its result, the answer, or why a rationale is dropped."""
    found = gather(problems, recipe.rationales, recipe.problems.data, tasks, Tolerance(1, looking=True))
    cut = cut_all(found.rationales, recipe.segments, problems)
    results = write_results(cut.annotated, problems, tasks, recipe.results, recipe.problems.data)
    steps: dict[str, list[tuple[str, str]]] = {}
    for row, written in zip(cut.steps, results, strict=True):
        steps.setdefault(row.problem, list(zip(row.segments, written, strict=True)))
    dropped = {row.problem: row.reason for row in (*found.dropped, *cut.dropped)}
    own = [entry for entry in recipe.problems.tasks if entry.task == JSONL]
    lines = {entry.name or entry.task: lines_of(entry, recipe.problems.data) for entry in own}
    return [
        {
            "row": _place(problem, lines),
            "question": problem.question,
            "choices": list(problem.choices or ()),
            "steps": [{"step": step, "result": result} for step, result in steps.get(problem.id, [])],
            "dropped": None if problem.id in steps else dropped.get(problem.id),
            "answer": problem.answer,
        }
        for problem in problems
    ]


def _place(problem: Problem, lines: Mapping[str, Mapping[str, str]]) -> str:
    """Where the row of a problem is: in a file of the user's its line, and its id where it has one, else the problem's id."""
    name = problem.id.split("/", 2)[-1]
    if (line := lines.get(problem.task, {}).get(name)) is None:
        return problem.id
    return line if re.fullmatch(r"(?:row-)?\d+", name) else f"{line}, {name}"


def _print_row(row: Mapping[str, Any]) -> None:
    def line(title: str, text: str) -> None:
        print(f"{title:10}" + printable(text).replace("\n", "\n" + 10 * " "))

    print()
    line("row", row["row"])
    line("question", with_options(row["question"], row["choices"]))
    for index, step in enumerate(row["steps"], 1):
        line(f"step {index}", step["step"] + (f"  ->  {step['result']}" if step["result"] else ""))
    if row["dropped"]:
        line("dropped", row["dropped"])
    line("answer", row["answer"])


def _print(made: dict[str, Any]) -> None:
    titles = ("task", "answers", "problems", "usable", "segmentable", "steps a row", "empty results")
    table = []
    for name, row in (made["tasks"] | ({"all": made["total"]} if len(made["tasks"]) > 1 else {})).items():
        steps = f"{row['steps']['mean']:.1f}" if row["steps"] and row["usable"] else "-"
        sizes = ("-", "-", "-")
        if row["usable"]:
            sizes = (f"{row['rationale_tokens']:.0f}", f"{row['trace_tokens']:.0f}", f"{row['speedup']:.1f}x")
        empty = f"{row['share_results_empty']:.1%}" if row["usable"] else "-"
        counts = (f"{row['problems']:,}", f"{row['usable']:,}", _share(row["share_segmentable"]))
        table.append((name, made["answers"].get(name, ""), *counts, steps, empty, *sizes))
    print_table((*titles, "rationale", "trace", "speed-up"), table)
    for file in made["unusable"]:
        write_line(file["summary"])
    for name, row in made["tasks"].items():
        for reason, count in row["unusable"].items():
            write_line(f"{name}: {count:,} question{'s' if count > 1 else ''} left out: {reason}")
    for reason, count in made["problems"]["dropped"].items():
        if reason in made["refused"]:
            continue  # reported with its file
        write_line(f"{count:,} question{'s' if count > 1 else ''} dropped: {reason}")
    for train, test in made["problems"]["leaks"][:5]:
        write_line(f"leak: {train} has the question of {test}; dropped from training")
    for row in made.get("shown", ()):
        _print_row(row)
    for row in made.get("shown_refused", ()):
        write_line(f"refused   {row['row']}: {row['message'][:_LONGEST_REASON]}")
    for note in made["notes"]:
        write_line(f"note: {note}")
    if is_row_file(made["source"]):
        print("answers: kind detected; to change it: --set problems.tasks.0.answer=text (or number, option, yesno, latex)")
    if made["total"]["share_segmentable"] is None and set(made["total"]["unusable"]) == {"no rationale"}:
        print("there are no rationales; add `rationale` to the rows, name rationales.files, or let `cirf init` plan a teacher")
    elif made["total"]["share_segmentable"] is not None:
        print("segmentable: rationales that can be cut into steps; empty results: steps with no short result to keep")
        if made["updates"]["rows"]:
            print(made["updates"]["summary"])
    print(f"rationale, trace: mean tokens a row, by {made['tokens_counted_by']}; speed-up: their ratio, not a measured time")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def init(
    file: str,
    model: str,
    data: Path | None,
    columns: str | None = None,
    part: str | None = None,
    delimiter: Sequence[str] = (),
) -> None:
    """Check a file of rows as ``cirf check`` does and print a recipe for it; problems go to standard error. ``columns``,
    ``part``, ``delimiter``: as of `_rows`. ``CirfError`` where no recipe would work, or there is no such file or model."""
    from cirf.lm.backbone import pick_device

    file = pinned(file) if is_hub_name(file) else file
    made = {"name": "init", "backbone": {"model": model}} | _rows(file, columns, part, delimiter)
    recipe = with_data(parse(json.dumps(made, ensure_ascii=False), file), data)
    count, counted_by = token_counter(recipe)
    fitted = fit(recipe, sizes_of(recipe), count, counted_by == model, free_memory(pick_device(recipe.backbone.device)))
    for note in fitted.notes:
        print(f"note: {note}", file=sys.stderr)
    sys.stdout.write(fitted.text)


def sizes_of(recipe: Recipe) -> dict[str, int] | None:
    """The sizes of a recipe's backbone: by its configuration where it is on this machine, else its parameters by its name."""
    model = recipe.backbone.model
    if Path(model).expanduser().is_dir() or not listing().get(model, "not fetched").startswith("not fetched"):
        return parameter_count(resolve_model(model), recipe)
    size = size_in_name(model)
    return None if size is None else {"parameters": size}
