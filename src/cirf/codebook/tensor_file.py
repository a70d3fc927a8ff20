"""Vectors in a safetensors file, written and read a piece at a time.

    8 bytes, the length of the header · the header, JSON, filled up with spaces to a multiple of 8 · the numbers

The safetensors library writes what is in memory as a whole and maps what it reads. What is written here is, byte for byte,
what it would write (the format: https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cirf.codebook.rows import FileRows, Rows, chunks
from cirf.errors import CirfError
from cirf.store.files import parse_json, whole_file

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
