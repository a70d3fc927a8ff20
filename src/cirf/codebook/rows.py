"""Vectors [M x d] that memory need not hold: on disk or in an array, read a slice at a time.

    rows[1000:2000]           float32 [1000 x d]
    rows[np.array([7, 8])]    float32 [2 x d]; neighbours are read at once

A float32 array is ``Rows`` already. Files are read with plain reads and never mapped: mapped pages would count as the
process's own memory.

A safetensors file of vectors is written and read a piece at a time::

    8 bytes, the length of the header · the header, JSON, filled up with spaces to a multiple of 8 · the numbers

The safetensors library writes what is in memory as a whole and maps what it reads. What is written here is, byte for byte,
what it would write (the format: https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from cirf.errors import CirfError
from cirf.store.files import parse_json, whole_file

HELD = 2**28
"""Most bytes of vectors held in memory at once; a larger set is on disk and processed in parts."""
CHUNK = 2**23
"""Bytes of vectors worked on at once where any number would do."""

Where = slice | np.ndarray
"""A slice without a step, or indices [n]."""


class Rows(Protocol):
    """Vectors [M x d], given as float32."""

    @property
    def shape(self) -> tuple[int, ...]:
        """M and d."""

    def __len__(self) -> int:
        """M."""

    def __getitem__(self, where: Where, /) -> np.ndarray:
        """The vectors of a slice, or of indices [n] in their order."""


class FileRows:
    """Vectors [M x d] stored one after another in a file, from byte ``offset`` on, in its number format ``dtype``.

    They can be written too, in any order, once the file is there (see ``made``).
    """

    def __init__(self, path: Path, shape: tuple[int, int], dtype: str = "<f4", offset: int = 0) -> None:
        self.shape: tuple[int, ...] = shape
        self._path = path
        self._dtype = np.dtype(dtype)
        self._offset = offset

    @classmethod
    def made(cls, path: Path, shape: tuple[int, int]) -> FileRows:
        """A new file of zeros, float32, in place of any that is there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = cls(path, shape)
        with _named(path), open(path, "wb") as file:
            file.truncate(len(rows) * rows._stride)
        return rows

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, where: Where, /) -> np.ndarray:
        """See ``Rows``. ``CirfError`` if the file ends too soon."""
        runs, count = _runs(where, len(self))
        found = np.empty((count, self.shape[1]), self._dtype)
        with _named(self._path), open(self._path, "rb", buffering=0) as file:
            for start, first, stop in runs:
                file.seek(self._offset + start * self._stride)
                self._fill(file, found[first:stop])
        return found.astype(np.float32, copy=False)

    def __setitem__(self, where: Where, vectors: np.ndarray, /) -> None:
        """Write the vectors [n x d] of a slice or of indices [n]."""
        runs, count = _runs(where, len(self))
        if vectors.shape != (count, self.shape[1]):
            raise ValueError(f"{vectors.shape} vectors for {(count, self.shape[1])} places")
        data = np.ascontiguousarray(vectors, self._dtype)
        with _named(self._path), open(self._path, "r+b") as file:
            for start, first, stop in runs:
                file.seek(self._offset + start * self._stride)
                file.write(data[first:stop].data)

    @property
    def _stride(self) -> int:
        return self.shape[1] * self._dtype.itemsize

    def _fill(self, file: BinaryIO, target: np.ndarray) -> None:
        room = target.data.cast("B") if target.size else memoryview(b"")
        while len(room):  # a read may return less than requested
            count = file.readinto(room)  # type: ignore[attr-defined]
            if not count:
                raise CirfError(f"{self._path}: damaged, it ends before its last vector; run the same command to make it again")
            room = room[count:]


class Picked:
    """Some of the rows, by their indices [n], in that order."""

    def __init__(self, rows: Rows, indices: np.ndarray) -> None:
        self.shape: tuple[int, ...] = (len(indices), rows.shape[1])
        self._rows = rows
        self._indices = indices

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, where: Where, /) -> np.ndarray:
        return self._rows[self._indices[where]]


