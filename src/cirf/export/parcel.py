"""The files of a model's folder, sent to a repository of a hub in one commit.

Before anything is sent, weights are checked for completeness by the headers of their files.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cirf.assets.hub import quiet, without_bars
from cirf.errors import CirfError
from cirf.lm.backbone import check_weights
from cirf.methods.soft.guide import read_soft
from cirf.recipe.load import for_others, load
from cirf.store.files import parse_json, to_json
from cirf.store.paths import is_place, without_folders
from cirf.store.run_folder import record

CARD = "README.md"
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")
_PARTS = re.compile(
    r"README\.md|LICEN[CS]E(\.\w+)?|NOTICE(\.\w+)?|config\.json|generation_config\.json|[\w.-]+\.safetensors"
    r"|model\.safetensors\.index\.json|tokenizer\.json|tokenizer_config\.json|tokenizer\.model|special_tokens_map\.json"
    r"|added_tokens\.json|vocab\.json|merges\.txt|chat_template\.jinja|functions\.json|labels\.json|asked_by\.json"
    r"|latent\.json|soft\.json|history\.json|trials\.json|recipe\.yaml|stage\.json"
)
_INNER = ("guide",)
Pieces = Mapping[str, Path | bytes]  # files by their names in the repository: local ones, or their content


def of_model(folder: Path, repository: str) -> tuple[Pieces, list[str]]:
    """The files of a trained model to publish in ``repository`` (``OWNER/NAME``), which its card then names, and the names of its
    other files, which are left out.

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
    pieces: dict[str, Path | bytes] = {}
    left: list[str] = []
    for path in found:
        name = path.relative_to(folder)
        if _sent(name):
            pieces[name.as_posix()] = _published(path, repository)
        else:
            left.append(name.as_posix())
    return pieces, left


def _check_inside(folder: Path, files: Sequence[Path]) -> None:
    for path in files:
        if not path.resolve().is_relative_to(folder.resolve()):
            name = path.relative_to(folder)
            raise CirfError(
                f"{folder}: {name} is a link to a file outside of the folder; put the file itself there, or remove it"
            )


def _check_model(folder: Path) -> None:
    """``CirfError`` if a folder lacks anything that loading it needs."""
    soft = read_soft(folder)
    if soft is not None and is_place(soft.guide):
        raise CirfError(
            f"{folder}: its vectors are made by a model of this machine ({soft.guide}); name one on a hub, then train"
        )
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


_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")


def check_name(repository: str) -> None:
    """``CirfError`` if it is not ``OWNER/NAME``."""
    parts = repository.split("/")
    if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts) or "--" in repository or ".." in repository:
        raise CirfError(f"--to {repository}: expected OWNER/NAME with letters, digits, '-', '_' and '.' only")


def upload(pieces: Pieces, repository: str, public: bool, message: str) -> str:
    """Send files to a repository, created if missing, private unless ``public``; returns the commit's address.

    Existing files with the same names are replaced, others stay. ``CirfError`` where there is no token, a repository is
    public although ``public`` is not set (or the reverse), or the hub refuses.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, get_token
    from huggingface_hub.errors import RepositoryNotFoundError

    token = get_token()  # ``HF_TOKEN``, or that of ``hf auth login``
    if token is None:
        raise CirfError("no token for the hub: set HF_TOKEN to one that may write, or run `hf auth login`")
    api = HfApi(token=token)
    quiet()
    try:
        with contextlib.nullcontext() if sys.stderr.isatty() else without_bars():
            try:
                private = bool(api.repo_info(repository).private)
            except RepositoryNotFoundError:
                api.create_repo(repository, private=not public)
            else:
                _check_visibility(repository, private, public)
            added = [CommitOperationAdd(name, data) for name, data in pieces.items()]
            return str(api.create_commit(repository, added, commit_message=message).commit_url)
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
