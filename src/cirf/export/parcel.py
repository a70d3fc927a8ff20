"""The files of a model's folder or of a data set of traces, sent to a repository of a hub in one commit.

Before anything is sent, weights are checked for completeness by the headers of their files, and readable files are searched for
keys and local paths, which must not leave this machine. A key is never printed, only its place.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cirf.assets.hub import quiet, without_bars
from cirf.errors import CirfError
from cirf.lm.backbone import check_weights
from cirf.recipe.load import for_others, load
from cirf.store.files import parse_json, to_json
from cirf.store.jsonl import numbered_rows
from cirf.store.paths import places_in, without_folders
from cirf.store.run_folder import record

CARD = "README.md"
TRACES = "sft.jsonl"
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")
_PARTS = re.compile(
    r"README\.md|LICEN[CS]E(\.\w+)?|NOTICE(\.\w+)?|config\.json|generation_config\.json|[\w.-]+\.safetensors"
    r"|model\.safetensors\.index\.json|tokenizer\.json|tokenizer_config\.json|tokenizer\.model|special_tokens_map\.json"
    r"|added_tokens\.json|vocab\.json|merges\.txt|chat_template\.jinja|functions\.json|labels\.json|asked_by\.json"
    r"|latent\.json|soft\.json|history\.json|trials\.json|recipe\.yaml|stage\.json"
)
_INNER = ("guide",)


@dataclass(frozen=True, slots=True)
class UploadFile:
    """A file by its ``name`` in the repository; ``data`` is a local file, or its content."""

    name: str
    data: Path | bytes

    @property
    def size(self) -> int:
        return len(self.data) if isinstance(self.data, bytes) else self.data.stat().st_size

    def read(self) -> bytes:
        return self.data if isinstance(self.data, bytes) else self.data.read_bytes()


@dataclass(frozen=True, slots=True)
class Upload:
    """The ``pieces`` that are sent, by name, and the names of other files that are not (``left_out``)."""

    pieces: tuple[UploadFile, ...]
    left_out: tuple[str, ...] = ()

    @property
    def card(self) -> str:
        return next(piece.read().decode() for piece in self.pieces if piece.name == CARD)


def of_model(folder: Path, repository: str) -> Upload:
    """A trained model's folder for publication in ``repository`` (``OWNER/NAME``), which its card then names.

    In its recipe and record, local files and models are named without folders. ``CirfError`` if it is not a finished model with a
    card, or holds pickled weights.
    """
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and ".git" not in path.relative_to(folder).parts]
    _check_inside(folder, found)
    if pickles := [path for path in found if path.suffix.lower() in _PICKLES]:
        name = pickles[0].relative_to(folder)
        raise CirfError(f"{folder}: {name} may run code when it is loaded; keep only safetensors and remove it")
    _check_model(folder)
    if not (folder / CARD).is_file():
        raise CirfError(f"{folder}: no model card ({CARD}); `cirf report RUN` writes the cards of a run's models")
    chosen = {path for path in found if _sent(path.relative_to(folder))}
    pieces = [UploadFile(path.relative_to(folder).as_posix(), _published(path, repository)) for path in found if path in chosen]
    left = [path.relative_to(folder).as_posix() for path in found if path not in chosen]
    return Upload(tuple(pieces), tuple(left))


def of_traces(folder: Path, card: str) -> Upload:
    """The rows that the model in a folder was trained on, with their card."""
    return Upload((UploadFile(CARD, card.encode()), UploadFile(TRACES, folder / TRACES)))


def traces(folder: Path) -> list[dict[str, str]]:
    """The rows of a model's training, each ``prompt`` and ``completion``. ``CirfError`` if there are none, or one is of another
    form."""
    path = folder / TRACES
    _check_inside(folder, [path])
    if not path.is_file():
        raise CirfError(f"{path}: not there; a run keeps it with each model that it trains")
    rows = []
    for number, row in numbered_rows(path):
        found = {key: row[key] for key in ("prompt", "completion") if isinstance(row.get(key), str)}
        if len(found) < 2:
            raise CirfError(f"{path}: line {number} is not a row of prompt and completion; train the model again")
        rows.append(found)
    if not rows:
        raise CirfError(f"{path}: holds no row; train the model again")
    return rows


def _check_inside(folder: Path, files: Sequence[Path]) -> None:
    for path in files:
        if not path.resolve().is_relative_to(folder.resolve()):
            name = path.relative_to(folder)
            raise CirfError(
                f"{folder}: {name} is a link to a file outside of the folder; put the file itself there, or remove it"
            )


def _check_model(folder: Path) -> None:
    """``CirfError`` if a folder lacks anything that loading it needs."""
    if folder.parent.name == ".work" or ".work" in folder.resolve().parts:
        raise CirfError(f"{folder}: not finished yet; finish the run first")
    for place in (folder, *(folder / name for name in _INNER if (folder / name).is_dir())):
        for names in (("config.json",), ("tokenizer.json", "tokenizer.model", "vocab.json"), ("tokenizer_config.json",)):
            if not any((place / name).is_file() for name in names):
                raise CirfError(f"{place}: no finished model, {' or '.join(names)} is missing; name a model that was trained")
        check_weights(place)


def _sent(name: Path) -> bool:
    inner = name.parts[:-1]
    return (not inner or inner in [(part,) for part in _INNER]) and _PARTS.fullmatch(name.name) is not None


def _published(path: Path, repository: str) -> Path | bytes:
    """A file in the form to send: unchanged, or without local content."""
    if path.name == CARD:
        return for_repository(path.read_text(encoding="utf-8"), repository).encode()
    if path.name == "recipe.yaml":
        return for_others(load(str(path))).encode()
    return _record(path).encode() if path.name in ("stage.json", "functions.json") else path


def for_repository(card: str, repository: str) -> str:
    """A card with the repository in place of MODEL in its commands."""
    head, mark, rest = card.partition("## How to use it")
    use, after, others = rest.partition("\n## ")
    return head + mark + re.sub(r"\bMODEL\b", repository, use) + after + others


def _record(path: Path) -> str:
    """A stage's record, or for functional tokens only the backbone's name, since their segments are data."""
    try:
        stored = parse_json(path.read_text(encoding="utf-8"))
        if path.name == "stage.json":
            return record(without_folders(stored))
        return to_json(stored | without_folders({"backbone": stored["backbone"]}))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CirfError(f"{path}: damaged; train the model again") from None


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


def check_private(parcel: Upload, folder: Path, token: str | None) -> None:
    """``CirfError``, with file and line, if a file holds a key or a local absolute path. ``folder`` is the parcel's folder on
    this machine, ``token`` the one it is sent with."""
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
            place = re.split(r"[\s\"'`,)]", text[min(spotted) :][:80])[0]
            raise _refusal(piece, text, min(spotted), f"names a local folder ({place})", "name no such place")
        if name.endswith(".json") and name not in data:  # a relative one: the model would not work elsewhere
            for place in _places(text)[:1]:
                start = max(0, text.find(to_json(place).strip()))
                raise _refusal(piece, text, start, f"names a local folder ({place[:80]})", "name no such place")


def _places(text: str) -> list[str]:
    try:
        return places_in(parse_json(text))
    except ValueError:
        return []


def _refusal(piece: UploadFile, text: str, start: int, what: str, do: str) -> CirfError:
    line = text.count("\n", 0, start) + 1
    return CirfError(f"{piece.name}: line {line} {what}; {do}, then push again")


Kind = Literal["model", "dataset"]

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")


def check_name(repository: str) -> None:
    """``CirfError`` if it is not ``OWNER/NAME``."""
    parts = repository.split("/")
    if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts) or "--" in repository or ".." in repository:
        raise CirfError(f"--to {repository}: expected OWNER/NAME with letters, digits, '-', '_' and '.' only")


def own_token() -> str | None:
    """The token of the usual environment: ``HF_TOKEN``, or that of ``hf auth login``."""
    from huggingface_hub import get_token

    return get_token()


def upload(parcel: Upload, repository: str, kind: Kind, public: bool, message: str) -> str:
    """Send a parcel to a repository, created if missing, private unless ``public``; returns the commit's address.

    Existing files with the same names are replaced, others stay. ``CirfError`` where there is no token, a repository is
    public although ``public`` is not set (or the reverse), or the hub refuses.
    """
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    token = own_token()
    if token is None:
        raise CirfError("no token for the hub: set HF_TOKEN to one that may write, or run `hf auth login`")
    api = HfApi(token=token)
    quiet()
    try:
        with contextlib.nullcontext() if sys.stderr.isatty() else without_bars():
            try:
                private = bool(api.repo_info(repository, repo_type=kind).private)
            except RepositoryNotFoundError:
                api.create_repo(repository, repo_type=kind, private=not public)
            else:
                _check_visibility(repository, private, public)
            data = {piece.name: piece.data if isinstance(piece.data, bytes) else str(piece.data) for piece in parcel.pieces}
            added = [CommitOperationAdd(name, content) for name, content in data.items()]
            return str(api.create_commit(repository, added, commit_message=message, repo_type=kind).commit_url)
    except CirfError:
        raise
    except Exception as error:  # errors of the hub, its client library or the system have no common base class
        raise CirfError(f"{repository}: the hub rejects it ({_reason(error, token)}); fix that and push again") from None


def _check_visibility(repository: str, private: bool, public: bool) -> None:
    if private == public:
        there, advice = ("private", "leave out") if private else ("public", "give")
        raise CirfError(f"{repository}: exists and is {there}; {advice} --public, or change that in its settings first")


def _reason(error: Exception, token: str) -> str:
    """The first lines of an error and of what caused it, on one line and without the token."""
    messages = [str(one) for one in (error, error.__cause__) if one is not None]
    lines = [line.strip() for text in messages for line in text.splitlines()[:3] if line.strip()]
    text = " ".join(lines) or type(error).__name__
    return re.sub(r"\s+", " ", text.replace(token, "***"))[:300].rstrip(". ")
