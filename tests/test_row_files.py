"""Files of rows in every format that is read: the same rows come out, damage gets one line, and no file takes all memory."""

from __future__ import annotations

import csv
import gzip
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import tinyrun

from cirf.errors import CirfError
from cirf.export import archive
from cirf.recipe.load import parse
from cirf.recipe.schema import TaskEntry
from cirf.store.jsonl import RowError
from cirf.store.row_files import read_row_file
from cirf.tasks.own_rows import read_split, row_notes

ROWS = [{"question": f'What is {n} + 3,\n"in all"?', "answer": str(n + 3), "rationale": f"{n} + 3 = {n + 3}."} for n in range(12)]


def _lines(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8-sig")


def _csv(path: Path, delimiter: str = ",", encoding: str = "utf-8") -> None:
    with open(path, "w", encoding=encoding, newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)


def _parquet(path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)


FORMATS: dict[str, Callable[[Path], Any]] = {
    "mine.jsonl": _lines,
    "lines.json": _lines,
    "mine.ndjson": _lines,
    "compact.json": lambda path: path.write_text(json.dumps(ROWS)),
    "indented.json": lambda path: path.write_text("\n" + json.dumps(ROWS, indent=1)),
    "list.jsonl": lambda path: path.write_text(json.dumps(ROWS, indent=1)),
    "inside.json": lambda path: path.write_text(json.dumps({"data": ROWS}, indent=1)),
    "mine.csv": _csv,
    "semicolons.csv": lambda path: _csv(path, ";"),
    "bars.csv": lambda path: _csv(path, "|"),
    "excel.csv": lambda path: (_csv(path, ";"), path.write_bytes(b"sep=;\r\n" + path.read_bytes())),
    "jq.json": lambda path: path.write_text("\n".join(json.dumps(row, indent=2) for row in ROWS)),
    "mixed.jsonl": lambda path: path.write_text("\n".join([json.dumps(ROWS[0], indent=2), *map(json.dumps, ROWS[1:])])),
    "jq.jsonl": lambda path: path.write_text("\n".join(json.dumps(row, indent="\t") for row in ROWS)),
    "utf16.csv": lambda path: _csv(path, "\t", "utf-16"),
    "columns.json": lambda path: path.write_text(json.dumps({name: [row[name] for row in ROWS] for name in ROWS[0]})),
    "frame.json": lambda path: path.write_text(
        json.dumps({name: {n: row[name] for n, row in enumerate(ROWS)} for name in ROWS[0]})
    ),
    "hub.json": lambda path: path.write_text(
        json.dumps({"features": [{"name": "question"}], "rows": [{"row_idx": n, "row": row} for n, row in enumerate(ROWS)]})
    ),
    "mine.tsv": lambda path: _csv(path, "\t"),
    "mine.parquet": _parquet,
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_holds_the_same_rows(tmp_path: Path, name: str, packed: bool) -> None:
    path = tmp_path / name
    FORMATS[name](path)
    if packed:
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    assert [row for _, row in read_row_file(path).rows] == ROWS
    assert [(problem.answer, problem.rationale) for problem in read_split(path, "number")] == [
        (row["answer"], row["rationale"]) for row in ROWS
    ]


def test_check_and_init_take_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRF_CACHE", str(tmp_path / "cache"))
    for name in ("indented.json", "mine.csv", "mine.parquet"):
        path = tmp_path / f"{name}.gz"
        FORMATS[name](tmp_path / name)
        path.write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        found = json.loads(tinyrun.cirf("check", path, "--json", "--show", "2").out)
        assert (found["total"]["usable"], found["answers"]) == (12, {"jsonl": "number"})
        assert found["shown"][1] == {
            "row": "line 4" if name == "mine.csv" else "row 2",
            "question": ROWS[1]["question"],
            "choices": [],
            "steps": [{"step": "1 + 3 = 4.", "result": "1+3=4"}],
            "dropped": None,
            "answer": "4",
        }
        said = tinyrun.cirf("init", path, "--model", "nobody/no-model-1b")
        assert said.code == 0 and parse(said.out).problems.tasks[0].train_file == str(path)
    shown = tinyrun.cirf("check", path, "--show", "1").out
    assert "\nstep 1    0 + 3 = 3.  ->  0+3=3\nanswer    3\n" in shown


def test_a_file_of_another_format_is_no_recipe(tmp_path: Path) -> None:
    for name in ("mine.xlsx", "mine.txt", "mine.arrow"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 rows")
        assert f"{name}: neither a recipe (.yaml) nor a file of rows (.jsonl" in tinyrun.cirf("check", tmp_path / name).error()


def test_a_csv_file_of_windows_is_read_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes("question;answer\nbroken;1;2\nWie groß – in €?;9\n".encode("cp1252"))
    refused: list[RowError] = []
    file = read_row_file(path, refused)
    assert file.rows == [(3, {"question": "Wie groß – in €?", "answer": "9"})] and len(refused) == 1
    assert file.notes == ("not UTF-8, so read as Windows-1252 text; if accented letters come out wrong, save it as UTF-8",)
    (note,) = row_notes(TaskEntry(task="jsonl", train_file=str(path)), None)
    assert note == file.notes[0]


def test_lists_in_cells_and_empty_cells(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "id,question,choices,answer,rationale\n"
        '1,Which flies?,"[""a roof"", ""a bird""]",B,\n'
        "2,Which flows?,\"['a roof', 'a river']\",a river,It flows.\n"
        ",,,,\n"
        "3,Which sings?,['a roof' 'a bird'],B,\"['A roof is still.', 'A bird sings.']\"\n"
    )
    problems = read_split(path, "option")
    assert [(p.id, p.choices, p.answer, p.rationale) for p in problems] == [
        ("1", ("a roof", "a bird"), "B", None),
        ("2", ("a roof", "a river"), "B", "It flows."),
        ("3", ("a roof", "a bird"), "B", "A roof is still.\nA bird sings."),
    ]


def test_labels_of_a_hub_data_set_are_read_by_their_names(tmp_path: Path) -> None:
    features = {"label": {"names": ["for", "against"], "_type": "ClassLabel"}, "text": {"_type": "Value"}}
    table = pyarrow.Table.from_pylist([{"text": f"Row {label}", "label": label} for label in (1, 0, -1)])
    for features_ in (features, {"label": None}):
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features_}})})
        pyarrow.parquet.write_table(table, tmp_path / "mine.parquet")
        labels = [row.get("label") for _, row in read_row_file(tmp_path / "mine.parquet").rows]
        assert labels == (["against", "for", None] if features_ is features else [1, 0, -1])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '[{"question": "q"},\n {"question" "q"}]', r"a.json: not a valid JSON list \(line 2: "),
        ("a.json", '[{"question": "q", "answer": NaN}]', r"a.json: not a valid JSON list \(NaN is not JSON\)"),
        ("a.json", '[{"question": "q"}, [1]]', "a.json, row 2: expected a JSON object, found list"),
        ("a.json", '[{"question": "\\ud800"}]', "a.json, row 1: an escape such as"),
        ("a.json", '{"train": [{"q": 1}], "test": [{"q": 1}]}', r"a.json: holds several lists of rows \(train, test\)"),
        ("a.json", "[" * 100_000, r"a.json: not a valid JSON list"),
        ("a.csv", "question,answer\nq,1,2\n", "a.csv, line 2: 3 cells where the header has 2"),
        ("a.csv", "question,question\nq,1\n", "a.csv: the header names a column twice"),
        ("a.parquet", "question,answer\n", r"a.parquet: not a Parquet file"),
        ("a.parquet", "PAR1 and no more", r"a.parquet: a damaged Parquet file \("),
        ("a.jsonl", b"\x1f\x8b\x08\x00 no gzip", "a.jsonl: a damaged or incomplete gzip file"),
        ("a.jsonl", gzip.compress(b'{"question": "q"}\n' * 500, mtime=0)[:40], "a.jsonl: a damaged or incomplete gzip file"),
        ("a.jsonl", b"PK\x03\x04 and so on", "a.jsonl: a zip archive, which is not read"),
        ("a.csv", b"question;\x81", "a.csv: not UTF-8 text"),
        ("a.jsonl", '{"question": "ö"}'.encode("cp1252"), "a.jsonl: not UTF-8 text"),
    ],
)
def test_damage_gets_one_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CirfError, match=message) as caught:
        read_row_file(path)
    assert "\n" not in str(caught.value)


