"""Rows in files that people and other tools wrote: JSON lines, a JSON list, CSV or Parquet, each also gzipped."""

from __future__ import annotations

import ast
import contextlib
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from cirf.errors import CirfError
from cirf.store.hub_names import is_hub_name
from cirf.store.jsonl import Refused, RowError, no_constant, parse_row, readable, sorting_out

ENDINGS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
"""How names of such files end; each may be followed by ``.gz``."""

LONGEST_LINE = 2**24
"""Characters of a line, or of a CSV cell."""
MOST_BYTES = 2**32
"""Bytes of a packed file when it is unpacked."""
MOST_ROWS = 5_000_000
"""Rows of a packed file: the smallest ones take some hundred times as much in memory."""
MOST_REFUSED = 300_000
"""Lines that are no rows, of which each is kept with its reason; with more the file is something else."""
_MOST_AT_ONCE = {False: 2**29, True: 2**27}  # characters of a JSON list, which is read at once, also by whether it is packed
_MOST_PACKED, _SMALL = 200, 2**27  # text shrinks 3 to 30 times; what is small may shrink more
_OTHER = {b"PK\x03\x04": "a zip archive", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"SQLite": "SQLite"}
_OBJECTS = ("choices", "options")
_NESTED = (*_OBJECTS, "messages", "conversations", "steps", "facts", "prompt", "completion")  # lists, in CSV as text
_MAY_BE_LIST = re.compile(  # in CSV; other columns hold text, whatever it looks like
    r"choice|option|distractor|endings|answers|candidates|alternatives|context|passage|document|paragraph|table|rationale"
    r"|reasoning|steps|facts|\bcot\b|thought|names|labels|messages|conversations|prompt|completion"
)
_ARRAY = re.compile(r"""\[\s*(?:(?:'[^']*'|"[^"]*")\s*){2,}\]""")  # as NumPy prints one, without commas
_END = "\x1e"  # a last line of our own: inside a cell, it shows that a quote is open
_NOT_UTF8 = "not UTF-8, so read as Windows-1252 text; if accented letters come out wrong, save it as UTF-8"
_ASKED = {"question", "prompt", "problem", "instruction", "query"}
_OF_A_ROW = {*_ASKED, "answer", "messages", "conversations"}


@dataclass(frozen=True, slots=True)
class RowFile:
    """The rows of a file with their numbers from 1, and the ``word`` for these: ``line`` of a text file, else ``row``."""

    word: str
    rows: list[tuple[int, dict[str, Any]]]
    notes: tuple[str, ...] = ()


def is_row_file(name: str) -> bool:
    """Whether a name says that it holds rows: a file's by its ending, or that of a data set of the hub."""
    return is_hub_name(name) or name.casefold().removesuffix(".gz").endswith(ENDINGS)


def read_row_file(path: Path, refused: Refused | None = None) -> RowFile:
    """The rows of a file, whichever of the formats it has; what is no row goes to ``refused`` if it is given. ``CirfError`` for a
    file that is none of them, is damaged, or is too large when unpacked (4 GB, 200 times its size, or 5,000,000 rows)."""
    with readable(path):
        before = len(refused or ())
        try:
            return _read(path, refused, "utf-8-sig")
        except UnicodeDecodeError:
            if ".csv" not in path.name.casefold():
                raise
            del (refused or [])[before:]
            return replace(_read(path, refused, "cp1252"), notes=(_NOT_UTF8,))


def _read(path: Path, refused: Refused | None, encoding: str) -> RowFile:
    ending = Path(path.name.casefold().removesuffix(".gz")).suffix
    try:
        with open(path, "rb") as raw:
            head = raw.read(8)
            raw.seek(0)
            if (kind := next((name for magic, name in _OTHER.items() if head.startswith(magic)), None)) is not None:
                raise CirfError(f"{path}: {kind}, which is not read; unpack it, or write JSON lines, CSV or Parquet (also .gz)")
            packed = head.startswith(b"\x1f\x8b")
            file: IO[bytes] = io.BufferedReader(_Unpacked(raw, path)) if packed else raw
            if packed:
                head = file.peek(8)[:8]  # type: ignore[attr-defined]
            if head.startswith(b"PAR1"):
                return RowFile("row", _all(path, _parquet(path, file.read() if packed else None), True))
            if ending == ".parquet":
                raise CirfError(f"{path}: not a Parquet file (it does not begin with PAR1); name it for what it is")
            encoding = "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else encoding  # as Excel writes Unicode text
            text = io.TextIOWrapper(file, encoding=encoding, newline="" if ending in (".csv", ".tsv") else None)
            if ending in (".csv", ".tsv"):
                return RowFile("line", _all(path, _csv(path, text, "\t" if ending == ".tsv" else "", refused), packed))
            return _json(path, text, ending, refused, packed)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise CirfError(f"{path}: a damaged or incomplete gzip file; pack or fetch it again") from None


