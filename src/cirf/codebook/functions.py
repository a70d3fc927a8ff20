"""The functions of a saved model's functional tokens: the file ``functions.json`` in its folder, and the labels given since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.store.files import parse_json
from cirf.store.paths import refuse_archive

MODEL = Path("models") / "cirf_full"
"""The CIRF model in a run's folder."""

_MOST_CODES = 2**17


def find_model(path: Path) -> Path:
    """A checkpoint's folder: the path itself, or the CIRF model of a run's folder."""
    for folder in (path, path / MODEL):
        if (folder / "config.json").is_file():
            return folder
    refuse_archive(path)
    others = sorted(one.parent for one in path.glob("models/*/config.json"))
    others.sort(key=lambda folder: not (folder / "functions.json").is_file())  # those that have functional tokens first
    advice = f"; name a model's folder, such as {others[0]}" if others else ""
    raise CirfError(f"{path}: neither a model's folder (config.json) nor a run with a finished {MODEL}{advice}")


def functions_of(folder: Path) -> dict[str, Any]:
    """The functions of the model's functional tokens; empty if the model has none. ``CirfError`` for a damaged file."""
    path = folder / "functions.json"
    if not path.is_file():
        return {}
    try:
        loaded: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
        codes = loaded["codes"].values()
        whole = all(isinstance(code["label"], str) and isinstance(code["count"], int) and code["examples"] for code in codes)
        size = loaded["size"]
        if whole and isinstance(size, int) and 0 < size <= _MOST_CODES and isinstance(loaded["delimiters"], str):
            return _relabelled(loaded, folder)
    except (ValueError, AttributeError, KeyError, TypeError):
        pass
    raise CirfError(f"{path}: damaged; train the model again, or remove the file to ask without labels")


def _relabelled(functions: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same with the labels that were given since (see `cirf.codebook.naming`)."""
    from cirf.codebook.naming import read_labels

    counts = {int(code): row["count"] for code, row in functions["codes"].items()}
    for code, label in read_labels(folder, counts).items():
        functions["codes"][str(code)]["label"] = label
    return functions


def describe(steps: Iterable[tuple[int, str]], size: int, delimiters: str, backbone: str) -> dict[str, Any]:
    """What ``functions.json`` holds, from each step's code and segment: of each code a label, how often it was used, and a few of
    its segments."""
    from cirf.codebook.labels import label_codes

    by_code: dict[int, list[str]] = {}
    for code, segment in steps:
        by_code.setdefault(code, []).append(segment)
    labels = label_codes(by_code)
    return {
        "delimiters": delimiters,
        "size": size,
        "backbone": backbone,
        "codes": {
            str(code): {"label": labels[code], "count": len(texts), "examples": list(dict.fromkeys(texts))[:5]}
            for code, texts in sorted(by_code.items())
        },
    }


def label_of(functions: Mapping[str, Any], code: int) -> str:
    """The label of a functional token; empty where it has none."""
    label: str = functions["codes"].get(str(code), {}).get("label", "")
    return label


def steps_of(trace: str, functions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps of a trace for display: ``token``, ``label`` and ``result`` each; text before the first token has none."""
    from cirf.lm.vocabulary import parse_trace

    return [
        {
            "token": None if code is None else f"<cirf_{code:03d}>",
            "label": "" if code is None else label_of(functions, code),
            "result": result,
        }
        for code, result in parse_trace(trace)
    ]
