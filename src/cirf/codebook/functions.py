"""The functions of a model's functional tokens: names derived by rule, labels given since, and both of a saved model.

Names are derived offline from a code's segments. A code whose segments read ``4 bananas * $1 = $4`` and ``3 statues * 2 = 6
statues`` becomes ``multiplies``; one whose segments read ``Sager does not flip the coin`` becomes ``not flip``. A name is a
reading aid: the segments are the truth.

Labels given by a person or a language model instead of the rule are kept in ``labels.json`` in a model's or a run's folder, a
file for people to edit::

    {"codes": "9f2c41d07be35a86", "labels": {"16": "divides", "23": "adds up"}}

``codes`` identifies the codebook, by how often each of its codes is used in training rationales: labels of another are ignored.
A label is a reading aid and not trained on: changing one reruns no stage.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.errors import CirfError
from cirf.progress import SILENT, Progress
from cirf.store.files import hash_json, parse_json, to_json, write_atomic
from cirf.store.paths import refuse_archive

if TYPE_CHECKING:
    from cirf.recipe.schema import RequestSettings
    from cirf.store.files import RowLog

UNUSED = "unused"
"""The label of a code without segments."""

MIXED = "mixed"
"""The label of a code whose segments have no distinctive word."""

_OPERATIONS = {"+": "adds", "-": "subtracts", "*": "multiplies", "/": "divides"}
_SAME = str.maketrans("\N{MULTIPLICATION SIGN}\N{MIDDLE DOT}\N{DIVISION SIGN}\N{MINUS SIGN}\N{EN DASH}", "**/--")
_NUMBER = r"[$€£]?\d[\d,]*(?:\.\d+)?%?"
_OPERATOR = re.compile(rf"(?<![\w.]){_NUMBER}(?:\s*\(?[A-Za-z%$]+\)?){{0,3}}\s*(\*|/|\+|(?<!\w)-)\s*(?={_NUMBER})")
_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_FUNCTION_WORDS = """
a an the this that these those it its they them their he she his her him we us our you your i me my of in on at to for from by
with as is are was were be been being am do does did has have had will would can could should may might must and or but so if
then than there here which who whom whose what when where while whether also just very each any some such into out over up
down about because since per step steps
"""
_STOP = frozenset(_FUNCTION_WORDS.split())
_MAJORITY = 0.5
_LEAST = 0.25

Features = tuple[Mapping[str, int], frozenset[str]]


def label_codes(segments_by_code: Mapping[int, Sequence[str]]) -> dict[int, str]:
    """A name of one to three words for every code.

    An operation (``adds``, ``subtracts``, ``multiplies``, ``divides``) comes first where more than half of the
    segments compute with it, two if each occurs in more than half; then the words that best distinguish the code's segments from
    those of all other codes. Names that would be equal are lengthened while three words allow; they may still be equal, as two
    codes may do the same thing. Same segments, same names.
    """
    bags = {code: [_features(segment) for segment in segments] for code, segments in segments_by_code.items()}
    total = Counter[str]()
    for segments in bags.values():
        for held, _ in segments:
            total.update(held.keys())
    count = sum(len(segments) for segments in bags.values())
    ranked = {code: _ranked(bags[code], total, count) for code in sorted(bags)}
    short = {code: _name(signs, words, 2) for code, (words, signs) in ranked.items()}
    taken = Counter(short.values())
    labels = {}
    for code, (words, signs) in ranked.items():
        label = _name(signs, words, 3) if taken[short[code]] > 1 else short[code]
        labels[code] = label if bags[code] else UNUSED
    return labels


def _name(signs: Sequence[str], words: Mapping[str, float], size: int) -> str:
    """Operations, then as many of the best words as fit ``size`` words, in the order in which segments hold them."""
    room, chosen = size - len(signs), []
    for word in words:
        if len(word.split()) <= room:
            chosen.append(word)
            room -= len(word.split())
    return " ".join([*signs, *sorted(chosen, key=lambda word: (words[word], word))]) or MIXED


def operations(segment: str) -> set[str]:
    """The arithmetic operations between two numbers of a segment, by name.

    A minus sign between digits that touch is a range or a date, not a subtraction, unless an equals sign follows.
    """
    text = segment.translate(_SAME).replace("\\times", "*").replace("\\div", "/")
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=[$\d])", " * ", text)
    found = set(_OPERATOR.findall(text))
    if re.search(r"\d-\d", text) and "=" in text:
        found.add("-")
    return {_OPERATIONS[sign] for sign in found}


def _features(segment: str) -> Features:
    """The words of a segment, each with its place, and its operations; ``not`` is one with the word after it."""
    words: dict[str, int] = {}
    negated = False
    for index, match in enumerate(_WORD.finditer(segment)):
        word = match.group()
        named = word[0].isupper() and not _starts_sentence(segment, match.start())
        if word.lower() == "not":
            negated = True
        elif len(word) > 1 and not named and word.lower() not in _STOP:
            words.setdefault(f"not {word.lower()}" if negated else word.lower(), index)
            negated = False
    return words, frozenset(operations(segment))


def _starts_sentence(segment: str, position: int) -> bool:
    before = segment[:position].rstrip(" \t*_\"'(")
    return not before or before[-1] in ".:!?\n"


def _ranked(bag: Sequence[Features], total: Counter[str], count: int) -> tuple[dict[str, float], list[str]]:
    """A code's distinctive words, best first, with their mean place; and the operations that most of its segments hold."""
    inside, places, signs = Counter[str](), Counter[str](), Counter[str]()
    for words, found in bag:
        inside.update(words.keys())
        places.update(words)
        signs.update(found)
    size, rest = len(bag), count - len(bag)
    scores = {}
    for word, hits in inside.items():
        share, elsewhere = hits / size, (total[word] - hits) / max(rest, 1)
        gain = share * math.log((share + 0.5 / size) / (elsewhere + 0.5 / max(rest, 1)))
        if share >= _LEAST and hits > (size > 2) and gain > 0:
            scores[word] = gain
    best = sorted(scores, key=lambda word: (-scores[word], word))
    most = sorted((sign for sign in signs if signs[sign] / size > _MAJORITY), key=lambda sign: (-signs[sign], sign))
    return {word: places[word] / inside[word] for word in best}, most[:2]