def test_what_is_no_row_is_gathered_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('question,answer\n"q\nq",1\nx\ny,2\n')
    refused: list[RowError] = []
    file = read_row_file(tmp_path / "a.csv", refused)
    assert [number for number, _ in file.rows] == [2, 5] and [error.place for error in refused] == ["line 4"]
    (tmp_path / "a.jsonl").write_text('["a", "b"]\n{"question": "q"}\n{\n')
    refused = []
    assert [number for number, _ in read_row_file(tmp_path / "a.jsonl", refused).rows] == [2]
    assert [error.reason for error in refused] == ["not a JSON object", "not valid JSON"]


def test_one_list_next_to_other_things_is_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"version": 1, "data": ROWS}))
    assert [row for _, row in read_row_file(path).rows] == ROWS
    path.write_text(json.dumps({"question": "q", "answer": "1", "sources": [{"title": "t"}]}))
    assert [row["question"] for _, row in read_row_file(path).rows] == ["q"]


def test_an_empty_list_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(CirfError, match="holds no rows; every row needs question and answer"):
        read_split(tmp_path / "a.json", "number")


@pytest.mark.parametrize("row", ['"r,2', 'r,"2'])
def test_a_quote_that_is_never_closed_hides_no_rows(tmp_path: Path, row: str) -> None:
    (tmp_path / "a.csv").write_text(f'question,answer\n"q",1\n{row}\n' + "q,1\n" * 100)
    with pytest.raises(CirfError, match=r"a\.csv: a quote in the row of line 3 is never closed"):
        read_row_file(tmp_path / "a.csv", [])