class Joined:
    """Several sets of rows of one width, concatenated; at least one."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self._parts = parts
        self._bounds = np.cumsum([0, *(len(part) for part in parts)])
        self.shape: tuple[int, ...] = (int(self._bounds[-1]), parts[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, where: Where, /) -> np.ndarray:
        """See ``Rows``; each part is read once, and no row twice."""
        indices = np.arange(len(self))[where] if isinstance(where, slice) else where
        wanted, inverse = np.unique(indices, return_inverse=True)
        cuts = np.searchsorted(wanted, self._bounds)
        found = np.empty((len(wanted), self.shape[1]), np.float32)
        for number in np.flatnonzero(np.diff(cuts)).tolist():
            inside = slice(cuts[number], cuts[number + 1])
            found[inside] = self._parts[number][wanted[inside] - self._bounds[number]]
        return found[inverse]


def on_disk(shape: tuple[int, ...]) -> bool:
    """Whether float32 vectors of this shape are kept in a file: those of more than ``HELD`` bytes."""
    return shape[0] * shape[1] * 4 > HELD


def room_for(shape: tuple[int, int], path: Path | None) -> np.ndarray | FileRows:
    """Storage for float32 vectors: an array, or a new file at ``path`` if that is given and they are kept on disk."""
    if path is None or not on_disk(shape):
        return np.empty(shape, np.float32)
    return FileRows.made(path, shape)


def chunks(count: int, width: int) -> Iterator[slice]:
    """``count`` rows of ``width`` float32 numbers in slices of at most ``CHUNK`` bytes, or of one row."""
    size = chunk_rows(width)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def chunk_rows(width: int) -> int:
    """How many rows of ``width`` float32 numbers are worked on at once."""
    return _rows_in(CHUNK, width)


def held_rows(width: int) -> int:
    """How many rows of ``width`` float32 numbers are held in memory at once."""
    return _rows_in(HELD, width)


def _rows_in(most: int, width: int) -> int:
    return max(1, most // (4 * max(width, 1)))


def _runs(where: Where, count: int) -> tuple[list[tuple[int, int, int]], int]:
    """Runs of neighbouring rows, each as its first row and the places it begins and ends at; and the number of all rows."""
    if isinstance(where, slice):
        start, stop, step = where.indices(count)
        if step != 1:
            raise ValueError("rows are read without a step")
        return [(start, 0, max(stop - start, 0))], max(stop - start, 0)
    if not len(where):
        return [], 0
    if where.min() < 0 or where.max() >= count:
        raise IndexError(f"rows {where.min()} to {where.max()} of {count}")
    firsts = np.flatnonzero(np.diff(where, prepend=-2) != 1)
    stops = np.append(firsts[1:], len(where))
    return list(zip(where[firsts].tolist(), firsts.tolist(), stops.tolist(), strict=True)), len(where)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Adds the file to an error of the disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


_FORMATS = {"F32": "<f4", "F16": "<f2"}
_LONGEST = 100_000_000
"""Bytes; the library takes no longer header either."""


def save_rows(path: Path, tensors: Mapping[str, Rows], dtype: str) -> None:
    """Write vectors, by their name, as ``dtype`` (float32 or float16), whole or not at all."""
    numbers = np.dtype(dtype).newbyteorder("<")
    label = next(name for name, known in _FORMATS.items() if np.dtype(known) == numbers)
    header: dict[str, Any] = {}
    end = 0
    for name in sorted(tensors):
        start, end = end, end + math.prod(tensors[name].shape) * numbers.itemsize
        header[name] = {"dtype": label, "shape": list(tensors[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with whole_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in header:
            rows = tensors[name]
            for piece in chunks(len(rows), rows.shape[1]):
                file.write(np.ascontiguousarray(rows[piece], numbers).data)


def open_rows(path: Path) -> tuple[dict[str, FileRows], dict[str, str]]:
    """The vectors of a file, by name, and its metadata; only the header is read.

    ``CirfError`` if it is damaged, or holds anything but matrices of float32 or float16; ``FileNotFoundError`` if there is none.
    """
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(size - 8, _LONGEST):
                raise ValueError("the header's length")
            header = parse_json(file.read(length))
        facts = header.pop("__metadata__", {})
        found, end = {}, 0
        for name, entry in header.items():
            (start, stop), (count, width) = entry["data_offsets"], entry["shape"]
            numbers = np.dtype(_FORMATS[entry["dtype"]])
            if start < 0 or min(count, width) < 0 or stop - start != count * width * numbers.itemsize:
                raise ValueError("an offset")
            found[name] = FileRows(path, (count, width), numbers.str, 8 + length + start)
            end = max(end, stop)
        if 8 + length + end != size:
            raise ValueError("the file's length")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CirfError(f"{path}: damaged ({error}); run the same command to make it again") from error
    return found, facts
