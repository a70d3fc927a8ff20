"""Files that a kill or a full disk leaves whole: written at once, or row by row; and the hashes of contents.

Files of a finished stage may be shared with another run: the same bytes, but no write changes both. Large files, such as models'
weights and vectors, are hard links where the file system has them, so they take no space. Such a file loses its write permission
in both runs: what would change it in place is refused, and what replaces it, as all of this package does, leaves the other run's
as it was. Small files are copies, since a person may want to edit one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import UnionType
from typing import Any, BinaryIO, TypeVar

from cirf.errors import CirfError

_Made = TypeVar("_Made")


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a whole file or nothing: a reader sees the old content or the new, never a part."""
    with whole_file(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def write_changed(path: Path, data: str) -> None:
    """`write_atomic`, unless the file already has that content: finished runs can be reported on read-only disks. On writable
    ones the file's time is set to now either way."""
    content = data.encode()
    try:
        same = path.read_bytes() == content
    except OSError:
        same = False
    if not same:
        write_atomic(path, content)
        return
    with contextlib.suppress(OSError):
        os.utime(path)


@contextlib.contextmanager
def whole_path(path: Path) -> Iterator[Path]:
    """Where to write a file that takes its place, with its folder, once the block ends, and leaves nothing if that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """`whole_path`, opened, to write piece by piece."""
    with whole_path(path) as temporary, open(temporary, "wb") as file:
        yield file


def is_within(name: str) -> bool:
    """Whether a relative path stays inside the folder that it is taken from."""
    place = PurePosixPath(name)
    return not place.is_absolute() and ".." not in place.parts


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_json(value: Any) -> str:
    """SHA-256 of a value's canonical JSON, in hex."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()).hexdigest()


def to_json(value: Any) -> str:
    """JSON for people: indented, ending in a newline, Unicode unescaped."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def parse_json(text: str | bytes) -> Any:
    """A JSON value; ``ValueError`` for text that is not JSON, or is nested too deep to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def load_object(path: Path) -> dict[str, Any] | None:
    """The object of a JSON file, ``None`` without the file; ``CirfError`` if it holds anything else."""
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise CirfError(f"{path}: not valid JSON; {_advice(path)}") from None
    if not isinstance(found, dict):
        raise CirfError(f"{path}: expected a JSON object; {_advice(path)}")
    return found


def _advice(path: Path) -> str:
    """What to remove: a stage's folder, which is made again as a whole, but never all of a run for a file at its root."""
    return f"remove the folder {path.parent} and run again" if (path.parent / "stage.json").exists() else "remove the file"


class RowLog:
    """A JSONL file that grows a row at a time and survives a kill in the middle of a write."""

    def __init__(self, path: Path) -> None:
        """Open (or start) the log at ``path``; an incomplete last line, which was never reported as done, is cut off.
        ``CirfError`` for a symbolic link, since its target would be cut and written to."""
        if path.is_symlink():
            raise CirfError(f"{path}: a symbolic link; replace it by the file itself")
        self.path = path
        self._rows: list[dict[str, Any]] = []
        self._numbers: list[int] = []
        if path.exists():
            data = path.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            if len(whole) < len(data):
                os.truncate(path, len(whole))
            self._rows = [self._row(number, line) for number, line in enumerate(whole.splitlines(), 1) if line]

    def _row(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise self.damaged(number)
        self._numbers.append(number)
        return row

    def damaged(self, number: int) -> CirfError:
        """The error for line ``number``, from 1."""
        return CirfError(f"{self.path}, line {number}: damaged; remove the line; its content is computed again")

    def rows(self, **fields: type | UnionType) -> list[dict[str, Any]]:
        """The complete rows, in order; ``CirfError`` names the line of the first that has no value of that type under each of
        ``fields``: a letter that a disk changed may be one of a key."""
        for number, row in zip(self._numbers, self._rows, strict=False):  # rows that were added since are ours
            if any(name not in row or not isinstance(row[name], kind) for name, kind in fields.items()):
                raise self.damaged(number)
        return list(self._rows)

    def read(self, make: Callable[[dict[str, Any]], _Made]) -> list[_Made]:
        """What ``make`` makes of each row, in order; ``CirfError`` names the line of the first that it cannot take."""
        made = []
        for index, row in enumerate(self._rows):
            try:
                made.append(make(row))
            except (KeyError, TypeError, ValueError, AttributeError):
                if index >= len(self._numbers):
                    raise  # one that was added since is no disk's fault
                raise self.damaged(self._numbers[index]) from None
        return made

    def append(self, *rows: Mapping[str, Any]) -> None:
        """Add rows; they are on disk when this returns."""
        left = memoryview("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab", buffering=0) as file:  # a buffer would write its rest after the cut below
            before = file.seek(0, os.SEEK_END)
            try:
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except BaseException:  # a full disk, or Ctrl-C: no half of a row may stay, for others are appended
                os.truncate(self.path, before)
                raise
        self._rows.extend(dict(row) for row in rows)


def write_rows(path: Path, rows: Any) -> None:
    """Write records or mappings as JSONL, whole or not at all."""
    lines = [row.to_json() if hasattr(row, "to_json") else json.dumps(row, ensure_ascii=False) for row in rows]
    write_atomic(path, "".join(line + "\n" for line in lines))


LINKED_FROM = 2**20
"""Bytes from which a file is linked and not copied."""


def share_files(source: Path, target: Path, files: Mapping[str, str]) -> None:
    """Bring ``files`` (names and their SHA-256) of one folder into another. Raises ``CirfError`` where one is not there or is not
    what its hash says."""
    for name, digest in files.items():
        try:
            link_or_copy(source / name, target / name)
            found = hash_file(target / name)
        except FileNotFoundError:
            raise CirfError(f"{source / name}: missing, though the stage's record names it") from None
        if found != digest:
            raise CirfError(f"{source / name}: changed since the stage was made")


def link_or_copy(source: Path, target: Path) -> None:
    """A second copy of a file: linked and read-only if it is large and links are possible, else copied."""
    target.parent.mkdir(parents=True, exist_ok=True)
    state = source.stat()
    if state.st_size >= LINKED_FROM:
        try:
            os.link(source, target)
            os.chmod(target, state.st_mode & 0o555)
            return
        except FileNotFoundError:
            raise
        except OSError:  # another file system, one without links, or another user's file
            target.unlink(missing_ok=True)
    shutil.copyfile(source, target)
    os.chmod(target, state.st_mode & 0o777 | 0o200)
