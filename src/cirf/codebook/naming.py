"""Labels of codes given by a person or a language model instead of the rule.

They are kept in ``labels.json`` in a model's or a run's folder, a file for people to edit::

    {"codes": "9f2c41d07be35a86", "labels": {"16": "divides", "23": "adds up"}}

``codes`` identifies the codebook, by how often each of its codes is used in training steps: labels of another one are ignored. A
label is a reading aid and not trained on: changing one reruns no stage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.errors import CirfError
from cirf.progress import SILENT, Progress
from cirf.store.files import hash_json, parse_json, to_json, write_atomic

if TYPE_CHECKING:
    from cirf.recipe.schema import Asked
    from cirf.store.files import RowLog

FILE = "labels.json"
SHOWN = 12
"""Segments that a language model is shown of a code."""

_LONGEST = 40  # characters of a label
_SEGMENT = 300  # characters of a segment that are shown
_DECODER = json.JSONDecoder()


def codes_id(counts: Mapping[int, int]) -> str:
    """Identifies a codebook: a hash of how often each of its codes is used in training steps, without unused ones."""
    return hash_json({str(code): counts[code] for code in sorted(counts) if counts[code]})[:16]


def read_labels(folder: Path, counts: Mapping[int, int]) -> dict[int, str]:
    """The labels given in a folder for the codes with these counts; empty if there are none, or they are of other codes.

    ``CirfError`` for an invalid file or label.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
        known, given = found["codes"], {int(code): label for code, label in found["labels"].items()}
        if not all(isinstance(label, str) for label in given.values()):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CirfError(f"{path}: not a file of labels as written by `cirf label`; fix it or remove it") from None
    if known != codes_id(counts):
        return {}
    try:
        return {code: clean(label) for code, label in given.items() if counts.get(code)}
    except CirfError as error:
        raise CirfError(f"{path}: {error}") from None


def write_labels(folder: Path, labels: Mapping[int, str], counts: Mapping[int, int]) -> None:
    """Write a folder's labels of the codes with these counts, whole or not at all."""
    summary = {str(code): labels[code] for code in sorted(labels)}
    write_atomic(folder / FILE, to_json({"codes": codes_id(counts), "labels": summary}))


def clean(label: str) -> str:
    """A label on one line; ``CirfError`` if it is empty, longer than 40 characters, or holds a tag or signs for a terminal."""
    text = " ".join(label.split())
    if not text or len(text) > _LONGEST or "<" in text or ">" in text or not text.isprintable():
        raise CirfError(f"{label!r} cannot be a label: 1 to {_LONGEST} printable characters, without < and >")
    return text


def name_by_model(
    segments: Mapping[int, Sequence[str]], section: Asked, log: RowLog, seed: int = 0, progress: Progress = SILENT
) -> dict[int, str]:
    """A label for every code with segments, by the language model of ``section.endpoints``; codes whose answer cannot be read
    are left out, to keep the label they had.

    ``log`` keeps every answer; only missing ones are requested. Raises as `cirf.endpoints.fleet.ask` does.
    """
    from cirf.endpoints.fleet import ask
    from cirf.endpoints.requests import Request, fill, read_template

    template = read_template(None, "label", ("segments",), "labels")
    schema = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}
    requests = {}
    for code, texts in segments.items():
        listed = "\n".join(f"- {' '.join(text.split())[:_SEGMENT]}" for text in evenly(list(dict.fromkeys(texts)), SHOWN))
        if listed:
            message = ("user", fill(template, {"segments": listed}))
            requests[code] = Request(section.endpoints[0].model, (message,), seed, 0.0, 1.0, 64, json.dumps(schema))
    answers, _ = ask(list(requests.values()), section, log, progress, "labels")
    found = {code: read_label(answers[request.key].text) for code, request in requests.items() if request.key in answers}
    return {code: label for code, label in found.items() if label is not None}


def read_label(text: str) -> str | None:
    """The label in an answer: the last JSON object's, else the text itself where it is one short line."""
    found: Any = None
    place = text.find("{")
    while place >= 0:
        try:
            made, end = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            made, end = None, place + 1
        if isinstance(made, dict) and isinstance(made.get("label"), str):
            found = made["label"]
        place = text.find("{", end)
    summary = text.strip().strip("\"'*. ") if found is None else found.strip("\"'*. ")
    try:
        return None if found is None and ("\n" in summary or "{" in summary) else clean(summary)
    except CirfError:
        return None


def evenly(items: Sequence[Any], count: int) -> list[Any]:
    """``count`` of the items at even distances, so that not all come from the first task."""
    return list(items) if len(items) <= count else [items[index * len(items) // count] for index in range(count)]
