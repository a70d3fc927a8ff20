"""``label``: names of functional tokens by a person or a language model, instead of the rule's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.codebook.functions import clean, functions_of, name_by_model, read_labels, write_labels
from cirf.endpoints.requests import allow
from cirf.errors import CirfError
from cirf.progress import for_terminal
from cirf.recipe.load import open_run
from cirf.recipe.schema import Endpoint, RequestSettings
from cirf.report.data.collect import collect
from cirf.store.files import RowLog


def label(
    folder: Path, given: Sequence[str], endpoint: str | None, model: str | None, api_key_env: str | None, as_json: bool
) -> None:
    """Keep labels for a run's codes (and the models trained on them), or for those of a model's folder.

    ``given`` are ``CODE=LABEL``; ``CODE=`` restores the rule's. ``endpoint`` and ``model`` name a language model that labels
    every code from its segments. ``CirfError`` if there are no codes, or a code or label is invalid.
    """
    counts, segments = _codes(folder)
    labels = read_labels(folder, counts)
    changed: dict[int, str | None] = {}
    if endpoint is not None:
        changed |= _asked(folder, segments, endpoint, model, api_key_env)
    elif model is not None or api_key_env is not None:
        raise CirfError("--model and --api-key-env go with --endpoint: name the server (or local) too")
    for entry in given:
        code, sign, words = entry.partition("=")
        if not sign or not code.strip().isdecimal() or int(code) not in segments:
            raise CirfError(f"{entry!r}: expected CODE=LABEL with one of the codes (see `cirf codes {folder}`)")
        changed[int(code)] = clean(words) if words.strip() else None
    if changed:
        labels = _changed(labels, changed)
        write_labels(folder, labels, counts)
        for path in sorted(folder.glob("models/*/functions.json")):
            if functions_of(path.parent) and (own := _counts(functions_of(path.parent))) == counts:
                write_labels(path.parent, _changed(read_labels(path.parent, own), changed), own)
    if as_json:
        print(json.dumps({str(number): labels[number] for number in sorted(labels)}, indent=2, ensure_ascii=False))
        return
    for number in sorted(labels):
        print(f"<cirf_{number:03d}>  {labels[number]}")
    print(f"{len(labels)} of {len(segments)} codes have labels of your own; the others keep those found by rule")


def _changed(labels: Mapping[int, str], changes: Mapping[int, str | None]) -> dict[int, str]:
    """The labels with some of them changed or, where ``None``, taken back."""
    return {code: label for code, label in {**labels, **changes}.items() if label is not None}


def _counts(functions: Mapping[str, Any]) -> dict[int, int]:
    return {int(code): row["count"] for code, row in functions["codes"].items()}


def _codes(folder: Path) -> tuple[dict[int, int], dict[int, list[str]]]:
    """How often each code is used in training rationales, and segments of each."""
    if (folder / "config.json").is_file():
        functions = functions_of(folder)
        if not functions:
            raise CirfError(f"{folder}: this model has no functional tokens")
        return _counts(functions), {int(code): list(row["examples"]) for code, row in functions["codes"].items()}

    open_run(folder)
    book: dict[str, Any] | None = collect(folder, segments_per_code=12)["codebook"]
    if book is None:
        raise CirfError(f"{folder}: no codebook yet; make the run's stage `codebook` first")
    used = [row for row in book["codes"] if row["count"]]
    return {row["code"]: row["count"] for row in used}, {row["code"]: row["examples"] for row in used}


def _asked(
    folder: Path, segments: dict[int, list[str]], endpoint: str, model: str | None, api_key_env: str | None
) -> dict[int, str]:
    """The language model's labels; each answer is requested once and kept."""
    from pydantic import ValidationError

    if model is None:
        raise CirfError("--endpoint: name the model too (--model)")
    try:
        section = RequestSettings(endpoints=(Endpoint(url=endpoint, model=model, api_key_env=api_key_env),))
    except ValidationError as error:
        raise CirfError(f"--endpoint: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    allow([] if api_key_env is None else [api_key_env])  # named by the user, not by a recipe
    path = folder / "analysis" / "labels-asked.jsonl"
    path.parent.mkdir(exist_ok=True)
    return name_by_model(segments, section, RowLog(path), progress=for_terminal())
