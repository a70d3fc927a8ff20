"""An archive of a run's or a sweep's numbers without texts, weights and vectors, small enough for a repository.

An archive is a folder of two files. ``answers.parquet`` has a row per answer: ``run, method, task, id, subset, correct, tokens,
truncated, unparsed``, the ``codes`` of its functional tokens, its ``seconds`` if it was timed, and the ``answer_key``: answers to
one question have equal keys if they are equal, so that votes can be counted without the answers. It hides no short answer: trying
numbers finds it.
``measured.json`` has for each run the data of its report (``report.json``), with its recipe, and the last validation losses
of its ``trials`` by method and learning rate. Questions, gold answers, rationales and outputs are left out: a repository should
not hold them, and others' data must not be republished. ``cirf report`` and ``cirf analyze`` read an archive.
"""

from __future__ import annotations

import contextlib
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.analysis.source import Row, Run, Tables, read_codes
from cirf.errors import CirfError
from cirf.report.data.measures import read_training
from cirf.store.files import is_within, load_object, write_atomic
from cirf.store.paths import without_folders
from cirf.store.row_files import read_row_file
from cirf.store.run_folder import RunFolder, content_of

ANSWERS, MEASURED = "answers.parquet", "measured.json"
_FIELDS = ("id", "subset", "correct", "tokens", "truncated", "unparsed")
_DIGITS = 4


class ArchivedRun(Run):
    """A run in an archive: its report's data and its answers, none of its files. ``trials``: the last validation loss by method
    and learning rate. ``segments``: the hash of its rationales' steps."""

    def __init__(self, folder: Path, point: Mapping[str, Any], summary: Mapping[str, Any], answers: Mapping[str, Tables]) -> None:
        about = {"name": point["run"], "part": point["part"], "settings": point["settings"]}
        super().__init__(folder, lambda: summary["report"], **about)
        self.trials: Mapping[str, Mapping[str, float]] = summary["trials"]
        self.segments_hash: str | None = summary["segments"]
        self._tables = answers

    def answers(self, method: str) -> Tables:
        """The rows of a method by task; ``output`` is its functional tokens alone."""
        tables = self._tables.get(method, {})
        return {task: tables[task] for task in self.methods.get(method, {}).get("tasks", {})}


def is_archive(folder: Path) -> bool:
    return (folder / MEASURED).is_file()


def write(runs: Sequence[Run], out: Path) -> int:
    """Write the archive of ``runs``, replacing an existing one; returns its size in bytes. Raises ``CirfError`` if nothing was
    measured yet, or ``out`` holds something else."""
    if out.is_dir() and any(out.iterdir()) and not is_archive(out):
        raise CirfError(f"{out}: not empty, and no archive; give --out another folder")
    there = {run.name: run for run in runs}
    summaries = {name: _summary(run) for name, run in there.items()}
    if not any(one["report"]["methods"] or one["trials"] for one in summaries.values()):
        raise CirfError("nothing was evaluated yet; run `cirf run` first")
    points = [{"run": run.name, "part": run.part, "settings": dict(run.settings)} for run in runs]
    measured = without_folders({"points": points, "runs": summaries})
    files = {
        ANSWERS: _parquet([row for run in there.values() for row in _answers(run)]),
        MEASURED: json.dumps(measured, ensure_ascii=False, separators=(",", ":")).encode() + b"\n",
    }
    for name, content in files.items():
        write_atomic(out / name, content)
    return sum(map(len, files.values()))


@contextlib.contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Around the use of an archive's data, which may be from elsewhere: ``CirfError`` where they are not as `write` writes them.
    Other folders are left to their own readers."""
    from jinja2 import TemplateError

    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, TemplateError) as error:
        if _around(folder) is None:
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise CirfError(f"{folder}: a damaged archive ({reason}); write it again") from None


def read(folder: Path) -> list[ArchivedRun]:
    """The runs of an archive, one per point of a sweep, at least one; ``CirfError`` if the files are not an archive's."""
    measured = load_object(folder / MEASURED) or {}
    try:
        tables: dict[str, dict[str, dict[str, list[Row]]]] = {}
        for _, row in read_row_file(folder / ANSWERS).rows:
            output = "".join(f"<cirf_{code:03d}>" for code in row["codes"])
            answer = {name: row[name] for name in (*_FIELDS, "answer_key") if name in row} | {"output": output}
            of_run = tables.setdefault(row["run"], {}).setdefault(row["method"], {})
            of_run.setdefault(row["task"], []).append(answer)
        found = [
            ArchivedRun(folder / point["run"], point, measured["runs"][point["run"]], tables.get(point["run"], {}))
            for point in measured["points"]
        ]
        if not found or not all(isinstance(run.data["methods"], dict) and is_within(run.name) for run in found):
            raise KeyError("its runs")
        return found
    except (AttributeError, KeyError, TypeError, ValueError, OSError, CirfError) as error:
        raise CirfError(f"{folder}: a damaged archive ({error}); write it again") from None


