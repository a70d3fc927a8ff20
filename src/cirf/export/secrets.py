"""Checks for what must not leave this machine: keys and local paths.

Readable files are searched before anything is sent. A key is never printed, only its place.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from cirf.errors import CirfError
from cirf.export.parcel import CARD, TRACES, Parcel, Piece
from cirf.store.files import parse_json
from cirf.store.paths import places_in

_KEYS = {
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "an API key": r"\bsk-[A-Za-z0-9_-]{20,}|\bAIza[A-Za-z0-9_-]{35}|\bgsk_[A-Za-z0-9]{40,}",
    "an AWS key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "a GitHub token": r"\bgh[pousr]_[A-Za-z0-9]{36,}|\bgithub_pat_[A-Za-z0-9_]{50,}",
    "a Slack token": r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "a bearer token": r"\b[Bb]earer [A-Za-z0-9._~+/-]{30,}",
    "a password in an address": r"\bhttps?://[^/\s:@\"']+:[^/\s:@\"']+@",
}
_HOMES = re.compile(
    r"(?:(?<![\w./])|(?<=file://))(?:/home/|/Users/|/root/|/tmp/|/mnt/|/private/|/scratch/)[\w.~-]+|\b[A-Za-z]:\\+Users\\+\w+"
)
_VOCABULARY = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt")  # tokens such as /usr/bin are no secrets
_DATA = (TRACES, "functions.json", "labels.json")  # texts by people and models may mention any folder but this machine's


def check_private(parcel: Parcel, folder: Path, token: str | None) -> None:
    """``CirfError``, with file and line, if a file holds a key or a local absolute path.

    ``folder`` is the parcel's folder on this machine, ``token`` the one it is sent with.
    """
    here = {str(place) + "/" for place in (Path.home(), Path.cwd(), folder.resolve().parent) if len(place.parts) > 1}
    quoted = {CARD} if TRACES in [piece.name for piece in parcel.pieces] else set()  # its card shows one of the rows
    data = quoted.union(_DATA)
    for piece in parcel.pieces:
        name = Path(piece.name).name
        if name.endswith(".safetensors") or name in _VOCABULARY:
            continue
        text = piece.read().decode("utf-8", errors="replace")
        for kind, pattern in _KEYS.items():
            if found := re.search(pattern, text):
                raise _refusal(piece, text, found.start(), f"holds {kind}", "remove it, and revoke it if others saw it")
        if token and token in text:
            raise _refusal(piece, text, text.index(token), "holds the token that you push with", "remove it")
        spotted = [text.index(place) for place in here if place in text]
        if not spotted and name not in data:
            spotted = [found.start() for found in _HOMES.finditer(text)][:1]
        if spotted:
            raise _refusal(
                piece, text, min(spotted), f"names a local folder ({_shown(text, min(spotted))})", "name no such place"
            )
        if name.endswith(".json") and name not in data and (places := _places(text)):
            start = max(0, text.find(json.dumps(places[0])))
            raise _refusal(piece, text, start, f"names a local folder ({places[0][:80]})", "name no such place")


def _places(text: str) -> list[str]:
    try:
        return places_in(parse_json(text))
    except ValueError:
        return []


def _shown(text: str, start: int) -> str:
    return re.split(r"[\s\"'`,)]", text[start : start + 80])[0]


def _refusal(piece: Piece, text: str, start: int, what: str, do: str) -> CirfError:
    line = text.count("\n", 0, start) + 1
    return CirfError(f"{piece.name}: line {line} {what}; {do}, then push again")
