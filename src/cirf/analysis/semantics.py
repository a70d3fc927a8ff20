"""What the codes mean: each with its frequency, the operation that its segments share, and some of them."""

from textwrap import shorten

from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.source import Source
from cirf.pictures.table import Column, Table

_COLUMNS = (
    Column("code", "Code", "count"),
    Column("count", "Frequency", "count"),
    Column("written", "In answers", "count"),
    Column("label", "Operation"),
    Column("tasks", "Tasks"),
    Column("segments", "Segments", "list"),
)
_SEGMENTS = 3
_LONGEST = 120


def make(source: Source) -> AnalysisResult:
    run = source.first(lambda one: (one.data["codebook"] or {}).get("codes"))
    book = run.data["codebook"]
    if not book:
        raise MissingInputError("the run has no codebook yet; make the stage `codebook` first")
    if not book["codes"]:
        raise MissingInputError("the texts of training steps, which an archive leaves out")
    rows = [
        {
            **{key: row[key] for key in ("code", "count", "written", "label")},
            "tasks": ", ".join(f"{task} {count:,}" for task, count in row["tasks"].items()),
            "segments": [shorten(text, _LONGEST, placeholder=" …") for text in row["examples"][:_SEGMENTS]],
        }
        for row in book["codes"]
        if row["count"]
    ]
    notes = [
        *source.notes(run),
        f"{book['used']} of {book['size']} codes are used. Labels are by rule unless `cirf label` gave others: reading"
        " aids, the segments are the truth. Segments are taken at even distances, none is picked by hand.",
    ]
    table = Table("semantics", "Codes, how often they are used, and what their steps share.", _COLUMNS, rows)
    return AnalysisResult((table,), {}, notes)


ANALYSIS = Analysis(
    "semantics",
    "What the tokens mean",
    "Every functional token with its number of training steps, a label, and three of its steps.",
    "a codebook",
    make,
    "Table token semantics",
)
