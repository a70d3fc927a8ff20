"""Labels of codes that a person or a language model gives, in place of the rule's.

They are kept in ``labels.json`` beside what they are of, a model's folder or a run's, a file for people to edit::

    {"16": "divides", "23": "adds up"}

A label is a reading aid and nothing that a model is trained on: changing one makes no stage again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.errors import CirfError
from cirf.progress import SILENT, Progress
from cirf.store import to_json, write_atomic

if TYPE_CHECKING:
    from cirf.recipe import Asked
    from cirf.store import RowLog

FILE = "labels.json"
SHOWN = 12
"""Segments that a language model is shown of a code."""

_LONGEST = 40  # characters of a label
_SEGMENT = 300  # characters of a segment that are shown
_DECODER = json.JSONDecoder()


def read_labels(folder: Path) -> dict[int, str]:
    """The labels that were given in a folder; empty where there are none. ``CirfError`` for a file that is no such list."""
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        labels = {int(code): " ".join(str(label).split()) for code, label in found.items() if isinstance(label, str)}
    except (ValueError, AttributeError):
        labels = None
    if labels is None or len(labels) != len(found):
        raise CirfError(f'{path}: not a list of labels by code, such as {{"16": "divides"}}; mend it or remove the file')
    return labels


def write_labels(folder: Path, labels: Mapping[int, str]) -> None:
    """Write a folder's labels, whole or not at all."""
    write_atomic(folder / FILE, to_json({str(code): labels[code] for code in sorted(labels)}))


def clean(label: str) -> str:
    """A label on one line; ``CirfError`` if it is empty, longer than 40 characters, or holds a tag."""
    told = " ".join(label.split())
    if not told or len(told) > _LONGEST or "<" in told or ">" in told:
        raise CirfError(f"{label!r} cannot be a label: 1 to {_LONGEST} characters, without < and >")
    return told


def name_by_model(
    segments: Mapping[int, Sequence[str]], section: Asked, log: RowLog, seed: int = 0, progress: Progress = SILENT
) -> dict[int, str]:
    """A label for every code with segments, by the language model of ``section.endpoints``; codes whose answer cannot be read
    are left out, to keep the label they had.

    ``log`` keeps every answer; only what it lacks is asked for. Raises as `cirf.rationales.endpoints.ask` does.
    """
    from cirf.rationales.endpoints import ask
    from cirf.rationales.requests import Request
    from cirf.rationales.templates import fill, read_template

    template = read_template(None, "label", ("segments",), "labels")
    schema = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}
    requests = {}
    for code, texts in segments.items():
        listed = "\n".join(f"- {' '.join(text.split())[:_SEGMENT]}" for text in _spread(list(dict.fromkeys(texts)), SHOWN))
        if listed:
            message = ("user", fill(template, {"segments": listed}))
            requests[code] = Request(section.endpoints[0].model, (message,), seed, 0.0, 1.0, 64, json.dumps(schema))
    answers, _ = ask(list(requests.values()), section, log, progress, "labels")
    found = {code: _read(answers[request.key].text) for code, request in requests.items() if request.key in answers}
    return {code: label for code, label in found.items() if label is not None}


def _read(text: str) -> str | None:
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
    told = text.strip().strip("\"'*. ") if found is None else found.strip("\"'*. ")
    try:
        return None if found is None and ("\n" in told or "{" in told) else clean(told)
    except CirfError:
        return None


def _spread(texts: Sequence[str], count: int) -> list[str]:
    """``count`` of the texts at even distances."""
    return list(texts) if len(texts) <= count else [texts[index * len(texts) // count] for index in range(count)]