def _all(path: Path, rows: Iterator[tuple[int, dict[str, Any]]], packed: bool) -> list[tuple[int, dict[str, Any]]]:
    found = list(islice(rows, MOST_ROWS + 1 if packed else None))
    if packed and len(found) > MOST_ROWS:
        raise CirfError(f"{path}: unpacks to more than {MOST_ROWS:,} rows; split it, or write it as plain JSON lines")
    return found


@contextlib.contextmanager
def _sorting_out(refused: Refused | None, path: Path) -> Iterator[None]:
    with sorting_out(refused):
        yield
    if refused is not None and len(refused) > MOST_REFUSED:
        raise CirfError(f"{path}: more than {MOST_REFUSED:,} lines are not rows ({refused[-1].place}: {refused[-1].reason})")


class _Unpacked(io.RawIOBase):
    """The content of a gzip file, up to what rows may unpack to."""

    def __init__(self, raw: IO[bytes], path: Path) -> None:
        self._file = gzip.GzipFile(fileobj=raw)
        self._path, self._most = path, min(MOST_BYTES, max(_SMALL, _MOST_PACKED * path.stat().st_size))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        if self._file.tell() > self._most:
            raise CirfError(f"{self._path}: unpacks to far more than its size suggests; if that is right, name the unpacked file")
        buffer[: len(data)] = data
        return len(data)


def _lines(path: Path, file: IO[str], refused: Refused | None) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        with _sorting_out(refused, path):
            if len(line) == LONGEST_LINE and not line.endswith("\n"):
                while (rest := file.readline(LONGEST_LINE)) and not rest.endswith("\n"):
                    pass
                message = f"longer than {LONGEST_LINE:,} characters; is it one row?"
                raise RowError(f"{path}, line {number}", message, "too long a line")
            if line.strip():
                yield number, parse_row(line, f"{path}, line {number}")


def _json(path: Path, file: IO[str], ending: str, refused: Refused | None, packed: bool) -> RowFile:
    first = file.readline(LONGEST_LINE)
    while first and not first.strip():
        first = file.readline(LONGEST_LINE)
    opening = first.strip()[:1]
    file.seek(0)
    indented = first.strip() == "{"  # an object over several lines, or a malformed first line of JSON lines
    if (opening == "[" and not _is_other_list(first)) or (opening == "{" and (ending == ".json" or indented)):
        most = _MOST_AT_ONCE[packed]
        text = file.read(most)
        indented = indented and bool(re.match(r'\s*\{\s*"(?:[^"\\\n]|\\.)*"\s*:', text))  # a key follows
        if len(text) == most and (opening == "[" or indented):
            raise CirfError(f"{path}: too large for one JSON value; write one object a line (.jsonl)")
        try:
            made = json.loads(text, parse_constant=no_constant)
        except (ValueError, RecursionError) as error:
            if opening == "[":
                at = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)[:100]
                raise CirfError(f"{path}: not a valid JSON list ({at}); fix the file, or write one object a line") from None
            if indented:
                return RowFile("line", list(_objects(path, text, refused)))
            file.seek(0)
        else:
            return RowFile("row", list(_elements(path, made, refused)))
    return RowFile("line", _all(path, _lines(path, file, refused), packed))


