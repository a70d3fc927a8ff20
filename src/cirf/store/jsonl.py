"""Reading JSONL that people wrote: each row with its line, and each mistake reported in one line or collected to be counted."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.store.hub_names import suggestion

Refused = list["RowError"]
"""Where a reader puts the rows it cannot use; a reader that is given none raises the first instead."""

_FIRST = 3


class RowError(CirfError):
    """A row that cannot be used: ``where`` names file and line (``FILE, line 3``, or ``row 3`` of a data set); ``reason`` is the
    same for all rows with the same mistake."""

    def __init__(self, where: str, message: str, reason: str = "") -> None:
        """Without a ``reason`` it is the message up to its semicolon."""
        super().__init__(f"{where}: {message}")
        self.where = where
        self.message = message
        self.reason = reason or message.partition(";")[0]
        self.file, _, self.place = where.rpartition(", ")  # rows.jsonl, line 3
        self.line = int(self.place.rpartition(" ")[2])


@contextlib.contextmanager
def sorting_out(refused: Refused | None) -> Iterator[None]:
    """Around the reading of one row: its ``RowError`` goes to ``refused`` if there is such a list, else up."""
    try:
        yield
    except RowError as error:
        if refused is None:
            raise
        error.__context__ = None  # with its traceback it would keep the whole row in memory
        refused.append(error.with_traceback(None))


def by_reason(refused: Sequence[RowError]) -> dict[str, dict[str, Any]]:
    """The refused rows counted by reason, the most frequent first, with the places of the first few."""
    places: dict[str, list[str]] = {}
    for error in refused:
        places.setdefault(error.reason, []).append(error.where)
    ordered = sorted(places.items(), key=lambda item: (-len(item[1]), item[0]))
    return {reason: {"rows": len(where), "first": where[:_FIRST]} for reason, where in ordered}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file; ``CirfError`` names the first line that is not one, or says why there is no reading it. Blank
    lines, a byte order mark and Windows line ends are let pass."""
    return [row for _, row in numbered_rows(path)]


def numbered_rows(path: Path, refused: Refused | None = None) -> list[tuple[int, dict[str, Any]]]:
    """As ``read_rows``, each object with the number of its line; lines that are none go to ``refused`` if it is given."""
    rows = []
    with readable(path), open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                with sorting_out(refused):
                    rows.append((number, parse_row(line, f"{path}, line {number}")))
    return rows


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Around the reading of a file of text: a ``CirfError`` that says why it cannot be read."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe or a device may never end
            raise CirfError(f"{path}: not a regular file; name a file of rows")
        yield
    except FileNotFoundError:
        raise CirfError(f"{path}: no such file{suggestion(path) or '; fetch data of the hub or the web first'}") from None
    except UnicodeDecodeError as error:
        raise CirfError(f"{path}: not UTF-8 text (byte {error.start}); convert the file") from None
    except ValueError as error:
        if "null" not in str(error):
            raise
        raise CirfError(f"{ascii(str(path))[:200]}: a path cannot hold a NUL character; write it without") from None
    except OSError as error:
        if error.strerror is None:
            raise
        raise CirfError(f"{path}: cannot be read ({error.strerror}); name a JSONL file that this user may read") from None


def row_numbers(lines: Sequence[int], refused: Sequence[RowError]) -> dict[int, int]:
    """The number of each line's row in its file, from 0: the refused ones count, so that the others keep theirs."""
    return {line: number for number, line in enumerate(sorted({*lines, *(error.line for error in refused)}))}


class _NoNumberError(ValueError):
    """NaN and the infinities, which Python reads and JSON does not have."""


class _TwiceError(Exception):
    """A key that occurs twice in an object."""


def no_constant(name: str) -> Any:
    """For ``json.loads``: raises for NaN and the infinities."""
    raise _NoNumberError(f"{name} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values; ``_TwiceError`` for a key that occurs twice, of which JSON readers take any."""
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        raise _TwiceError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return made


_DECODER = json.JSONDecoder(parse_constant=no_constant, object_pairs_hook=_once)


def parse_row(line: str, where: str) -> dict[str, Any]:
    """The object of one line of JSON; ``RowError`` where it is none, or can be read but never be written."""
    try:
        row = _DECODER.decode(line)
        if "\\u" in line:  # half of a surrogate pair can be read but never be written
            json.dumps(row, ensure_ascii=False).encode()
    except _NoNumberError as error:
        raise RowError(where, f"{error}; write a number, a string or null", "not valid JSON") from None
    except _TwiceError as error:
        raise RowError(where, f"the key {str(error)[:60]!r} occurs twice; remove one", "a key occurs twice") from None
    except json.JSONDecodeError as error:
        raise RowError(where, f"not valid JSON ({error.msg}); fix or remove the line", "not valid JSON") from None
    except UnicodeEncodeError:
        raise RowError(where, "an escape such as \\ud800 that is not a character; fix or remove the line") from None
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else "a number of thousands of digits"
        raise RowError(where, f"cannot be read ({why}); fix or remove the line") from None
    if not isinstance(row, dict):
        raise RowError(where, f"expected a JSON object, found {type(row).__name__}", "not a JSON object")
    return row