def _around(path: Path) -> Path | None:
    """The archive that a folder is, or would be a run of."""
    if (path / "recipe.yaml").is_file():
        return None
    return next((place for place in (path, *path.parents) if is_archive(place)), None)


def find(path: Path) -> ArchivedRun | None:
    """The run that ``ARCHIVE`` (of one run) or ``ARCHIVE/RUN`` names; ``None`` where no archive is there."""
    folder = _around(path)
    if folder is None:
        return None
    runs = {run.name: run for run in read(folder)}
    name = next(iter(runs)) if path == folder and len(runs) == 1 else path.relative_to(folder).as_posix()
    if name not in runs:
        raise CirfError(f"{path}: give a run of the archive as {folder}/RUN, with RUN one of {', '.join(runs)}")
    return runs[name]


def _summary(run: Run) -> dict[str, Any]:
    trials: dict[str, dict[str, float]] = {}
    for stage in run.shown.each("trials/*/*"):
        _, method, rate = stage.split("/")
        if (found := read_training(run.shown.at(stage))) and found["validation"]:
            trials.setdefault(method, {})[rate] = found["validation"][-1][1]
    segments = RunFolder(run.folder).manifest("segments")
    return {
        "report": _without_texts(run.data),
        "trials": trials,
        "segments": content_of(segments["files"], ("segments.jsonl",)) if segments else None,
    }


def _without_texts(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report's data without questions, outputs and steps, and with shorter numbers in curves."""
    book = report["codebook"]
    codes = [code | {"examples": [], "segments": []} for code in (book or {}).get("codes", ())]
    curves = {
        name: summary | {"train": [[update, round(loss, _DIGITS)] for update, loss in summary["train"]]}
        for name, summary in report["training"].items()
    }
    return {
        **report,
        "examples": {},
        "questions": {**report["questions"], "shown": 0, "cut": 0, "rows": []},
        "checks": {},
        "codebook": book and {**book, "codes": codes},
        "training": curves,
        "data": _without_passages(report["data"]),
    }


def _without_passages(value: Any) -> Any:
    """The same without the passages that questions share (of the pairs under ``examples`` of an overlap)."""
    if isinstance(value, list):
        return [_without_passages(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: "" if key == "words" and isinstance(one, str) else _without_passages(one) for key, one in value.items()}


def answer_key(question: str, parsed: str | None) -> int | None:
    """A checksum of a parsed answer and its question's id, 32 bits; ``None`` for no answer."""
    return zlib.crc32(f"{question}\n{parsed}".encode()) if parsed else None


def _answers(run: Run) -> list[Row]:
    path = run.file("latency", "timings.json")
    timed = (load_object(path) or {}).get("rows", []) if path else []
    seconds = {(row["method"], row["task"], row["id"], row.get("run", 0)): row["seconds"] for row in timed}
    return [
        {
            "run": run.name,
            "method": method,
            "task": task,
            **{name: row.get(name) for name in _FIELDS},
            "codes": [code for code, _ in read_codes(row["output"]) if code is not None],
            "seconds": seconds.get((method, task, row["id"], row["run"])),
            "answer_key": answer_key(row["id"], row["parsed"]),
        }
        for method in run.methods
        for task, rows in run.answers(method).items()
        for row in rows
    ]


def _parquet(rows: Sequence[Row]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    text, flag = pyarrow.string(), pyarrow.bool_()
    types = {"run": text, "method": text, "task": text, "id": text, "subset": text, "correct": flag, "tokens": pyarrow.int32()}
    types |= {"truncated": flag, "unparsed": flag, "codes": pyarrow.list_(pyarrow.int32()), "seconds": pyarrow.float32()}
    types["answer_key"] = pyarrow.uint32()
    content = io.BytesIO()
    table = pyarrow.Table.from_pylist(list(rows), pyarrow.schema(types))
    with parquet.ParquetWriter(content, table.schema, compression="zstd", compression_level=19) as writer:
        if rows:  # datasets cannot read a row group of no rows
            writer.write_table(table)
    return content.getvalue()