def _objects(path: Path, text: str, refused: Refused | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects over several lines, one after another, as jq prints them; each begins at the start of a line."""
    number = 1
    for block in re.split(r"^(?=\{)", text, flags=re.M):
        with _sorting_out(refused, path):
            if block.strip():
                yield number, parse_row(block.rstrip(", \n"), f"{path}, line {number}")
        number += block.count("\n")


def _is_other_list(line: str) -> bool:
    """Whether a line is a list of something that is no row: JSON lines with a malformed first one."""
    try:
        made = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return bool(made) and not any(isinstance(each, dict) for each in made)


def _elements(path: Path, made: Any, refused: Refused | None) -> Iterator[tuple[int, dict[str, Any]]]:
    if isinstance(made, dict) and (columns := _columns(made)):
        made = [dict(zip(made, values, strict=True)) for values in zip(*columns, strict=True)]
    elif isinstance(made, dict):
        if "features" in made and isinstance(made.get("rows"), list):  # of the hub's server
            made = {"rows": [each.get("row", each) if isinstance(each, dict) else each for each in made["rows"]]}
        lists = [name for name, value in made.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
        is_row = bool(_OF_A_ROW & made.keys())
        if len(lists) > 1 and not is_row:
            raise CirfError(f"{path}: holds several lists of rows ({', '.join(lists[:5])}); write each to its own file")
        by_id = len(made) > 1 and not is_row and all(isinstance(value, dict) for value in made.values())
        rows = [{"id": name, **value} for name, value in made.items()] if by_id else [made]
        made = made[lists[0]] if lists and not is_row else rows
    for number, row in enumerate(made, 1):
        with _sorting_out(refused, path):
            where = f"{path}, row {number}"
            if not isinstance(row, dict):
                raise RowError(where, f"expected a JSON object, found {type(row).__name__}", "not a JSON object")
            yield number, parse_row(json.dumps(row), where)  # for what can be read but never be written


def _columns(made: dict[str, Any]) -> list[list[Any]]:
    """The columns of a table written by columns, as lists or as objects with the rows' numbers; nothing of anything else."""
    kinds = {type(value) for value in made.values()}
    if kinds not in ({list}, {dict}):
        return []
    columns = [list(value.values()) if isinstance(value, dict) else value for value in made.values()]
    asked = [column for name, column in zip(made, columns, strict=False) if str(name).casefold() in _ASKED]
    alike = len(set(map(len, columns))) == 1 and all(isinstance(text, str) for column in asked for text in column)
    return columns if asked and alike else []


def _csv(path: Path, file: IO[str], delimiter: str, refused: Refused | None) -> Iterator[tuple[int, dict[str, Any]]]:
    header, start = file.readline(LONGEST_LINE), 1
    if separator := re.fullmatch(r"\"?sep=(.)\"?[\r\n]+", header):  # a first line for Excel alone
        delimiter, start = separator[1], 2
    else:
        delimiter = delimiter or max(",;\t|", key=header.count)
        file.seek(0)
    before = csv.field_size_limit(LONGEST_LINE)
    try:
        records = _records(path, file, delimiter, start)
        columns = [name.strip() for name in next(records, (1, []))[1]]
        named = [name for name in columns if name]
        if len(set(named)) < len(named):
            raise CirfError(f"{path}: the header names a column twice ({', '.join(columns)[:200]}); rename one")
        for number, cells in records:
            if not any(cell.strip() for cell in cells):
                continue
            with _sorting_out(refused, path):
                if len(cells) != len(columns):
                    message = f"{len(cells)} cells where the header has {len(columns)}; is a quote or a separator missing?"
                    raise RowError(f"{path}, line {number}", message, "not as many cells as the header has")
                pairs = zip(columns, cells, strict=True)
                yield number, {name: _cell(name, cell) for name, cell in pairs if name and cell.strip()}
    finally:
        csv.field_size_limit(before)


def _records(path: Path, file: IO[str], delimiter: str, start: int) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV file, each with the line it begins in, the first in line ``start``; ``CirfError`` where a quote is
    never closed, which makes all lines from there on one cell."""
    reader, before = csv.reader(chain(file, [_END]), delimiter=delimiter), start
    try:
        for cells in reader:
            if cells and cells[-1].endswith(_END):
                if cells != [_END]:
                    raise CirfError(f"{path}: a quote in the row of line {start} is never closed; fix that row")
                return
            yield start, cells
            start = reader.line_num + before
    except csv.Error as error:
        raise CirfError(f"{path}: not CSV from line {start} on ({error}); is a quote left open there?") from None


def _cell(name: str, text: str) -> Any:
    """A cell's text; the list or object that it holds where the column has such, or where it is a list of texts or objects."""
    name, opening = name.casefold(), text.lstrip()[:1]
    if not (_MAY_BE_LIST.search(name) and opening == "[") and not (name in _OBJECTS and opening == "{"):
        return text
    if _ARRAY.fullmatch(text.strip()):
        return [one or other for one, other in re.findall(r"""'([^']*)'|"([^"]*)\"""", text)]
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        of_texts = isinstance(value, list) and value and all(isinstance(each, (str, dict)) for each in value)
        return value if name in _NESTED or of_texts else text
    return text


def _parquet(path: Path, data: bytes | None) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CirfError(f"{path}: a Parquet file, which pyarrow reads; install pyarrow, or write JSON lines") from None
    number, left = 0, MOST_BYTES
    try:
        found = pyarrow.parquet.ParquetFile(path if data is None else io.BytesIO(data))
        if found.metadata.num_rows > MOST_ROWS:  # before any is read: a megabyte may hold a billion
            raise CirfError(f"{path}: unpacks to more than {MOST_ROWS:,} rows; split it")
        names = _label_names(found.schema_arrow.metadata)
        for batch in found.iter_batches(batch_size=64):
            left -= batch.nbytes
            if left < 0:
                raise CirfError(f"{path}: unpacks to more than {MOST_BYTES:,} bytes; split it")
            for row in batch.to_pylist():
                number += 1
                row |= {name: each.get(row[name]) for name, each in names.items() if row.get(name) is not None}
                yield number, {name: value for name, value in row.items() if value is not None}
    except (pyarrow.ArrowException, OSError) as error:
        first = (str(error).splitlines() or [""])[0][:100]
        raise CirfError(f"{path}: a damaged Parquet file ({first}); write or fetch it again") from None


def _label_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, dict[int, str]]:
    """The names of the labels that a hub data set stores as numbers, by column (``ClassLabel`` of datasets)."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return {name: dict(enumerate(each["names"])) for name, each in features.items() if each.get("_type") == "ClassLabel"}
    except (KeyError, TypeError, AttributeError, ValueError):
        return {}
