"""Rows and lengths by task: how much a rationale is shortened before any training."""

from typing import Any

from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.source import Run, Source, published
from cirf.pictures.table import Column, Table
from cirf.statistics import mean

_COLUMNS = (
    Column("task", "Dataset"),
    Column("domain", "Domain"),
    Column("train", "Training problems there", "count"),
    Column("used", "Trained on", "count"),
    Column("test", "Test problems there", "count"),
    Column("asked", "Asked", "count"),
    Column("cot_tokens", "Mean CoT tokens", "number"),
    Column("functional_tokens", "Mean functional tokens", "number"),
    Column("trace_tokens", "Mean trace tokens", "number"),
)

_COUNTS = "The paper counts all problems; a run trains on those with a rationale, and evaluates on some of the test's."


def make(source: Source) -> AnalysisResult:
    """Counts of the run, and lengths of its training rationales measured with the backbone's tokenizer."""
    run = source.first(lambda one: _tasks(one) and one.training_codes and one.rationales and one.traces)
    if not _tasks(run):
        run = source.first(_tasks)
    lengths = _lengths(run)
    tasks = _tasks(run)
    if not tasks:
        raise MissingInputError("no problems yet; make the stage `problems` first")
    rows = [_row(run, task, lengths.get(task, [])) for task in tasks]
    notes = [*source.notes(run), _COUNTS]
    if source.paper:
        rows += published("statistics")
    columns = (Column("source", "Source"), *_COLUMNS) if source.paper else _COLUMNS
    table = Table("statistics", "Datasets of the run, with mean lengths of training rationales.", columns, rows)
    return AnalysisResult((table,), {}, notes)


def _tasks(run: Run) -> list[str]:
    return list(dict.fromkeys([*run.data["data"]["train"], *run.data["data"]["test"]]))


def _row(run: Run, task: str, lengths: list[tuple[int, int, int]]) -> dict[str, Any]:
    data = run.data["data"]
    counted = data["reports"]["problems"].get("tasks", {}).get(task, {})
    trained = task in data["train"]
    row: dict[str, Any] = {
        "source": run.source,
        "task": task,
        "domain": "in" if trained else "out",
        "train": counted.get("available_train", data["train"].get(task)) if trained else None,
        "used": data["train"].get(task),
        "test": counted.get("available_test", data["test"].get(task)),
        "asked": data["test"].get(task),
    }
    for index, key in enumerate(("cot_tokens", "functional_tokens", "trace_tokens")):
        row[key] = mean([values[index] for values in lengths]) if lengths else None
    return row


def _lengths(run: Run) -> dict[str, list[tuple[int, int, int]]]:
    """By task, of each training rationale: its tokens, its functional tokens, the tokens of its trace with results."""
    if not (run.training_codes and run.rationales and run.traces and run.key("backbone.model")):
        return {}
    tokenizer = run.tokenizer
    traces = run.traces
    found: dict[str, list[tuple[int, int, int]]] = {}
    for place, codes in run.training_codes.items():
        text = run.rationales.get(place)
        if text is None:
            continue
        results = traces[place]["results"] if place in traces else []
        written = sum(len(tokenizer(result, add_special_tokens=False)["input_ids"]) for result in results if result)
        cot = len(tokenizer(text, add_special_tokens=False)["input_ids"])
        found.setdefault(run.training_tasks[place[0]], []).append((cot, len(codes), len(codes) + written))
    return found


ANALYSIS = Analysis(
    "statistics",
    "Datasets",
    "Rows by task, and how long a rationale is in words and in functional tokens, counted with the backbone's tokenizer.",
    "a run's problems; for lengths its traces",
    make,
    "Table dataset statistics",
)
