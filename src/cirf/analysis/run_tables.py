"""Tables of one run: `STATISTICS`, rows and lengths by task, that is how much a rationale is shortened before any training;
`SEMANTICS`, what the codes mean; `HYPERPARAMETERS`, in the order of the paper's table."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.source import Run, Source, published
from cirf.errors import CirfError
from cirf.pictures.table import Column, Table
from cirf.statistics import mean

_COUNTED = (
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


def _statistics(source: Source) -> AnalysisResult:
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
    columns = (Column("source", "Source"), *_COUNTED) if source.paper else _COUNTED
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


STATISTICS = Analysis(
    "statistics",
    "Datasets",
    "Rows by task, and how long a rationale is in words and in functional tokens, counted with the backbone's tokenizer.",
    "a run's problems; for lengths its traces",
    _statistics,
    "Table dataset statistics",
)

_SEMANTICS = (
    Column("code", "Code", "count"),
    Column("count", "Frequency", "count"),
    Column("written", "In answers", "count"),
    Column("label", "Operation"),
    Column("tasks", "Tasks"),
    Column("segments", "Segments", "list"),
)
_SEGMENTS = 3
_LONGEST = 120


def _shortened(text: str) -> str:
    """Cut between any two characters, for formulas and some languages have no spaces."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 2].rstrip() + " …"


def _semantics(source: Source) -> AnalysisResult:
    run = source.first(lambda one: (one.data["codebook"] or {}).get("codes"))
    book = run.data["codebook"]
    if not book:
        raise MissingInputError("the run has no codebook yet; make the stage `codebook` first")
    if not book["codes"]:
        raise MissingInputError("the texts of training rationales, which an archive leaves out")
    rows = [
        {
            **{key: row[key] for key in ("code", "count", "written", "label")},
            "tasks": ", ".join(f"{task} {count:,}" for task, count in row["tasks"].items()),
            "segments": [_shortened(" ".join(text.split())) for text in row["examples"][:_SEGMENTS]],
        }
        for row in book["codes"]
        if row["count"]
    ]
    notes = [
        *source.notes(run),
        f"{book['used']} of {book['size']} codes are used. Labels are found by rule unless `cirf label` gave others;"
        " the segments show what a code means. They are taken at even distances, none is picked by hand.",
    ]
    table = Table("semantics", "Codes, how often they are used, and what their steps share.", _SEMANTICS, rows)
    return AnalysisResult((table,), {}, notes)


SEMANTICS = Analysis(
    "semantics",
    "What the tokens mean",
    "Every functional token with its count in training rationales, a label, and three of its steps.",
    "a codebook",
    _semantics,
    "Table token semantics",
)

_PARAMETERS = (
    Column("step", "Step"),
    Column("parameter", "Parameter"),
    Column("key", "Key of the recipe"),
    Column("value", "Value"),
)
_BEYOND = (
    ("Step 4", "Language model", "backbone.model"),
    ("Step 4", "Adaptation", "finetune.adaptation"),
    ("Step 4", "LoRA rank", "finetune.lora.rank"),
    ("Step 4", "LoRA alpha", "finetune.lora.alpha"),
    ("Step 3", "Codebook size K of the models", "codebook.size"),
    ("all", "Seed", "seed"),
)
"""Additional parameters that the paper's table omits."""

_SHAPE = {
    "backbone.architecture.hidden_size": "hidden_size",
    "backbone.architecture.layers": "num_hidden_layers",
    "backbone.architecture.heads": "num_attention_heads",
}
"""Keys that a recipe need not set, and what a model's configuration calls them."""


def _hyperparameters(source: Source) -> AnalysisResult:
    """A row a parameter; with the paper's values a column of theirs, and whether ours differs."""
    run = source.single
    rows: list[dict[str, Any]] = []
    shape = _shape(run)
    for row in published("hyperparameters"):
        key, ours = row["key"], run.key(row["key"])
        if key == "codebook.sizes" and not ours:  # one alone
            key, ours = "codebook.size", run.key("codebook.size")
        text = _text_of(ours)
        if key in _SHAPE and ours is None:
            ours = shape.get(key)
            text = "" if ours is None else str(ours)
        rows.append({"step": row["step"], "parameter": row["parameter"], "key": key, "value": text})
        same = (list(ours) if isinstance(ours, list | tuple) else ours) == row["value"]
        rows[-1] |= {"paper": _text_of(row["value"]), "same": "yes" if same else "no"}
    adapted = run.key("finetune.adaptation") == "lora"
    rows += [
        {"step": step, "parameter": name, "key": key, "value": _text_of(run.key(key)), "paper": None, "same": None}
        for step, name, key in _BEYOND
        if adapted or "lora" not in key
    ]
    columns = (*_PARAMETERS, Column("paper", "Paper"), Column("same", "The same")) if source.paper else _PARAMETERS
    overrides = run.key("finetune.overrides") or {}
    kept = {method: {key: value for key, value in keys.items() if value is not None} for method, keys in overrides.items()}
    notes = source.notes(run)
    notes += [f"{method} is trained with its own settings: {_text_of(keys)}." for method, keys in kept.items() if keys]
    return AnalysisResult((Table("hyperparameters", "Hyper-parameters of the run.", columns, rows),), {}, notes)


def _shape(run: Run) -> dict[str, int]:
    """The backbone's own values of `_SHAPE`, from the configuration of a trained model or its own; none without either."""
    from cirf.assets import listing
    from cirf.lm.backbone import load_config
    from cirf.recipe.schema import Backbone

    model = str(run.key("backbone.model"))
    trained = [found.parent for name in run.recipe["methods"] if (found := run.file(f"models/{name}", "config.json"))]
    own = [place for place in (Path(model).expanduser(), Path(listing().get(model, model))) if (place / "config.json").is_file()]
    for place in [*trained, *own][:1]:
        with suppress(CirfError):
            config = load_config(place, Backbone()).get_text_config(decoder=True)
            return {key: int(value) for key, name in _SHAPE.items() if (value := getattr(config, name, None))}
    return {}


def _text_of(value: Any) -> str:
    """A value for readers: lists without brackets, short numbers."""
    if isinstance(value, list | tuple):
        return ", ".join(_text_of(entry) for entry in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text_of(entry)}" for key, entry in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)


HYPERPARAMETERS = Analysis(
    "hyperparameters",
    "Hyper-parameters",
    "The run's parameters, in the order of the paper's table.",
    "a recipe",
    _hyperparameters,
    "Table hyper-parameters",
)