FILE = "labels.json"
SHOWN = 12
"""Segments that a language model is shown of a code."""

_LONGEST = 40  # characters of a label
_SEGMENT = 300  # characters of a segment that are shown
_DECODER = json.JSONDecoder()


def codes_id(counts: Mapping[int, int]) -> str:
    """Identifies a codebook: a hash of how often each of its codes is used in training rationales, without unused ones."""
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
    by_code = {str(code): labels[code] for code in sorted(labels)}
    write_atomic(folder / FILE, to_json({"codes": codes_id(counts), "labels": by_code}))


def clean(label: str) -> str:
    """A label on one line; ``CirfError`` if it is empty, longer than 40 characters, or holds a tag or signs for a terminal."""
    text = " ".join(label.split())
    if not text or len(text) > _LONGEST or "<" in text or ">" in text or not text.isprintable():
        raise CirfError(f"{label!r} cannot be a label: 1 to {_LONGEST} printable characters, without < and >")
    return text


def name_by_model(
    segments: Mapping[int, Sequence[str]], section: RequestSettings, log: RowLog, progress: Progress = SILENT
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
            requests[code] = Request(section.endpoints[0].model, (message,), 0, 0.0, 1.0, 64, json.dumps(schema))
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
    label = text.strip().strip("\"'*. ") if found is None else found.strip("\"'*. ")
    try:
        return None if found is None and ("\n" in label or "{" in label) else clean(label)
    except CirfError:
        return None


def evenly(items: Sequence[Any], count: int) -> list[Any]:
    """``count`` of the items at even distances, so that not all come from the first task."""
    return list(items) if len(items) <= count else [items[index * len(items) // count] for index in range(count)]


MODEL = Path("models") / "cirf_full"
"""The CIRF model in a run's folder."""

_MOST_CODES = 2**17


def find_model(path: Path) -> Path:
    """A checkpoint's folder: the path itself, or the CIRF model of a run's folder."""
    for folder in (path, path / MODEL):
        if (folder / "config.json").is_file():
            return folder
    refuse_archive(path)
    if not path.exists():
        raise CirfError(f"{path}: no such folder; name a run's folder, or a model's")
    others = sorted(one.parent for one in path.glob("models/*/config.json"))
    others.sort(key=lambda folder: not (folder / "functions.json").is_file())  # those that have functional tokens first
    advice = f"; name a model's folder, such as {others[0]}" if others else ""
    raise CirfError(f"{path}: neither a model's folder (no config.json) nor a run with a finished {MODEL}{advice}")


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
            counts = {int(code): row["count"] for code, row in loaded["codes"].items()}
            for code, label in read_labels(folder, counts).items():  # those that were given since
                loaded["codes"][str(code)]["label"] = label
            return loaded
    except (ValueError, AttributeError, KeyError, TypeError):
        pass
    raise CirfError(f"{path}: damaged; train the model again, or remove the file to ask without labels")


def describe(steps: Iterable[tuple[int, str]], size: int, delimiters: str, backbone: str) -> dict[str, Any]:
    """What ``functions.json`` holds, from each step's code and segment: of each code a label, how often it was used, and a few of
    its segments."""
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
