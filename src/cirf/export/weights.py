"""Whether a model's weights are complete, by the headers of its files: no weight is read."""

from __future__ import annotations

from pathlib import Path

from cirf.errors import CirfError
from cirf.store.files import parse_json

_INDEX = "model.safetensors.index.json"
_LONGEST = 100 * 2**20  # bytes of a header, as the format allows


def check_weights(folder: Path) -> None:
    """``CirfError`` where weights of the model in a folder are missing, or a file of them is truncated or invalid."""
    index = folder / _INDEX
    if not index.is_file():
        path = folder / "model.safetensors"
        if not path.is_file():
            raise CirfError(f"{folder}: no finished model, {path.name} is missing; name a model that was trained")
        _head(path)
        return
    try:
        places: dict[str, str] = dict(parse_json(index.read_text(encoding="utf-8"))["weight_map"])
    except (ValueError, KeyError, TypeError):
        raise CirfError(f"{index}: damaged, so the places of the weights are unknown; save the model again") from None
    for name in sorted(set(places.values())):
        path = folder / name
        if Path(name).name != name or not path.is_file():
            raise CirfError(f"{folder}: no finished model, {name} is missing; bring all files of the model here")
        there = _head(path)
        for weight, place in places.items():
            if place == name and weight not in there:
                raise CirfError(f"{path}: does not hold {weight}, which {_INDEX} places there; save the model again")


def _head(path: Path) -> set[str]:
    """The names of the weights in a file of safetensors: eight bytes of length, a JSON object of that length, the weights."""
    size = path.stat().st_size
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(_LONGEST, size):
                raise ValueError
            head = parse_json(file.read(length))
        head.pop("__metadata__", None)
        end = max((int(row["data_offsets"][1]) for row in head.values()), default=0)
        if size != 8 + length + end or not head:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise CirfError(f"{path}: truncated, or not safetensors; bring the whole file here, or train the model again") from None
    return set(head)
