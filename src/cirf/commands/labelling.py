"""``label``: names of functional tokens by a person or a language model, in place of the rule's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cirf.errors import CirfError


def label(
    folder: Path, given: Sequence[str], endpoint: str | None, model: str | None, key_env: str | None, as_json: bool
) -> None:
    """Keep labels for a run's codes (and the models trained on them), or for those of a model's folder.

    ``given`` are ``CODE=LABEL``; ``CODE=`` goes back to the rule's. ``endpoint`` and ``model`` name a language model that labels
    every code from its segments. ``CirfError`` if there are no codes, or a code or label is none.
    """
    from cirf.analysis.naming import clean, read_labels, write_labels

    places, segments = _codes(folder)
    labels = read_labels(folder)
    if endpoint is not None:
        labels |= _asked(folder, segments, endpoint, model, key_env)
    elif model is not None or key_env is not None:
        raise CirfError("--model and --key-env go with --endpoint: name the server (or local) too")
    for entry in given:
        code, sign, told = entry.partition("=")
        if not sign or not code.strip().isdecimal() or int(code) not in segments:
            raise CirfError(f"{entry!r}: give CODE=LABEL with one of the codes (see `cirf codes {folder}`)")
        if told.strip():
            labels[int(code)] = clean(told)
        else:
            labels.pop(int(code), None)
    if given or endpoint is not None:
        for place in places:
            write_labels(place, labels)
    if as_json:
        print(json.dumps({str(code): labels[code] for code in sorted(labels)}, indent=2, ensure_ascii=False))
        return
    for number in sorted(labels):
        print(f"<cirf_{number:03d}>  {labels[number]}")
    print(f"{len(labels)} of {len(segments)} codes have labels of their own; the others keep those by rule")


def _codes(folder: Path) -> tuple[list[Path], dict[int, list[str]]]:
    """Where labels are kept, and the segments of each code."""
    from cirf.analysis.functions import functions_of

    if (folder / "config.json").is_file():
        functions = functions_of(folder)
        if not functions:
            raise CirfError(f"{folder}: this model has no functional tokens")
        return [folder], {int(code): list(row["examples"]) for code, row in functions["codes"].items()}
    from cirf.commands.running import open_run
    from cirf.report.collect import collect

    open_run(folder)
    book: dict[str, Any] | None = collect(folder, examples=0, segments_per_code=12)["codebook"]
    if book is None:
        raise CirfError(f"{folder}: no codebook yet; bring the run to its stage `codebook`")
    models = [path.parent for path in sorted(folder.glob("models/*/functions.json"))]
    return [folder, *models], {row["code"]: row["examples"] for row in book["codes"] if row["count"]}


def _asked(folder: Path, segments: dict[int, list[str]], endpoint: str, model: str | None, key_env: str | None) -> dict[int, str]:
    """The language model's labels; its answers are kept, and asked for once."""
    from pydantic import ValidationError

    from cirf.analysis.naming import name_by_model
    from cirf.progress import for_terminal
    from cirf.recipe import Asked, Endpoint
    from cirf.store import RowLog

    if model is None:
        raise CirfError("--endpoint: name the model too (--model)")
    try:
        section = Asked(endpoints=(Endpoint(url=endpoint, model=model, key_env=key_env),))
    except ValidationError as error:
        raise CirfError(f"--endpoint {endpoint}: {error.errors()[0]['msg']}") from None
    path = folder / "analysis" / "labels-asked.jsonl"
    path.parent.mkdir(exist_ok=True)
    return name_by_model(segments, section, RowLog(path), progress=for_terminal())