def test_a_pipe_is_no_file_of_rows(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(CirfError, match="not a regular file"):
        read_row_file(tmp_path / "a.jsonl")
    with pytest.raises(CirfError, match="no such file"):
        read_row_file(tmp_path / "b.jsonl")


@pytest.mark.parametrize(
    ("name", "unit", "count"),
    [
        ("a.jsonl.gz", b"x" * 2**17, 400),
        ("a.json.gz", b'[{"a": 1}, ' + b" " * 2**17, 400),
        ("a.csv.gz", b"\n" * 2**17, 3),  # a line each
    ],
)
def test_a_file_that_unpacks_to_far_more_than_text_would_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, unit: bytes, count: int
) -> None:
    monkeypatch.setattr("cirf.store.row_files._SMALL", 2**18)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with gzip.open(tmp_path / name, "wb", compresslevel=6) as file:
        for _ in range(count):
            file.write(unit)
    with pytest.raises(CirfError, match="unpacks to far more than its size suggests"):
        read_row_file(tmp_path / name, [])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 25_000  # kilobytes


def test_a_parquet_file_of_countless_rows_is_refused_before_any_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal rows take next to nothing: a file of a megabyte may hold a billion."""
    path = tmp_path / "answers.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"question": pyarrow.nulls(5_000_001, pyarrow.string())}), path)
    assert path.stat().st_size < 2**16
    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("rows were read"))
    with pytest.raises(CirfError, match="more than 5,000,000 rows"):
        read_row_file(path)
    (tmp_path / "measured.json").write_text("{}")
    with pytest.raises(CirfError, match=r"a damaged archive .*more than 5,000,000 rows"):
        archive.read(tmp_path)


def test_a_packed_file_of_countless_small_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cirf.store.row_files.MOST_ROWS", 50)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n' * 60))
    pyarrow.parquet.write_table(pyarrow.table({"a": [1] * 60}), tmp_path / "a.parquet")
    for name in ("a.jsonl.gz", "a.parquet"):
        with pytest.raises(CirfError, match="unpacks to more than 50 rows"):
            read_row_file(tmp_path / name)


def test_a_file_of_countless_lines_that_are_no_rows_is_refused_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cirf.store.row_files.MOST_REFUSED", 50)
    for name, text in (("a.jsonl", "x\n" * 60), ("a.csv", "a,b\n" + "x\n" * 60), ("a.json", json.dumps([{}] + [1] * 60))):
        (tmp_path / name).write_text(text)
        with pytest.raises(CirfError, match=r"more than 50 lines are not rows \((line|row) \d+: not "):
            read_row_file(tmp_path / name, [])


def test_a_list_in_a_csv_cell_is_read_where_the_column_may_hold_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("question,choices,ground_truth,input\nq,\"['a', 'b']\",\"['a', 'b']\",\"['b', 'a']\"\n")
    ((_, row),) = read_row_file(path).rows
    assert row == {"question": "q", "choices": ["a", "b"], "ground_truth": "['a', 'b']", "input": "['b', 'a']"}
